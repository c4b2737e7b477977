"""Memory of processes, as the system counts it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from mainspring.worker.processes.watchdog.tree import descendants

_SHARE = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)
_COMMON = re.compile(r"^Pss_Shmem:\s+(\d+) kB$", re.MULTILINE)
_ALL = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


def memory_of_tree(pid: int) -> float:
    """Megabytes of a process and all below it. Files that several processes use are counted once, if the system tells
    their shares, and shared memory is left out: PostgreSQL uses more and more of its buffers. 0 without /proc."""
    total = 0.0
    for one in (pid, *descendants(pid)):
        with suppress(OSError):
            total += _kilobytes(Path(f"/proc/{one}")) / 1024
    return round(total, 1)


def _kilobytes(process: Path) -> int:
    with suppress(PermissionError, FileNotFoundError):
        text = (process / "smaps_rollup").read_text()
        share, common = _SHARE.search(text), _COMMON.search(text)
        if share is not None and common is not None:
            return int(share[1]) - int(common[1])
    found = _ALL.search((process / "status").read_text())
    return int(found[1]) if found else 0
