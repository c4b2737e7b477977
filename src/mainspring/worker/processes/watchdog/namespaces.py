"""A supervisor with a pid namespace of its own: it is the first process in it, and its commands are the others.

A process in the namespace cannot name a process outside, so a command cannot signal its watchdog, the worker or another
run. It cannot kill or stop its supervisor either: the kernel does not deliver these signals to the first process of a
namespace from inside. If the supervisor dies, the kernel kills everything in the namespace, and the supervisor can be
reaped only when all of it is gone.

Root makes the namespace directly. Another user needs a user namespace for it, with only its own number in it: setuid
programs such as sudo have no effect there. Each command gets a new /dev/shm and new System V segments, because these
would outlive it.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH112, PTH115, PTH123

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import struct
from typing import Any, NoReturn

from . import tree

_CLONE3 = 435  # the same number on all architectures
_NEW_MOUNTS, _NEW_IPC, _NEW_USERS, _NEW_PIDS = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_CLONE_ARGUMENTS = struct.Struct("=8Q")  # flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
_NOSUID, _NODEV, _NOEXEC, _RECURSIVE, _SLAVE, _DETACH = 2, 4, 8, 1 << 14, 1 << 19, 2
_SHARED_MEMORY = "/dev/shm"
_KILLED = 255  # an exit code that is no error number
_REASONS = {
    errno.EPERM: "the kernel or the container does not permit them",
    errno.ENOSPC: "sysctl user.max_user_namespaces or user.max_pid_namespaces does not permit them",
}

# A call through PyDLL keeps the interpreter's lock, as os.fork does.
_libc = ctypes.PyDLL(None, use_errno=True) if tree.LINUX else None


def fork_first_process() -> int:
    """Like os.fork, but the child is the first process of a new pid namespace. It must call `enter`."""
    flags = _NEW_PIDS | _NEW_MOUNTS | _NEW_IPC
    if os.getuid() != 0:
        flags |= _NEW_USERS
    arguments = ctypes.create_string_buffer(_CLONE_ARGUMENTS.pack(flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = -1 if _libc is None else _libc.syscall(_CLONE3, arguments, _CLONE_ARGUMENTS.size)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    number = ctypes.get_errno() if _libc is not None else errno.ENOSYS
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


def enter(parent: int, user: int, group: int) -> int:
    """Complete the namespace, in its first process, and die with the parent. `parent` is its pidfd, `user` and `group`
    are its numbers, which this process cannot read any more. Returns the pid of this process outside."""
    if user != 0:
        _map(user, group)
    outside = int(os.readlink("/proc/self"))  # still that of the outer namespace
    mount("none", "/", None, _RECURSIVE | _SLAVE)
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    if os.path.isdir(_SHARED_MEMORY):
        mount("tmpfs", _SHARED_MEMORY, "tmpfs", _NOSUID | _NODEV, "mode=1777")
    tree.signal_at_parents_death(signal.SIGKILL)
    if select.select([parent], [], [], 0)[0]:
        os._exit(1)
    return outside


def renew_shared_memory(limits: dict[str, Any], before: int | None) -> int | None:
    """Give the next command an empty /dev/shm, as large as its memory limit or half of the machine's memory. `before`
    and the result are the size."""
    _check(_libc is not None and _libc.unshare(_NEW_IPC), "unshare")
    size: int | None = limits.get("memory")
    if not os.path.isdir(_SHARED_MEMORY):
        return size
    state = os.statvfs(_SHARED_MEMORY)
    untouched = state.f_bfree == state.f_blocks and state.f_files - state.f_ffree <= 1
    if size != before or not untouched:
        unmount(_SHARED_MEMORY)
        options = "mode=1777" if size is None else f"mode=1777,size={size}"
        mount("tmpfs", _SHARED_MEMORY, "tmpfs", _NOSUID | _NODEV, options)
    return size


def signal_everything(number: int) -> None:
    """Signal all other processes of the namespace, in one step: none can fork in between. For its first process."""
    if os.getpid() != 1:
        raise RuntimeError("only the first process of a namespace may signal all processes")
    try:
        os.kill(-1, number)
    except ProcessLookupError:
        return


def why_not() -> str | None:
    """Why a pid namespace cannot be had here; None if it can. It is tried in a child, because `clone3` does not free
    the locks that other threads of this process may hold, as `os.fork` does."""
    if _libc is None or not hasattr(os, "pidfd_open"):
        return "it needs Linux"
    child = os.fork()
    if child == 0:
        _try_first_process()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == 0 else _in_words(code)


def _try_first_process() -> NoReturn:
    code = errno.EIO
    try:
        parent, user, group = os.pidfd_open(os.getpid()), os.getuid(), os.getgid()
        pid = fork_first_process()
        if pid == 0:
            _try(parent, user, group)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except OSError as error:
        code = error.errno or errno.EIO
    finally:
        os._exit(code if code >= 0 else _KILLED)


def _in_words(number: int) -> str:
    if number < 0 or number == _KILLED:
        return "its first process was killed"
    return _REASONS.get(number) or os.strerror(number)


def _try(parent: int, user: int, group: int) -> None:
    code = errno.EIO
    try:
        enter(parent, user, group)
        code = 0
    except OSError as error:
        code = error.errno or errno.EIO
    finally:
        os._exit(code)


def _map(user: int, group: int) -> None:
    """Map the user and group to those outside. No others exist in the namespace."""
    tree.show_memory()  # or these files would belong to root
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, options)]
    failed = _libc is None or _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _check(failed, target)


def unmount(place: str) -> None:
    _check(_libc is not None and _libc.umount2(os.fsencode(place), _DETACH), place)


def _check(failed: bool | int, what: str) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
