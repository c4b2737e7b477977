"""Ends child processes with their parent, even if the parent is killed with -9."""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from signal import SIGKILL, Signals

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(signal_number: Signals, parent: int | None = None) -> Callable[[], None] | None:
    """A `preexec_fn` that lets the kernel send this signal to the child when its parent ends. Linux only, else None.

    subprocess changes user and group before it calls `preexec_fn`. This order is necessary, because a change of
    credentials clears the setting. The "parent" is the thread that starts the child, not the process. Start children
    from the main thread. A child may call it by itself, with the pid of its `parent`.
    """
    if _libc is None:
        return None
    prctl = _libc.prctl
    expected = os.getpid() if parent is None else parent

    def ask_the_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
        if os.getppid() != expected:  # the parent ended before the setting was made
            os._exit(1)

    return ask_the_kernel


def supervisor_pidfd() -> int | None:
    """A pidfd of the parent, if that has started this process with `die_with_parent`. It is readable when the parent
    has ended."""
    number = ctypes.c_int(0)
    if _libc is None or not hasattr(os, "pidfd_open") or _libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0):
        return None
    try:
        return os.pidfd_open(os.getppid()) if number.value else None
    except OSError:  # it has just ended, and the signal is on its way
        return None


def kill_after_supervisor(seconds: float) -> None:
    """Kill this process when its supervisor has been gone for so long. The signal of `die_with_parent` asks it to end
    before; a process that hangs does not."""
    supervisor = supervisor_pidfd()
    if supervisor is None:
        return

    def watch() -> None:
        select.select([supervisor], [], [])
        time.sleep(seconds)
        os.kill(os.getpid(), SIGKILL)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()
