"""Covers files and folders in the mount namespace of a supervisor, so that its commands neither see nor change them:
tokens, and the data folder of `mainspring up`.

A folder gets an empty, read-only file system, a file something empty. A process in the namespace cannot remove them: it
has no rights there, and in a user namespace of its own the kernel keeps these mounts together with those below.

A command may be allowed to rename a folder above. So the watchdog opens what is to be covered once, and each namespace
covers what was opened, whatever it is called by then. What has taken its place under the old name is covered too, and
so are other mounts that show the same files. The working folder of a command stays usable inside a covered folder.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH101, PTH102, PTH115, PTH118

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Iterator, Sequence

from .mounts import Mount, mounts_of
from .namespaces import mount, unmount

_READ_ONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 1 << 5, 1 << 12
_EMPTY = _NOSUID | _NODEV | _NOEXEC
_PASSABLE = 0o711
_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
_TRIES = 50  # to find a folder that is being renamed


def open_all(paths: Sequence[str]) -> list[int]:
    """Descriptors of those that exist. They give no access to the contents."""
    found = []
    for path in paths:
        try:
            found.append(os.open(path, _PLACE))
        except OSError:
            continue
    return found


class Covers:
    """The covers of one namespace. `paths` have no links in them, and need not exist: they are covered when they do.
    `opened` are from `open_all`."""

    def __init__(self, paths: Sequence[str], opened: Sequence[int] = ()) -> None:
        self._paths = paths
        self.opened = opened
        self._begun = False
        self._devices: set[int] = set()  # of the covers of folders
        self._places: list[str] = []  # where they were put
        self._seen: set[tuple[int, int]] = set()  # what is below: devices and inodes
        self._shows_folder = False
        self._table = -1

    def renew(self, folder: str) -> None:
        """Cover everything for a command with this working folder. Call it before each command: something may have been
        replaced or mounted meanwhile. Raises OSError if it cannot be done."""
        if not self._paths:
            return
        if self._shows_folder or any(_within(folder, place) for place in self._places):
            self._uncover()
        if not self._begun:
            for descriptor in self.opened:
                self._cover_opened(descriptor, folder)
            self._begun = True
        for path in self._paths:
            self._cover(path, folder)
        if self._mounts_have_changed():
            for path in self._paths:
                for other in list(self._same_files(path)):
                    self._cover(other, folder)
            self._mounts_have_changed()  # by what was just covered

    def _cover_opened(self, descriptor: int, folder: str) -> None:
        wanted = os.fstat(descriptor)
        for _ in range(_TRIES):
            place = os.readlink(f"/proc/self/fd/{descriptor}")
            if os.fstat(descriptor).st_nlink == 0 or self._cover(place, folder, wanted):
                return
        raise OSError(errno.EBUSY, "what commands must not see is being moved", place)

    def _cover(self, place: str, folder: str, wanted: os.stat_result | None = None) -> bool:
        """False if something else than `wanted` is there."""
        try:
            there = os.open(place, _PLACE)
        except PermissionError:  # its commands may not go there either
            return True
        except OSError:
            return wanted is None
        try:
            found = os.fstat(there)
            if wanted is not None and _identity(found) != _identity(wanted):
                return False
            if stat.S_ISREG(found.st_mode):
                mount(os.devnull, f"/proc/self/fd/{there}", None, _BIND)
            elif stat.S_ISDIR(found.st_mode) and found.st_dev not in self._devices:
                if _within(folder, place):
                    self._cover_around(place, folder)
                else:
                    mount("tmpfs", f"/proc/self/fd/{there}", "tmpfs", _EMPTY | _READ_ONLY, "mode=0,size=4k")
                    self._devices.add(mounts_of("self")[-1].device)
                self._places.append(place)
                self._seen.add(_identity(found))
        finally:
            os.close(there)
        return True

    def _cover_around(self, place: str, folder: str) -> None:
        """Cover a folder that the working folder is in. The way to it can be passed, and shows nothing else."""
        kept = os.open(folder, _PLACE | os.O_DIRECTORY)
        try:
            mount("tmpfs", place, "tmpfs", _EMPTY, f"mode={_PASSABLE:o},size=64k")
            self._devices.add(mounts_of("self")[-1].device)
            way = place
            for name in os.path.relpath(folder, place).split("/"):
                way = os.path.join(way, name)
                os.mkdir(way, _PASSABLE)
                os.chmod(way, _PASSABLE)
            mount(f"/proc/self/fd/{kept}", folder, None, _BIND)
            mount("none", place, None, _REMOUNT | _BIND | _EMPTY | _READ_ONLY)
        finally:
            os.close(kept)
        self._shows_folder = True

    def _uncover(self) -> None:
        """Remove the covers. This is done only while no command runs."""
        for place in reversed(self._places):
            try:
                covered = os.lstat(place).st_dev in self._devices
            except OSError:  # it was removed
                continue
            if covered:
                unmount(place)
        self._places.clear()
        self._begun = self._shows_folder = False
        if self._table >= 0:
            os.close(self._table)
            self._table = -1

    def _same_files(self, path: str) -> Iterator[str]:
        """The places where other mounts show what is at `path`, or a part of it."""
        mounts = [each for each in mounts_of("self") if not any(_within(each.point, place) for place in self._places)]
        home: Mount | None = None
        for each in mounts:  # the last of several mounts on one place hides the others
            if _within(path, each.point) and (home is None or len(each.point) >= len(home.point)):
                home = each
        if home is None:
            return
        inside = _moved(path, home.point, home.root)
        for each in mounts:
            if each.device != home.device or each is home:
                continue
            try:
                if _within(inside, each.root):
                    other = _moved(inside, each.root, each.point)
                    if _identity(os.lstat(other)) in self._seen:  # nothing else was mounted there
                        yield other
                elif _within(each.root, inside) and os.lstat(each.point).st_dev in {device for device, _ in self._seen}:
                    yield each.point
            except OSError:  # no process can go there, or it is gone
                continue

    def _mounts_have_changed(self) -> bool:
        """Since the last call. The kernel reports it once for each open file."""
        if self._table < 0:
            self._table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            return True
        poll = select.poll()
        poll.register(self._table, select.POLLPRI)
        return bool(poll.poll(0))


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _moved(path: str, old: str, new: str) -> str:
    """The path below `new` instead of `old`."""
    rest = path[len(old.rstrip("/")) :]
    return (new.rstrip("/") + rest) or "/"
