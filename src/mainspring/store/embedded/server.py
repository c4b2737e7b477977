"""The embedded server: starts and stops it, and cleans up after a start that was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import quote

from mainspring.domain.errors import Conflict, InvalidInput, Unavailable
from mainspring.kernel.parent_death import die_with_parent
from mainspring.store.embedded.binaries import binary_major, tuned_settings, wheel_bin_folder
from mainspring.store.embedded.folder import Account, FolderLock, account_for_root

DATABASE = "mainspring"
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

    `settings` override the tuned ones. `notices` are messages for the user about changes outside the folder.
    """

    def __init__(
        self, folder: Path, *, bin_folder: Path | None = None, settings: Mapping[str, str] = _NO_SETTINGS
    ) -> None:
        self.folder = folder.resolve()
        self.data = self.folder / "postgres"
        self.log_file = self.folder / "postgres.log"
        self.lock = FolderLock(self.folder)
        self.notices: list[str] = []
        self._bin = (bin_folder or wheel_bin_folder()).resolve()
        self._settings = dict(settings)
        self._account: Account | None = None
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
        """The folder of the socket: a short one under /tmp if the path of our folder is too long for a socket."""
        if self._socket_folder is None:
            path = f"{self.folder}/.s.PGSQL.5432"
            fits = len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH
            plain = re.search(r"[\s,\"'\\]", path) is None  # PostgreSQL and drivers read a list here
            short = fits and plain
            self._socket_folder = self.folder if short else Path(tempfile.mkdtemp(prefix="mainspring-", dir="/tmp"))
        return self._socket_folder

    def url(self, database: str = DATABASE) -> str:
        """A URL for asyncpg and libpq. It contains the port, so that PGPORT in the environment has no effect."""
        return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(str(self.socket_folder))}&port=5432"

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
            self._account = account_for_root(self.notices)
            if (self.data / "PG_VERSION").exists():
                self._require_same_major()
                self._give_to_account()
                yield from self._end_orphan()
            else:
                self._initialise()
            yield from self._launch_until_ready()
            self._create_database()
        except BaseException:
            self._end_process("fast")
            if not had_lock:
                self.stop()
            raise

    def stop(self, mode: str = "fast") -> None:
        """Stop PostgreSQL and unlock the folder. The mode is `smart`, `fast` (ends sessions) or `immediate` (a
        crash)."""
        self._end_process(mode)
        if self._socket_folder not in (None, self.folder):
            remove_socket_folder(self._socket_folder)
            self._socket_folder = None
        self.lock.release()

    # -- the data

    def _require_same_major(self) -> None:
        major = binary_major(self._bin)
        found = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        if found != str(major):
            raise Conflict(
                f"The data in {self.data} belongs to PostgreSQL {found}, but {self._bin} contains PostgreSQL {major}. "
                f"Start with --postgres-bin and the folder of PostgreSQL {found}'s binaries, or dump the data with "
                f"pg_dump {found} and restore it into a new data folder.",
                code="postgres_major",
                field="data",
            )

    def _initialise(self) -> None:
        """Run initdb in another folder and rename it, so that a killed start leaves no incomplete data folder."""
        binary_major(self._bin)
        if self.data.exists() and any(self.data.iterdir()):
            raise InvalidInput(
                f"{self.data} contains files, but no PostgreSQL data. Choose another folder with --data.", field="data"
            )
        fresh = self.folder / "postgres.new"
        self._give_to_account()
        # Trust is safe here: only the owner of the private folder and root can reach the socket.
        argv = ["--pgdata", str(fresh), "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-instructions"]
        if fresh.exists():
            self._run(["rm", "-rf", str(fresh)])
        self._run([str(self._bin / "initdb"), *argv, "--auth-local=trust", "--auth-host=reject"])
        fresh.rename(self.data)

    def _give_to_account(self) -> None:
        """As root: give the files to the PostgreSQL user, and let it pass through the folders above."""
        self.socket_folder.mkdir(mode=0o700, exist_ok=True)  # /tmp may have been cleaned since the last launch
        if self._account is None:
            return
        self._account.own(self.folder, with_contents=False)
        if self.data.exists():
            self._account.own(self.data, with_contents=True)
        if self.socket_folder != self.folder:
            self._account.own(self.socket_folder, with_contents=True)
        for target in (self.data, self._bin / "postgres"):
            self.notices += self._account.grant_search_on_parents(target)

    def _create_database(self) -> None:
        psql = [str(self._bin / "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", self.url("postgres")]
        self._run(
            psql,
            stdin=f"SELECT 'CREATE DATABASE {DATABASE}' "
            f"WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec\n",
        )

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
            if "shared memory block" not in said or time.monotonic() > give_up:
                raise Unavailable(f"PostgreSQL ended during its start. The last lines of {self.log_file}:\n{said}")
            for _ in range(5):
                yield

    def _launch(self) -> None:
        options = tuned_settings(self.socket_folder) | self._settings
        argv = [str(self._bin / "postgres"), "-D", str(self.data)]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        if self.log_file.exists() and self.log_file.stat().st_size > _LARGEST_LOG:
            self.log_file.rename(self.log_file.with_suffix(".log.1"))
        with os.fdopen(os.open(self.log_file, _APPEND, 0o600), "ab") as output:
            self._log_offset = os.fstat(output.fileno()).st_size
            self._process = subprocess.Popen(
                argv,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C goes only to this process, which stops PostgreSQL last
                preexec_fn=die_with_parent(signal.SIGINT),
                **self._process_options(),
            )

    def _ready(self) -> bool:
        lines = self._pid_file()
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7] == "ready"

    def _pid_file(self) -> list[str]:
        """The lines of postmaster.pid: pid, data folder, start, port, socket folder, address, shared memory, status."""
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().splitlines()]
        except FileNotFoundError:
            return []

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

    def _end_orphan(self) -> Iterator[None]:
        """Stop a PostgreSQL that survived a killed Mainspring. We hold the lock, so no other process uses it."""
        lines = self._pid_file()
        if not lines or not lines[0].isdigit():
            return
        pid = int(lines[0])
        for stop_signal in (signal.SIGINT, signal.SIGQUIT):
            give_up = time.monotonic() + _ORPHAN_PATIENCE
            if runs_on(pid, self.data):
                os.kill(pid, stop_signal)
            while runs_on(pid, self.data) and time.monotonic() < give_up:
                yield
        if runs_on(pid, self.data):
            raise Conflict(f"A PostgreSQL (process {pid}) uses {self.data} and does not stop. Stop it manually.")

    def _run(self, argv: list[str], *, stdin: str = "") -> None:
        try:
            subprocess.run(argv, input=stdin.encode(), check=True, capture_output=True, **self._process_options())
        except OSError as error:
            raise Unavailable(f"{argv[0]} could not be started: {error}") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode("utf-8", "replace").strip()
            raise Unavailable(f"{Path(argv[0]).name} failed: {said}") from error

    def _process_options(self) -> dict[str, Any]:
        """User, folder and environment of PostgreSQL's programs. The environment has no PG* variables."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        around: dict[str, Any] = {"cwd": self.folder, "env": environment | {"LC_ALL": "C"}, "umask": 0o077}
        if self._account is not None:
            around |= {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}
        return around


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
