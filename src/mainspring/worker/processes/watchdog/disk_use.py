"""The disk space of a run: what its working folder contains, and deleted files that its processes have open.

The folder is counted once a second, in slices, so that the supervisor stays responsive. A folder with so many files
that this takes longer is counted less often.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH115, PTH116, PTH208

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from .tree import read_file

_EVERY = 1.0
_SLICE = 0.1
_ENTRIES = 200  # between looks at the clock
_BLOCK = 512  # of st_blocks
_LEAST = 1024  # of a file or folder, so that empty ones count too
_DEEPEST = 200
_DELETED = " (deleted)"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DiskMeter:
    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._counting: Iterator[None] | None = None
        self._next = 0.0
        self._used = 0
        self._linked: set[int] = set()
        self._device = 0

    def exceeded(self, pids: list[int], now: float) -> bool:
        """Go on counting. True as soon as the limit is exceeded."""
        if self._counting is None:
            if now < self._next:
                return False
            self._counting = self._count(pids)
        over = time.monotonic() + _SLICE
        for _ in self._counting:
            if self._used > self._limit:
                break
            if time.monotonic() >= over:
                return False
        self._counting = None
        self._next = now + _EVERY
        return self._used > self._limit

    def _count(self, pids: list[int]) -> Iterator[None]:
        self._used = 0
        self._linked.clear()
        mounts = _mount_points()
        try:
            top = os.open(self._folder, _FOLDER)
        except OSError:  # the run has removed it, or it does not exist yet
            return
        self._device = os.fstat(top).st_dev
        self._add_deleted(pids)
        yield from self._count_in(top, self._folder, mounts, 1)

    def _count_in(
        self, folder: int, path: str, mounts: set[str], depth: int, mode: int | None = None
    ) -> Iterator[None]:
        """Count the entries of an open folder, and close it. `mode`: give it these permissions again."""
        seen = 0
        try:
            for entry in os.scandir(folder):
                seen += 1
                if seen % _ENTRIES == 0:
                    yield
                if f"{path}/{entry.name}" in mounts:
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                    self._add(found)
                    if not stat.S_ISDIR(found.st_mode) or found.st_dev != self._device:
                        continue
                    inner, closed = _open_folder(entry.name, found.st_mode, folder)
                except OSError:  # it has just been removed
                    continue
                if depth >= _DEEPEST:
                    os.close(inner)
                    self._used = self._limit + 1  # nobody nests so deeply, except to hide files
                    return
                yield from self._count_in(inner, f"{path}/{entry.name}", mounts, depth + 1, closed)
            yield
        except OSError:
            return
        finally:
            if mode is not None:
                os.fchmod(folder, mode)
            os.close(folder)

    def _add(self, found: os.stat_result) -> None:
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if found.st_ino in self._linked:
                return
            self._linked.add(found.st_ino)
        self._used += max(_LEAST, found.st_blocks * _BLOCK)

    def _add_deleted(self, pids: list[int]) -> None:
        found: dict[int, int] = {}
        for pid in pids:
            folder = f"/proc/{pid}/fd"
            try:
                for name in os.listdir(folder):
                    if not os.readlink(f"{folder}/{name}").endswith(_DELETED):
                        continue
                    file = os.stat(f"{folder}/{name}")
                    if file.st_dev == self._device and file.st_nlink == 0:
                        found[file.st_ino] = file.st_blocks * _BLOCK
            except OSError:  # it has ended, or belongs to another user
                continue
        self._used += sum(found.values())


def _open_folder(name: str, mode: int, parent: int) -> tuple[int, int | None]:
    """A folder that the run has closed is opened while it is counted. Returns its permissions too, then."""
    if mode & stat.S_IRWXU == stat.S_IRWXU or os.getuid() == 0:
        return os.open(name, _FOLDER, dir_fd=parent), None
    os.chmod(name, stat.S_IRWXU, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent), stat.S_IMODE(mode)


def _mount_points() -> set[str]:
    """Other file systems are not counted, and one that the run serves itself (FUSE) must not be asked."""
    try:
        lines = read_file("/proc/self/mountinfo").splitlines()
    except OSError:
        return set()
    return {os.fsdecode(line.split()[4]) for line in lines}
