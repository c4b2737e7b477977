"""The disk space of a run: what its working folder contains, and deleted files that its processes have open, mapped or
execute.

The folder is counted once a second, in slices, so that the supervisor stays responsive. A folder with so many files
that this takes longer is counted less often. The command changes the folder meanwhile: no link in it is followed.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH101, PTH115, PTH116, PTH120, PTH208

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from .mounts import mounts_of
from .threads import threads_to_measure
from .tree import LINUX, read_file

_EVERY = 1.0
_SLICE = 0.1
_ENTRIES = 200  # between reads of the clock
_BLOCK = 512  # of st_blocks
_LEAST = 1024  # of a file or folder, so that empty ones count too
_DEEPEST = 200
_DELETED = " (deleted)"
_OPENED = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _OPENED | os.O_NOFOLLOW


class DiskMeter:
    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._counting: Iterator[None] | None = None
        self._next = 0.0
        self._used = 0
        self._linked: set[int] = set()
        self._device = 0
        self._devices: set[int] = set()  # also that below an overlay, which some kernels tell of its mapped files
        self._turn = 0

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
        self._turn += 1
        # Other file systems are not counted, and one that the run serves itself (FUSE) must not be asked.
        mounts = {mount.point for mount in mounts_of("self")}
        try:
            top, closed = _open_folder(self._folder)
        except OSError:  # the run has removed it, or it does not exist yet
            return
        self._device = os.fstat(top).st_dev
        self._devices = {self._device, _device_of(os.path.dirname(self._folder))}
        self._add_deleted(pids)
        yield from self._count_in(top, self._folder, mounts, 1, closed)

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
                    inner, closed = _open_folder(entry.name, folder)
                except OSError:  # it has just been removed
                    continue
                if depth >= _DEEPEST:
                    os.close(inner)
                    self._used = self._limit + 1  # only an attempt to hide files nests so deeply
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
        processes, others = threads_to_measure(pids, self._turn)
        for thread in processes + others:
            self._add_links(f"/proc/{thread}/fd", found)
        for thread in processes:
            self._add_if_deleted(f"/proc/{thread}/exe", found)
            self._add_mapped(thread, found)
        self._used += sum(found.values())

    def _add_links(self, folder: str, found: dict[int, int]) -> None:
        try:
            names = os.listdir(folder)
        except OSError:  # it has ended, or belongs to another user
            return
        for name in names:
            self._add_if_deleted(f"{folder}/{name}", found)

    def _add_if_deleted(self, link: str, found: dict[int, int]) -> bool:
        """False if the kernel does not tell."""
        try:
            if os.readlink(link).endswith(_DELETED):
                file = os.stat(link)
                if file.st_dev in self._devices and file.st_nlink == 0:
                    found[file.st_ino] = file.st_blocks * _BLOCK
        except OSError:
            return False
        return True

    def _add_mapped(self, thread: int, found: dict[int, int]) -> None:
        """Only root sees how large a file is that is mapped and not open any more. Otherwise it is as large as its
        mappings reach."""
        try:
            lines = read_file(f"/proc/{thread}/maps").splitlines()
        except OSError:
            return
        seen = set(found)
        reach: dict[int, int] = {}
        for line in lines:
            if not line.endswith(_DELETED.encode()):
                continue
            span, _, offset, device, number, _ = line.split(None, 5)
            inode = int(number)
            if inode in seen:
                continue
            if inode not in reach and self._add_if_deleted(f"/proc/{thread}/map_files/{span.decode()}", found):
                seen.add(inode)
                continue
            major, minor = (int(part, 16) for part in device.split(b":"))
            if os.makedev(major, minor) in self._devices:
                start, end = (int(part, 16) for part in span.split(b"-"))
                reach[inode] = max(reach.get(inode, 0), int(offset, 16) + end - start)
        for inode, size in reach.items():
            found[inode] = max(found.get(inode, 0), size)


def _device_of(folder: str) -> int:
    try:
        return os.stat(folder).st_dev
    except OSError:
        return 0


def _open_folder(name: str, parent: int | None = None) -> tuple[int, int | None]:
    """A folder that the run has closed is opened while it is counted. Returns its permissions too, then. They are
    changed through a descriptor: by its name, it could be a link to another folder a moment later."""
    if not LINUX or os.getuid() == 0:
        return os.open(name, _FOLDER, dir_fd=parent), None
    place = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        path = f"/proc/self/fd/{place}"
        mode = stat.S_IMODE(os.fstat(place).st_mode)
        if mode & stat.S_IRWXU == stat.S_IRWXU:
            return os.open(path, _OPENED), None
        os.chmod(path, stat.S_IRWXU)
        return os.open(path, _OPENED), mode
    finally:
        os.close(place)
