"""The processes below a process: find, signal, kill. Linux lists them in /proc. On other systems none are found, and a
supervisor only has the process group of its command."""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH110, PTH112, PTH208

from __future__ import annotations

import ctypes
import os
import signal
import sys

LINUX = sys.platform == "linux"

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_PTRACE_DETACH = 17
_CHUNK = 1 << 16
# A tree that still grows after this many rounds of SIGSTOP is killed as far as it is known, and then checked again.
_MOST_ROUNDS = 30

_libc = ctypes.CDLL(None, use_errno=True) if LINUX else None


def become_subreaper() -> bool:
    """From now on orphans below this process become its children. False if the system does not support that."""
    return _libc is not None and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def signal_at_parents_death(number: int) -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def hide_memory() -> None:
    """Other processes of the same user can neither read the memory of this process and of those that it forks, nor
    trace them, nor open or copy their descriptors. exec ends this for a program that a process executes."""
    if _libc is not None:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def show_memory() -> None:
    """The opposite, for this process."""
    if _libc is not None:
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def stop_tracing(pid: int) -> None:
    """A child can make its parent its tracer without asking, and then stops at each signal. Let it go on."""
    if _libc is not None:
        _libc.ptrace(_PTRACE_DETACH, pid, None, None)


def forbid_new_privileges() -> None:
    """setuid programs and file capabilities have no effect for this process and all below it, for good."""
    if _libc is not None and _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")


def leave_session_keyring() -> None:
    """This process and all below it get a new, empty session keyring. With the old one they could use the keys of the
    session in which the worker was started, even as another user. Where keys are not available, nothing happens."""
    number = _KEYCTL.get(os.uname().machine)
    if _libc is not None and number is not None and sys.maxsize > 1 << 32:
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_SESSION_KEYRING), None, None, None, None)


def children_of(pid: int) -> list[int]:
    """The children of all its threads."""
    found: list[int] = []
    if LINUX:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                found += map(int, read_file(f"/proc/{pid}/task/{thread}/children").split())
        except OSError:  # it has just ended, and its children have another parent
            return found
    return found


def descendants(root: int) -> list[int]:
    """All processes below `root`, parents before their children."""
    if not _HAS_CHILDREN_FILES:
        return _descendants_by_parent(root)
    found: list[int] = []
    level = children_of(root)
    while level:
        found += level
        level = [child for pid in level for child in children_of(pid)]
    return found


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # it is gone, or runs as another user now
            continue


def kill_below(root: int) -> None:
    """Send SIGKILL to all processes below `root`. They are stopped first, until no new ones appear: a stopped process
    does not fork, so a tree that multiplies cannot escape."""
    stopped: set[int] = set()
    try:
        for _ in range(_MOST_ROUNDS):
            fresh = [pid for pid in descendants(root) if pid not in stopped]
            if not fresh:
                break
            signal_all(fresh, signal.SIGSTOP)
            stopped.update(fresh)
    finally:
        signal_all(list(stopped), signal.SIGKILL)


def close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the descriptor of the listing itself
                continue


def read_file(path: str) -> bytes:
    """The contents of a file in /proc; OSError if the process is gone. The kernel gives about a page at a time."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        chunks = []
        while chunk := os.read(descriptor, _CHUNK):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def stat_of(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name, which may hold anything: [0] is the state, [1] the parent."""
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _descendants_by_parent(root: int) -> list[int]:
    """For kernels without the `children` files: read the parent of every process."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if LINUX else ():
        if name.isdigit():
            try:
                below.setdefault(int(stat_of(int(name))[1]), []).append(int(name))
            except OSError:
                continue
    found: list[int] = []
    level = below.get(root, [])
    while level:
        found += level
        level = [child for pid in level for child in below.get(pid, [])]
    return found


_HAS_CHILDREN_FILES = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
