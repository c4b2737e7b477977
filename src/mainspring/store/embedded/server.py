"""The embedded server: starts and stops it, and cleans up after a start that was killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Self
from urllib.parse import quote

from mainspring.domain.errors import Conflict, InvalidInput, Unavailable
from mainspring.kernel.config import POSTGRES_FOLDER_NAME
from mainspring.store.embedded.access import BACKUP_ROLE, DATABASE, ROLE, Access
from mainspring.store.embedded.binaries import binary_major, reachable_binaries, tuned_settings, wheel_bin_folder
from mainspring.store.embedded.exchange import finish_exchange
from mainspring.store.embedded.folder import FolderLock, account_for_root
from mainspring.store.embedded.programs import Programs, sessions_remain

POLL_SECONDS = 0.02

_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_STOP_PATIENCE = 60.0
_ORPHAN_PATIENCE = 10.0
_SESSIONS_PATIENCE = 60.0
_LONGEST_SOCKET_PATH = 100  # the kernels' limit is 104 to 108 bytes
_MEGABYTE = 1024 * 1024
_LARGEST_LOG = 16 * _MEGABYTE
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class EmbeddedPostgres:
    """PostgreSQL in `folder`. The first start creates it. Only one process can use the folder at a time.

    `settings` override the tuned ones. `notices` are messages for the user about changes outside the folder, and about
    what the conversion of an old folder disabled.
    """

    def __init__(
        self, folder: Path, *, bin_folder: Path | None = None, settings: Mapping[str, str] = _NO_SETTINGS
    ) -> None:
        self.folder = folder.resolve()
        self.data = self.folder / POSTGRES_FOLDER_NAME
        self.log_file = self.folder / "postgres.log"
        self.lock = FolderLock(self.folder)
        self.notices: list[str] = []
        self.access = Access(self.folder, self.data, self.notices)
        self._settings = dict(settings)
        self._fsync = self._settings.get("fsync", "on")
        self._programs = Programs((bin_folder or wheel_bin_folder()).resolve(), fsync=self._fsync)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket_folder: Path | None = None
        self._log_offset = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def socket_folder(self) -> Path:
        """The folder of the socket: the data, or a short one under /tmp if the path is too long for a socket."""
        if self._socket_folder is None:
            path = f"{self.data}/.s.PGSQL.5432"
            fits = len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH
            plain = re.search(r"[\s,\"'\\]", path) is None  # PostgreSQL and drivers read a list here
            short = fits and plain
            self._socket_folder = self.data if short else Path(tempfile.mkdtemp(prefix="mainspring-", dir="/tmp"))
        return self._socket_folder

    def url(self, database: str = DATABASE) -> str:
        """A URL for asyncpg and libpq. It names the file with the password, but does not contain the password. It
        contains the port, so that PGPORT in the environment has no effect."""
        where = f"host={quote(str(self.socket_folder))}&port=5432&passfile={quote(str(self.access.password_file))}"
        return f"postgresql://{ROLE}@/{quote(database, safe='')}?{where}"

    def backup_url(self) -> str:
        """A URL for libpq's programs that copy the data: of the role that can only replicate. A PostgreSQL that another
        process runs on this folder says itself where its socket is."""
        lines = _pid_file(self.data)
        said = Path(lines[4]) if len(lines) > 4 and lines[4] else self.socket_folder
        sockets = said if said.is_absolute() and not said.is_relative_to("/proc") else self.data
        where = f"host={quote(str(sockets))}&port=5432&passfile={quote(str(self.access.backup_password_file))}"
        return f"postgresql://{BACKUP_ROLE}@/?{where}"

    def recovering(self, settings: Mapping[str, str]) -> Generator[None, None, None]:
        """Recover the data of a backup as recovery.signal and these settings say, without a server. Yields while it
        waits. The caller holds the lock of the folder. While PostgreSQL waits for WAL it hears no milder signal."""
        self._choose_programs()
        self._require_same_major()
        self._divide_ownership()
        yield from self._programs.single_user(self.data, "postgres", "select 1;", settings, signal.SIGKILL)

    def resting(self) -> Generator[None, None, None]:
        """Bring the data to rest, without a server: end one that was left behind, and recover what a crash has left.
        Yields while it waits. The caller holds the lock of the folder."""
        self._choose_programs()
        self._require_same_major()
        self._divide_ownership()
        yield from end_orphan(self.data)
        yield from self._single_user("postgres", "select 1;")

    def account_programs(self) -> Programs:
        """PostgreSQL's programs, to be run as the account that owns the data."""
        self._choose_programs()
        return self._programs

    @property
    def programs(self) -> Programs:
        """PostgreSQL's programs, to be run as our own user."""
        return Programs(self._programs.bin_folder, fsync=self._fsync)

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start PostgreSQL. Returns when it accepts connections and the database exists."""
        with closing(self.starting()) as steps:
            for _ in steps:
                time.sleep(POLL_SECONDS)

    def starting(self) -> Generator[None, None, None]:
        """`start()` in steps: yields whenever it has to wait, so that an event loop is not blocked.

        Crash recovery can take minutes. It waits as long as the process lives.
        """
        if self.alive():
            return
        had_lock = self.lock.held
        self.lock.acquire()
        try:
            self._choose_programs()
            finish_exchange(self.folder)
            fresh = not (self.data / "PG_VERSION").exists()
            if not fresh:
                self._require_same_major()
                self._divide_ownership()
                yield from end_orphan(self.data)
            else:
                self._initialise()
            self._prepare_socket_folder()
            if not self.access.is_set_up():
                yield from self.access.setting_up(self._single_user, fresh=fresh)
            yield from self._launch_until_ready()
        except BaseException:
            self._end_process("fast")
            if not had_lock:
                self.stop()
            raise

    def stop(self, mode: str = "fast") -> None:
        """Stop PostgreSQL and unlock the folder. The mode is `smart`, `fast` (ends sessions) or `immediate` (a
        crash)."""
        self._end_process(mode)
        if self._socket_folder not in (None, self.data):
            remove_socket_folder(self._socket_folder)
            self._socket_folder = None
        self.lock.release()

    # -- the data

    def _choose_programs(self) -> None:
        account = account_for_root(self.notices)
        if account is None:
            return
        reachable = reachable_binaries(self._programs.bin_folder, account, self.notices)
        self._programs = Programs(reachable, account, self._fsync)

    def _require_same_major(self) -> None:
        programs = self._programs.bin_folder
        major = binary_major(programs)
        found = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        if found != str(major):
            raise Conflict(
                f"The data in {self.data} belongs to PostgreSQL {found}, but {programs} contains PostgreSQL {major}. "
                f"Convert it by `mainspring upgrade-database --data {self.folder}`, or start with --postgres-bin and "
                f"the folder of PostgreSQL {found}'s binaries.",
                code="postgres_major",
                field="data",
            )

    def _initialise(self) -> None:
        """Run initdb in another folder and rename it, so that a killed start leaves no incomplete data folder."""
        binary_major(self._programs.bin_folder)
        if self.data.exists():
            if any(self.data.iterdir()):
                raise InvalidInput(
                    f"{self.data} contains files, but no PostgreSQL data. Choose another folder with --data.",
                    field="data",
                )
            self.data.rmdir()
        fresh = self.folder / "postgres.new"
        if fresh.exists():
            shutil.rmtree(fresh)
        self.initialise_in(fresh)
        fresh.rename(self.data)

    def initialise_in(self, fresh: Path, *options: str) -> None:
        """Run initdb in this new folder."""
        fresh.mkdir(mode=0o700)
        if self._programs.account is not None:
            self._programs.account.own(fresh)
        arguments = ["--pgdata", self._programs.path_of(fresh), "--username=postgres", "--encoding=UTF8", "--no-locale"]
        arguments += ["--no-instructions", "--auth=reject", *(["--no-sync"] if self._fsync == "off" else []), *options]
        self._programs.run("initdb", arguments, fresh)

    def _divide_ownership(self) -> None:
        """As root: PostgreSQL's data belongs to its account, and the folder around it to us. Earlier versions gave the
        folder to the account too, and had the socket there."""
        if self._programs.account is not None:
            os.lchown(self.folder, os.geteuid(), os.getegid())
            self._programs.account.own(self.data)

    def _prepare_socket_folder(self) -> None:
        if self.socket_folder != self.data:
            self.socket_folder.mkdir(mode=0o700, exist_ok=True)  # /tmp may have been cleaned since the last launch
            if self._programs.account is not None:
                self._programs.account.own(self.socket_folder)
        for left_behind in self.folder.glob(".s.PGSQL.*"):
            left_behind.unlink()

    def _single_user(self, database: str, sql: str) -> Generator[None, None, str]:
        return self._programs.single_user(self.data, database, sql)

    # -- the process

    def _launch_until_ready(self) -> Iterator[None]:
        give_up = time.monotonic() + _SESSIONS_PATIENCE
        while True:
            self._launch()
            while self.alive():
                if self._ready():
                    return
                yield
            said = self._log_since_launch()
            # After kill -9 of PostgreSQL its sessions take a moment to end. It does not start before.
            if not sessions_remain(said) or time.monotonic() > give_up:
                raise Unavailable(f"PostgreSQL ended during its start. The last lines of {self.log_file}:\n{said}")
            for _ in range(5):
                yield

    def _launch(self) -> None:
        data = self._programs.path_of(self.data)
        sockets = data if self.socket_folder == self.data else str(self.socket_folder)
        options = tuned_settings(sockets) | self._programs.safe_settings(self.data) | self._settings
        arguments = ["-D", data]
        for name, value in options.items():
            arguments += ["-c", f"{name}={value}"]
        if self.log_file.exists() and self.log_file.stat().st_size > _LARGEST_LOG:
            self.log_file.rename(self.log_file.with_suffix(".log.1"))
        with os.fdopen(os.open(self.log_file, _APPEND, 0o600), "ab") as output:
            self._log_offset = os.fstat(output.fileno()).st_size
            self._process = self._programs.start("postgres", arguments, self.data, stdout=output, stderr=output)

    def _ready(self) -> bool:
        lines = _pid_file(self.data)
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7] == "ready"

    def _log_since_launch(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(self._log_offset)
            return "\n".join(log.read(_MEGABYTE).decode("utf-8", "replace").splitlines()[-10:])

    def _end_process(self, mode: str) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            for stop_signal in (_STOP_SIGNALS[mode], signal.SIGQUIT, signal.SIGKILL):
                process.send_signal(stop_signal)
                try:
                    process.wait(_STOP_PATIENCE)
                    break
                except subprocess.TimeoutExpired:
                    continue
        self._process = None


def end_orphan(data: Path) -> Iterator[None]:
    """Stop a PostgreSQL that survived a killed Mainspring. The caller holds the lock, so no other process uses it."""
    lines = _pid_file(data)
    number = int(lines[0]) if lines and lines[0].lstrip("-").isdigit() else 0
    pid = abs(number)
    if not pid:
        return
    # A negative number means single-user mode, where SIGINT is lost between two statements.
    for stop_signal in (signal.SIGINT if number > 0 else signal.SIGTERM, signal.SIGQUIT):
        give_up = time.monotonic() + _ORPHAN_PATIENCE
        if runs_on(pid, data):
            os.kill(pid, stop_signal)
        while runs_on(pid, data) and time.monotonic() < give_up:
            yield
    if runs_on(pid, data):
        raise Conflict(f"A PostgreSQL (process {pid}) uses {data} and does not stop. Stop it manually.")


def _pid_file(data: Path) -> list[str]:
    """The lines of postmaster.pid: pid, data folder, start, port, socket folder, address, shared memory, status."""
    try:
        return [line.strip() for line in (data / "postmaster.pid").read_text().splitlines()]
    except FileNotFoundError:
        return []


def runs_on(pid: int, data: Path) -> bool:
    """Whether the process `pid` is a PostgreSQL on this data, and not another program with a reused pid."""
    process = Path(f"/proc/{pid}")
    if Path("/proc/self").exists():
        try:
            return (process / "comm").read_text().strip() == "postgres" and (process / "cwd").samefile(data)
        except OSError:
            return False
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False)
    return "postgres" in shown.stdout and str(data) in shown.stdout


def remove_socket_folder(folder: Path | None) -> None:
    if folder is not None and folder.exists():
        for socket in folder.glob(".s.PGSQL.*"):
            socket.unlink()
        folder.rmdir()
