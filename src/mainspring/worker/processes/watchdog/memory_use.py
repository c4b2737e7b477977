"""The memory of a process tree, with shared memory that no process has mapped: memfd, /dev/shm, private tmpfs, and
System V segments.

Each shared object counts once. Without root, the kernel does not tell how large an object is that is mapped and not
open any more; then only its mapped pages count.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH115, PTH116, PTH208

from __future__ import annotations

import os
import resource
import time

from .mounts import Mount, mounts_of
from .threads import threads_to_measure
from .tree import read_file

_PAGE = resource.getpagesize()
_BLOCK = 512  # of st_blocks
_MOST_MOUNTS = 500  # of tmpfs; a tree with more hides memory
_TOO_MUCH = 1 << 62
_SHARED_MEMORY = "/dev/shm"
_IN_MEMORY = ("tmpfs", "ramfs")
_OBJECTS = (b"/memfd:", b"/dev/zero (deleted)", b"/SYSV")

Key = tuple[int, int]  # device and inode


class MemoryMeter:
    """Created when the tree is started: older segments are not its own. `isolated`: all that is in /dev/shm is."""

    def __init__(self, *, isolated: bool = False) -> None:
        self._since = int(time.time()) - 1
        self._pids: set[int] = set()  # all that were ever seen
        self._turn = 0
        ours = [mount for mount in mounts_of("self") if mount.kind in _IN_MEMORY]
        self._ours = {mount.device for mount in ours}
        self._own = {mount.device for mount in ours if isolated and mount.point == _SHARED_MEMORY}
        points = {_SHARED_MEMORY, *(mount.point for mount in ours if mount.point != "/")}
        self._prefixes = (*_OBJECTS, *(os.fsencode(f"{point}/") for point in points))

    def measure(self, pids: list[int], limit: int) -> int:
        """The bytes that these processes use. It is exact where it exceeds the limit."""
        self._pids.update(pids)
        self._turn += 1
        processes, others = threads_to_measure(pids, self._turn)
        shared = self._shared(processes, others)
        used = sum(map(_resident, processes)) + shared
        if used <= limit:  # an upper bound, because shared pages count more than once
            return used
        own = mapped = 0
        for process in processes:
            proportional, shmem = _proportional(process)
            own += proportional - shmem
            mapped += shmem
        return own + max(mapped, shared)

    def _shared(self, processes: list[int], others: list[int]) -> int:
        private = self._private_tmpfs(processes + others)
        found: dict[Key, int] = {}
        for thread in processes + others:
            self._add_open(thread, found)
        for process in processes:
            self._add_mapped(process, found)
        files = sum(size for (device, _), size in found.items() if device not in private)
        return files + sum(private.values()) + self._segments()

    def _add_open(self, thread: int, found: dict[Key, int]) -> None:
        folder = f"/proc/{thread}/fd"
        try:
            names = os.listdir(folder)
        except OSError:  # it has ended, or belongs to another user
            return
        for name in names:
            path = f"{folder}/{name}"
            try:
                if os.fsencode(os.readlink(path)).startswith(self._prefixes):
                    _add(path, found)
            except OSError:  # it was closed meanwhile
                continue

    def _add_mapped(self, pid: int, found: dict[Key, int]) -> None:
        try:
            lines = read_file(f"/proc/{pid}/maps").splitlines()
        except OSError:
            return
        for line in lines:
            span, _, _, device, inode, *path = line.split(None, 5)
            if path and path[0].startswith(self._prefixes):
                major, minor = (int(part, 16) for part in device.split(b":"))
                if (os.makedev(major, minor), int(inode)) not in found:
                    _add(f"/proc/{pid}/map_files/{span.decode()}", found)

    def _private_tmpfs(self, threads: list[int]) -> dict[int, int]:
        """The bytes in each tmpfs that only the tree sees, by device."""
        found = {device: _used(_SHARED_MEMORY, device) or 0 for device in self._own}
        views = {_view("self")}
        for thread in threads:
            view = _view(thread)
            if view in views:
                continue
            views.add(view)
            for device, mounts in _tmpfs(thread).items():
                if device in self._ours or device in found:
                    continue
                if len(found) >= _MOST_MOUNTS:
                    return {**found, device: _TOO_MUCH}
                found[device] = _size(thread, mounts)
        return found

    def _segments(self) -> int:
        """System V segments that the tree has created since it was started. They outlive their processes."""
        try:
            lines = read_file("/proc/sysvipc/shm").splitlines()[1:]
        except OSError:
            return 0
        used = 0
        for line in lines:
            fields = [int(field) for field in line.split()]
            creator, changed, resident = fields[4], fields[13], fields[14]
            if creator in self._pids and changed >= self._since:
                used += resident
        return used


def _add(path: str, found: dict[Key, int]) -> None:
    try:
        stat = os.stat(path)
    except OSError:
        return
    found[stat.st_dev, stat.st_ino] = stat.st_blocks * _BLOCK


def _used(path: str, device: int) -> int | None:
    """The bytes in the file system at this path. None if it is not this device, or does not count (without a size)."""
    try:
        if os.stat(path).st_dev != device:
            return None
        stat = os.statvfs(path)
    except OSError:
        return None
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize if stat.f_blocks else None


def _size(thread: int, mounts: list[Mount]) -> int:
    """The bytes in a tmpfs that a thread sees at these mount points. A file system that cannot be measured, for example
    because another file system is mounted on it, counts as large as it can become."""
    root = f"/proc/{thread}/root"
    for mount in mounts:
        if mount.point and (used := _used(root + mount.point, mount.device)) is not None:
            return used
    try:
        os.stat(root)
    except OSError:  # the thread has ended, or belongs to another user
        return 0
    size = next((option for option in mounts[0].options if option.startswith(b"size=")), b"size=0k")
    return int(size[5:].rstrip(b"k")) * 1024 or _TOO_MUCH


def _view(pid: int | str) -> tuple[str, str]:
    """Threads with the same view see the same mounts."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt"), os.readlink(f"/proc/{pid}/root")
    except OSError:
        return "", ""


def _tmpfs(pid: int) -> dict[int, list[Mount]]:
    """The mounts of tmpfs that a process sees, by device. Those at or below a FUSE mount have no mount point: a read
    would wait for the process that serves it."""
    mounts = mounts_of(pid)
    served = tuple(mount.point.rstrip("/") + "/" for mount in mounts if mount.kind.startswith("fuse"))
    found: dict[int, list[Mount]] = {}
    for mount in mounts:
        if mount.kind in _IN_MEMORY:
            if f"{mount.point}/".startswith(served):
                mount = mount._replace(point="")
            found.setdefault(mount.device, []).append(mount)
    return found


def _resident(pid: int) -> int:
    try:
        return int(read_file(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> tuple[int, int]:
    """The pages of a process, shared ones by their share; and how many of them are shared memory."""
    found: dict[bytes, int] = {}
    try:
        for line in read_file(f"/proc/{pid}/smaps_rollup").splitlines()[1:]:
            name, value, *_ = line.split()
            found[name] = int(value) * 1024
        return found[b"Pss:"], found.get(b"Pss_Shmem:", 0)
    except (OSError, KeyError, ValueError):  # it is gone, or belongs to another user
        return _resident(pid), 0
