"""Ends child processes with their parent, even if the parent is killed with -9."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from signal import Signals

_PR_SET_PDEATHSIG = 1
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
