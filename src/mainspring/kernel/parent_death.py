"""Children that do not outlive us, even when we are killed with -9."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from signal import Signals

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(signal_number: Signals) -> Callable[[], None] | None:
    """A `preexec_fn`: the kernel sends the child this signal when the thread that started it ends (Linux; else None).

    subprocess changes user and group before it calls `preexec_fn`; the other order would not work, because a change
    of credentials clears the setting. "Parent" is the starting thread, not the process: start children from a thread
    that lives as long as they should, which means the main one.
    """
    if _libc is None:
        return None
    prctl = _libc.prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask_the_kernel
