"""The CPU seconds and the resident memory of processes, for those who watch a run. Limits are checked more exactly
(cpu_use.py, memory_use.py)."""

from __future__ import annotations

import os
import resource

from .tree import stat_of

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()
_TIMES = slice(11, 15)  # its own time, and that of the children it has waited for, in user and kernel mode
_RESIDENT = 21


def usage_of(pids: list[int]) -> tuple[float, int]:
    """What these processes have used together. Shared pages count more than once."""
    ticks = pages = 0
    for pid in pids:
        try:
            fields = stat_of(pid)
            ticks += sum(map(int, fields[_TIMES]))
            pages += int(fields[_RESIDENT])
        except (OSError, ValueError, IndexError):  # it has just ended
            continue
    return ticks / _TICKS, pages * _PAGE
