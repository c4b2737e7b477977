"""CPU time of processes, as the system counts it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mainspring.worker.processes.watchdog.tree import descendants

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU time that a process has used, with those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def cpu_seconds_of_tree(pid: int) -> float:
    """CPU time of a process and all below it."""
    total = 0.0
    for one in (pid, *descendants(pid)):
        with suppress(FileNotFoundError, ProcessLookupError):
            total += cpu_seconds(one)
    return total
