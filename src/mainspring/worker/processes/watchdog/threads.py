"""The threads of a process tree, as far as they matter to its limits.

When the first thread of a process ends, its files in /proc are empty, although the process lives. And each thread may
have its own table of open files, and its own mounts. /proc/TID exists for every thread, though it is not listed.
"""

# pathlib would cost the watchdog 10 ms of its start.
# ruff: noqa: PTH208

from __future__ import annotations

import ctypes
import os

from .tree import LINUX, read_file, stat_of

_MOST = 1000  # other threads that one look compares; of more, each look takes the next ones
_TRIES = 20  # to find a thread that does not end meanwhile
_STATE, _THREADS = 0, 17  # fields of /proc/PID/stat
_ENDED = (b"Z", b"X")
_UNKNOWN = 1 << 31
_KCMP = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine)
_FILES, _FOLDERS = 2, 3  # what kcmp compares; a thread with its own mounts has its own root and working folder

_libc = ctypes.CDLL(None) if LINUX else None


def possible() -> int:
    """How many processes and threads this machine can have."""
    try:
        return min(int(read_file(f"/proc/sys/kernel/{name}")) for name in ("pid_max", "threads-max"))
    except (OSError, ValueError):
        return _UNKNOWN


def count(pids: list[int]) -> int:
    """All threads of these processes, as the pids controller of a control group counts them."""
    return sum(max(1, _state(pid)[1]) for pid in pids)


def threads_to_measure(pids: list[int], turn: int) -> tuple[list[int], list[int]]:
    """A living thread of each process that has one, and other threads whose open files or mounts are their own.
    `turn` is the number of the look."""
    first: list[int] = []
    others: list[tuple[int, int]] = []
    for pid in pids:
        state, threads = _state(pid)
        if threads == 1 and state not in _ENDED:
            first.append(pid)
        elif threads > 1:
            living, more = _living_thread(pid)
            first += living
            others += ((living[0], thread) for thread in more)
    if len(others) > _MOST:
        start = turn * _MOST % len(others)
        others = (others[start:] + others[:start])[:_MOST]
    return first, [thread for base, thread in others if not _same(base, thread)]


def _state(pid: int) -> tuple[bytes, int]:
    try:
        fields = stat_of(pid)
        return fields[_STATE], int(fields[_THREADS])
    except (OSError, IndexError, ValueError):  # it has just ended
        return b"X", 0


def _living_thread(pid: int) -> tuple[list[int], list[int]]:
    """One thread, or none, and all others. Threads that replace each other all the time are caught by chance."""
    for _ in range(_TRIES):
        try:
            threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            break
        for at, thread in enumerate(threads):
            if _has_memory(thread):
                return [thread], threads[:at] + threads[at + 1 :]
    return [], []


def _has_memory(thread: int) -> bool:
    try:
        return read_file(f"/proc/{thread}/statm").split()[0] != b"0"
    except (OSError, IndexError):
        return False


def _same(one: int, other: int) -> bool:
    """Whether two threads share their open files and mounts. False if the kernel does not tell."""
    if _libc is None or _KCMP is None:
        return False
    return all(_libc.syscall(_KCMP, one, other, kind, 0, 0) == 0 for kind in (_FILES, _FOLDERS))
