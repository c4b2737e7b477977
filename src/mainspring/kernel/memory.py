"""Gives memory back to the system. The allocator keeps what a large request has used, for the next one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _found() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # only glibc has it
        return None
    return trim


_malloc_trim = _found()


def give_back_memory() -> None:
    """Takes some milliseconds, without the interpreter: call it in a thread."""
    if _malloc_trim is not None:
        _malloc_trim(0)
