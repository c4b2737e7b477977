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

from .tree import read_file

_PAGE = resource.getpagesize()
_BLOCK = 512  # of st_blocks
_MOST_MOUNTS = 100
_SHARED_MEMORY = b"/dev/shm"
_OBJECTS = (b"/memfd:", b"/dev/zero (deleted)", b"/SYSV")

Key = tuple[int, int]  # device and inode


class MemoryMeter:
    """Created when the tree is started: older segments are not its own. `isolated`: all that is in /dev/shm is."""

    def __init__(self, *, isolated: bool = False) -> None:
        self._since = int(time.time()) - 1
        self._pids: set[int] = set()  # all that were ever seen
        self._ours = _tmpfs_mounts("self")
        self._own = {device for device, mount in self._ours.items() if isolated and mount == _SHARED_MEMORY}
        self._prefixes = (
            *_OBJECTS,
            _SHARED_MEMORY + b"/",
            *(mount + b"/" for mount in self._ours.values() if mount != b"/"),
        )

    def look(self, pids: list[int], limit: int) -> int:
        """The bytes that these processes use. It is exact where it exceeds the limit."""
        self._pids.update(pids)
        shared = self._shared(pids)
        used = sum(map(_resident, pids)) + shared
        if used <= limit:  # an upper bound, because shared pages count more than once
            return used
        own = mapped = 0
        for pid in pids:
            proportional, shmem = _proportional(pid)
            own += proportional - shmem
            mapped += shmem
        return own + max(mapped, shared)

    def _shared(self, pids: list[int]) -> int:
        private = self._private_tmpfs(pids)
        found: dict[Key, int] = {}
        for pid in pids:
            self._add_open(pid, found)
            self._add_mapped(pid, found)
        files = sum(size for (device, _), size in found.items() if device not in private)
        return files + sum(private.values()) + self._segments()

    def _add_open(self, pid: int, found: dict[Key, int]) -> None:
        folder = f"/proc/{pid}/fd"
        try:
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                if os.readlink(path).encode(errors="surrogateescape").startswith(self._prefixes):
                    _add(path, found)
        except OSError:  # it has ended, or belongs to another user
            return

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

    def _private_tmpfs(self, pids: list[int]) -> dict[int, int]:
        """The bytes in each tmpfs that only the tree sees, by device."""
        found = {device: _used(_SHARED_MEMORY.decode(), device) for device in self._own}
        namespaces = {_namespace("self")}
        for pid in pids:
            namespace = _namespace(pid)
            if namespace in namespaces:
                continue
            namespaces.add(namespace)
            for device, mount in list(_tmpfs_mounts(pid).items())[:_MOST_MOUNTS]:
                if device not in self._ours and device not in found:
                    found[device] = _used(f"/proc/{pid}/root{mount.decode(errors='surrogateescape')}", device)
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


def _used(path: str, device: int) -> int:
    try:
        if os.stat(path).st_dev != device:
            return 0
        stat = os.statvfs(path)
    except OSError:
        return 0
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def _namespace(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _tmpfs_mounts(pid: int | str) -> dict[int, bytes]:
    """The mount points of tmpfs that a process sees, by device. Not those below a FUSE mount: to look there would wait
    for whoever serves it."""
    try:
        lines = read_file(f"/proc/{pid}/mountinfo").splitlines()
    except OSError:
        return {}
    found: dict[int, bytes] = {}
    served: list[bytes] = []
    for line in lines:
        before, _, after = line.partition(b" - ")
        mount, kind = before.split()[4], after.split()[0]
        if kind == b"tmpfs" and not any(mount.startswith(above) for above in served):
            major, minor = (int(part) for part in before.split()[2].split(b":"))
            found[os.makedev(major, minor)] = mount
        elif kind.startswith(b"fuse"):
            served.append(mount.rstrip(b"/") + b"/")
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
