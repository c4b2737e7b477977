"""Memory of processes, as the system counts it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from mainspring.worker.processes.watchdog.tree import descendants

_SHARE = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)
_ALL = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


def memory_of_tree(pid: int) -> float:
    """Megabytes of a process and all below it. Memory that several processes share is counted once, if the system tells
    their shares. 0 on systems without /proc."""
    total = 0.0
    for one in (pid, *descendants(pid)):
        with suppress(OSError):
            total += _kilobytes(Path(f"/proc/{one}")) / 1024
    return round(total, 1)


def _kilobytes(process: Path) -> int:
    for name, pattern in (("smaps_rollup", _SHARE), ("status", _ALL)):
        with suppress(PermissionError):
            if found := pattern.search((process / name).read_text()):
                return int(found[1])
    return 0
