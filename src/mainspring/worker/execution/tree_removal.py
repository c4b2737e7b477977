"""Removes a folder and its contents, whatever a command has left there: any depth, any number of entries, any modes.

It uses no recursion, no list of entries, and at most five descriptors: what is nested deeper than one level is first
moved up to the top. It goes by descriptors, so it follows no link, even if a process exchanges folders meanwhile.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTEMPTY
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME_BYTES = 12
_FULL = (ENOTEMPTY, EEXIST)


class TreeRemoval:
    """`last` is a file of the folder that stays until everything else is gone."""

    def __init__(self, folder: Path, last: str | None = None) -> None:
        self._error: OSError | None = None
        self._folder = folder
        self._last = last
        self._top = -1
        self._device = 0
        self._progress = False

    def run(self) -> None:
        """Raises OSError if the folder, or a part of it, cannot be removed."""
        if not stat.S_ISDIR(os.lstat(self._folder).st_mode):
            self._folder.unlink()  # a file or a link is in its place
            return
        with _opened(str(self._folder)) as self._top:
            self._device = os.fstat(self._top).st_dev
            self._empty_the_top()
            if self._last is not None:
                with suppress(FileNotFoundError):
                    os.unlink(self._last, dir_fd=self._top)
        self._folder.rmdir()

    def _empty_the_top(self) -> None:
        """Each pass removes the first level, and moves the folders of the second to the first."""
        self._progress = True
        while self._progress:
            self._progress, self._error = False, None
            for entry in _entries(self._top):
                if entry.name != self._last:
                    self._remove(entry)
        if self._error is not None:
            raise self._error

    def _remove(self, entry: os.DirEntry[str]) -> None:
        with self._noting_errors():
            if self._removed(entry, self._top):
                return
            with _opened(entry.name, self._top) as folder:
                if os.fstat(folder).st_dev != self._device:
                    raise OSError("another file system")
                for inner in _entries(folder):
                    with self._noting_errors():
                        if not self._removed(inner, folder):
                            self._move_up(inner.name, folder)
            os.rmdir(entry.name, dir_fd=self._top)

    def _removed(self, entry: os.DirEntry[str], parent: int) -> bool:
        """False if it is a folder that is not empty. A mount point is busy."""
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=parent)
        else:
            try:
                os.rmdir(entry.name, dir_fd=parent)
            except OSError as error:
                if error.errno in _FULL:
                    return False
                raise
        self._progress = True
        return True

    def _move_up(self, name: str, parent: int) -> None:
        target = os.urandom(_NAME_BYTES).hex()
        try:
            os.rename(name, target, src_dir_fd=parent, dst_dir_fd=self._top)
        except PermissionError:  # a folder that moves must be writable
            _permit(name, parent)
            os.rename(name, target, src_dir_fd=parent, dst_dir_fd=self._top)
        self._progress = True

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            return
        except OSError as error:
            self._error = error


def _entries(folder: int) -> Iterator[os.DirEntry[str]]:
    os.lseek(folder, 0, os.SEEK_SET)  # the descriptor of a listing shares the position
    with os.scandir(folder) as entries:
        yield from entries


@contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    """The folder, with the permissions to list and change it."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        _permit(name, parent)
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    try:
        if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(PermissionError):  # root needs no permissions
                os.fchmod(descriptor, stat.S_IRWXU)
        yield descriptor
    finally:
        os.close(descriptor)


def _permit(name: str, parent: int | None) -> None:
    """chmod of a folder that may not be opened. It never follows a link."""
    if sys.platform != "linux":
        os.chmod(name, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
        return
    descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{descriptor}").chmod(stat.S_IRWXU)
    finally:
        os.close(descriptor)
