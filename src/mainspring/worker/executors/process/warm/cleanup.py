"""Checks what a run has left behind or changed in its interpreter. Processes are never missed; threads and descriptors
are counted."""

from __future__ import annotations

import ctypes
import os
import sys
import threading

_PR_SET_CHILD_SUBREAPER = 36
_MANY_DESCRIPTORS = 64


def adopt_orphans() -> None:
    """Become the subreaper of all processes that a run starts, even after setsid or a double fork. Then no children
    means that no process is left. When this process dies, its supervisor becomes their parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class LeftoverCheck:
    """Created once, after the application is loaded. What exists then belongs to the application."""

    def __init__(self) -> None:
        self._threads = _lasting_threads()
        self._descriptor = _lowest_free_descriptor()
        self._output = _output()
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)

    def threads(self) -> set[threading.Thread]:
        """Threads that would delay the end of a program. Daemon threads do not count: libraries use them."""
        return _lasting_threads() - self._threads if threading.active_count() > 1 else set()

    def found(self) -> str | None:
        """Why this interpreter must not run another task; None if it is clean."""
        if _has_children():
            return "processes are left"
        if self.threads():
            return "threads are left"
        if _lowest_free_descriptor() > self._descriptor + _MANY_DESCRIPTORS:
            return "open files are left"
        if _output() != self._output:
            return "its output goes elsewhere"
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            return "its priority was changed"
        return None


def _lasting_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.daemon}


def _has_children() -> bool:
    """Whether there are children. Those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _output() -> list[tuple[int, int]]:
    """The files behind stdout and stderr; OSError if one is closed."""
    return [(found.st_dev, found.st_ino) for found in map(os.fstat, (1, 2))]


def _lowest_free_descriptor() -> int:
    number = os.dup(0)
    os.close(number)
    return number
