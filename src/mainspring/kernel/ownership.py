"""Whose files we trust: our own and root's. As root also the folders of PostgreSQL's account, which we made.

A data folder says where the server is and holds the tokens. In a folder that another user has put there, both would
belong to that user: our token would go to their server, or their commands would run as us.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from mainspring.kernel.config import POSTGRES_ACCOUNT

_ROOT = 0
_MOST_BYTES = 1 << 20


class ForeignFile(PermissionError):
    """A file or folder that others control. `fix` says what the user can do."""

    def __init__(self, path: Path, why: str, fix: str) -> None:
        super().__init__(f"{path} {why}")
        self.fix = fix


def require_own(folder: Path) -> None:
    """Raise ForeignFile if another user owns the folder, or the link that leads to it, or something that is in it. A
    missing folder is fine."""
    owners = _folder_owners()
    try:
        _judge(folder, folder.lstat(), owners)
        _judge(folder, folder.stat(), owners)
        entries = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        with suppress(FileNotFoundError):  # a file that was renamed meanwhile
            _judge(entry, entry.lstat(), owners)


def require_no_links(folder: Path) -> None:
    """Raise ForeignFile if something in the folder is a link."""
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):
            _judge(entry, entry.lstat(), _folder_owners(), follow=False)


def read_own(folder: Path, name: str, *, follow: bool = True) -> bytes | None:
    """The content of a file in a data folder, or None if it is missing. Raises ForeignFile if others control one of the
    two. What is read is what was judged, also if another user exchanges the folder meanwhile.

    `follow`: neither may be a link if this is false. A repository can contain links to every file of the user.
    """
    no_link = 0 if follow else os.O_NOFOLLOW
    try:
        _judge(folder, folder.lstat(), _folder_owners(), follow=follow)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | no_link)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        _judge(folder, os.fstat(place), _folder_owners())
        _judge(folder / name, os.lstat(name, dir_fd=place), _file_owners(), follow=follow)
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | no_link, dir_fd=place)  # a pipe must not block
    except FileNotFoundError:
        return None
    finally:
        os.close(place)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        _judge(folder / name, status, _file_owners())
        if status.st_mode & stat.S_IWOTH:
            raise ForeignFile(
                folder / name, "can be changed by everybody", "remove it; the next start writes a new one"
            )
        if not stat.S_ISREG(status.st_mode):
            raise ForeignFile(folder / name, "is not a regular file", "remove it")
        content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ForeignFile(folder / name, f"has more than {_MOST_BYTES} bytes", "remove it")
        return content


def _judge(path: Path, status: os.stat_result, owners: frozenset[int], *, follow: bool = True) -> None:
    if not follow and stat.S_ISLNK(status.st_mode):
        raise ForeignFile(
            path, "is a link, and what is only found may not be one", "name the folder with --data or MAINSPRING_DATA"
        )
    if status.st_uid not in owners:
        owner, me = name_of(status.st_uid), os.geteuid()
        trusted = "its own files" if me == _ROOT else "its own files and root's"
        raise ForeignFile(
            path,
            f"belongs to {owner}, and {name_of(me)} uses only {trusted}",
            f"run the command as {owner}, or name another folder with --data or MAINSPRING_DATA",
        )


def _file_owners() -> frozenset[int]:
    return frozenset((_ROOT, os.geteuid()))


def _folder_owners() -> frozenset[int]:
    """As root, earlier versions gave the folder to PostgreSQL's account."""
    owners = _file_owners()
    if os.geteuid() == _ROOT:
        try:
            return owners | {pwd.getpwnam(POSTGRES_ACCOUNT).pw_uid}
        except KeyError:
            pass
    return owners


def name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
