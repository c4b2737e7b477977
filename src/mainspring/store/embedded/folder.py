"""The private folder, its lock, and the account that runs PostgreSQL for root."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, Unavailable
from mainspring.kernel.config import TOKEN_FILE_NAME

_ACCOUNT_NAME = "pgserver"
_LOCK_FILE_NAME = "lock"
_SIGNS_OF_OURS = (_LOCK_FILE_NAME, TOKEN_FILE_NAME, "postgres/PG_VERSION")


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
    with _one_at_a_time():
        try:
            entry = pwd.getpwnam(_ACCOUNT_NAME)
        except KeyError:
            _create_account()
            entry = pwd.getpwnam(_ACCOUNT_NAME)
            notices.append(f"created the system user {_ACCOUNT_NAME}, because PostgreSQL refuses to run as root")
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two first starts on one machine: `useradd` looks for the name before it takes its own lock, so that the second
    fails, or makes the user again with another number. A lock on the folder itself leaves nothing behind."""
    descriptor = os.open("/etc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
