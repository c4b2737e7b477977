"""The private folder, its lock, and the account that runs PostgreSQL if Mainspring runs as root."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from mainspring.domain.errors import Conflict, Forbidden, InvalidInput, Unavailable, not_ours
from mainspring.kernel.config import POSTGRES_ACCOUNT, TOKEN_FILE_NAME
from mainspring.kernel.ownership import ForeignFile, name_of, require_own
from mainspring.kernel.private_files import close_entries
from mainspring.kernel.system_users import ensure_system_user

_LOCK_FILE_NAME = "lock"
_SIGNS_OF_OURS = (_LOCK_FILE_NAME, TOKEN_FILE_NAME, "postgres/PG_VERSION")


def make_private(folder: Path) -> None:
    """Create the folder if necessary and remove the permissions of others. Rejects a folder of another user, whose
    settings and programs PostgreSQL would use. Also rejects a folder with other files in it: `--data .` would make a
    project or a home folder inaccessible to others."""
    try:
        require_own(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        strange = any(folder.iterdir()) and not any((folder / sign).exists() for sign in _SIGNS_OF_OURS)
        if not strange:
            folder.chmod(0o700)
            close_entries(folder)  # an earlier version, or another umask, may have let others read them
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInput(f"{folder} is not a folder. Choose another one with --data.", field="data") from error
    except ForeignFile as error:
        raise not_ours(error) from error
    except PermissionError as error:
        raise _no_permission(folder) from error
    if strange:
        raise InvalidInput(
            f"{folder} contains files that are not Mainspring's. Choose a new or empty folder with --data.",
            field="data",
        )


def _no_permission(folder: Path) -> Forbidden:
    try:
        owner = f" It belongs to {name_of(folder.stat().st_uid)}."
    except OSError:
        owner = ""
    return Forbidden(
        f"No permission to use the data folder {folder}.{owner} Start as its owner, or choose another one with --data.",
        code="data_folder_not_ours",
        field="data",
    )


class FolderLock:
    """A lock that is held while Mainspring uses the folder. The kernel releases it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock, or raise Conflict `already_running` with the pid of its holder. Can be called again."""
        if self.held:
            return
        make_private(self._folder)
        try:
            # Close-on-exec is Python's default, so children do not inherit the lock.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(self._folder / _LOCK_FILE_NAME, flags, 0o600)
        except PermissionError as error:
            raise _no_permission(self._folder) from error
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
    process = f" (process {holder})" if holder else ""
    return Conflict(
        f"Mainspring already uses {folder}{process}. Stop it first, or choose another folder with --data.",
        code="already_running",
        field="data",
    )


@dataclass(frozen=True, slots=True)
class FolderAccount:
    """The system user that runs PostgreSQL if Mainspring runs as root. PostgreSQL refuses to run as root."""

    uid: int
    gid: int
    name: str = POSTGRES_ACCOUNT

    def own(self, folder: Path) -> None:
        """Make the account the owner of a folder and its contents. The folder itself is changed last, so that an
        interrupted change is noticed and repeated."""
        if folder.lstat().st_uid == self.uid:
            return
        for place, folders, files in os.walk(folder, topdown=False):
            for name in (*folders, *files):
                os.lchown(Path(place) / name, self.uid, self.gid)
        os.lchown(folder, self.uid, self.gid)


def account_for_root(notices: list[str]) -> FolderAccount | None:
    """The account that runs PostgreSQL, created if it is missing. None if Mainspring runs as an ordinary user, because
    PostgreSQL then runs as the same user."""
    if os.geteuid() != 0:
        return None
    entry, said = ensure_system_user(POSTGRES_ACCOUNT)
    if entry is None:
        raise Unavailable(
            f"PostgreSQL refuses to run as root, and the system user {POSTGRES_ACCOUNT} could not be created ({said}). "
            f"Create this user, or start Mainspring as an ordinary user.",
            code="postgres_account",
        )
    if said:
        notices.append(f"{said}, because PostgreSQL refuses to run as root")
    return FolderAccount(uid=entry.pw_uid, gid=entry.pw_gid)
