"""What a run has left behind in its interpreter, and what it has changed for good. Processes are never missed; threads
and descriptors are counted."""

from __future__ import annotations

import ctypes
import os
import sys
import threading

_PR_SET_CHILD_SUBREAPER = 36
_MANY_DESCRIPTORS = 64


def adopt_orphans() -> None:
    """Have the kernel give us what our children leave behind, setsid and double fork or not: then "we have no children"
    means that nothing is left. When we die it all goes to our supervisor in the same way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class LeftoverCheck:
    """Made once, when the application is loaded: what is there then belongs to it."""

    def __init__(self) -> None:
        self._threads = _lasting_threads()
        self._descriptor = _lowest_free_descriptor()
        self._output = _output()
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)

    def threads(self) -> set[threading.Thread]:
        """Threads that would hold up the end of a program. Daemon threads are how libraries work in the background."""
        return _lasting_threads() - self._threads if threading.active_count() > 1 else set()

    def found(self) -> str | None:
        """Why this interpreter must not run another task; None when it is as good as new."""
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
    """Ended ones are reaped: nobody asks for them any more."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _output() -> list[tuple[int, int]]:
    """What stdout and stderr are; OSError when one is closed."""
    return [(found.st_dev, found.st_ino) for found in map(os.fstat, (1, 2))]


def _lowest_free_descriptor() -> int:
    number = os.dup(0)
    os.close(number)
    return number
