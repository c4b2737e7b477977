"""Makes the working folder of a command the root of a file system of its own, an overlay on the folder.

A list of mounts (/proc/self/mountinfo) names the folder that a mount shows, as its file system calls it. In a sandbox
that would be the path of the working folder on the machine. Here it is `/`. Where the kernel does not allow an overlay
on the file system of the folder, nothing happens.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH102, PTH106, PTH108, PTH118, PTH120, PTH208

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from .namespaces import mount, unmount

_NOSUID, _NODEV = 2, 4
_LOWER, _UPPER, _WORK = "l", "u", "w"
# Relative names, because they are listed too. Without `volatile` the end of an overlay flushes the whole disk.
_OPTIONS = f"lowerdir={_LOWER},upperdir={_UPPER},workdir={_WORK},volatile"
_MARK = os.path.join(_WORK, "work", "incompat", "volatile", "dirty")  # which the kernel makes then
_PRIVATE = 0o700


def give(folder: str, account: dict[str, Any] | None) -> bool:
    """Call it in a mount namespace of our own. Returns whether there is an overlay now."""
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        if os.listdir():
            return False  # not a new folder
        for name in (_LOWER, _UPPER, _WORK):
            os.mkdir(name, _PRIVATE)
        if account is not None:
            os.chown(_UPPER, account["uid"], account["gid"])
        mount("overlay", folder, "overlay", _NOSUID | _NODEV, _OPTIONS + (",userxattr" if os.getuid() != 0 else ""))
    except OSError:
        _clear(folder)
        return False
    finally:
        os.fchdir(before)
        os.close(before)
    return True


def take(folder: str) -> None:
    """Remove the overlay after the last process has ended. What the command wrote is below the folder, and is removed
    by the worker."""
    with suppress(OSError):  # another process has removed the folder
        unmount(folder)
    _clear(folder)


def _clear(folder: str) -> None:
    """Leave the folder empty if the command has left nothing, so that the worker can remove it at once."""
    with suppress(OSError):
        os.unlink(f"{folder}/{_MARK}")
    place = os.path.dirname(_MARK)
    for name in (
        place,
        os.path.dirname(place),
        os.path.join(_WORK, "work"),
        os.path.join(_WORK, "index"),
        _WORK,
        _LOWER,
        _UPPER,
    ):
        with suppress(OSError):  # it is not there, or not empty
            os.rmdir(f"{folder}/{name}")
