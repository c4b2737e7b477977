"""The CPU seconds of a process tree, also of its processes that have ended.

The kernel adds the time of a process to its parent when the parent waits for it. It forgets the time of a process whose
parent ignores SIGCHLD. A control group counts everything. Without one, the time that such processes had used at the
last look is kept, and what they used unseen is estimated: a process that runs at a look and has vanished without a
trace at the next one stands for the whole time between the two.
"""

from __future__ import annotations

import os
import resource
import signal
from typing import NamedTuple

from . import cgroup
from .tree import read_file, stat_of

_TICKS = os.sysconf("SC_CLK_TCK")
_CORES = os.cpu_count() or 1
_IGNORES_CHILDREN = 1 << (signal.SIGCHLD - 1)
_LITTLE = 0.02  # seconds: two ticks

Key = tuple[int, int]  # pid and start time


class _Seen(NamedTuple):
    """A process at a look: own time, and that of the children it has waited for."""

    parent: int
    runs: bool
    own: float
    waited: float

    @property
    def total(self) -> float:
        return self.own + self.waited


class CpuMeter:
    """Counts from now on what the processes below `root`, which is this process, use."""

    def __init__(self, root: int, pids: list[int], now: float, group: cgroup.Group | None) -> None:
        self._root = root
        self._group = group
        self._seen = _measure(pids)
        self._at = now
        self._reaped: dict[int, float] = {}
        self._lost = 0.0
        self._before = self._sum()
        self._group_before = 0.0 if group is None else cgroup.cpu_seconds(group)

    def reaped(self, pid: int, usage: resource.struct_rusage) -> None:
        """Note that this process has waited for a process of the tree."""
        self._reaped[pid] = usage.ru_utime + usage.ru_stime

    def measure(self, pids: list[int], now: float) -> float:
        """The seconds so far."""
        before, self._seen = self._seen, _measure(pids)
        self._lost += self._vanished(before, now - self._at)
        self._at = now
        self._reaped.clear()
        used = self._sum() - self._before
        if self._group is not None:
            used = max(used, cgroup.cpu_seconds(self._group) - self._group_before)
        return used

    def _sum(self) -> float:
        return sum(seen.total for seen in self._seen.values()) + cpu_of_the_reaped() + self._lost

    def _vanished(self, before: dict[Key, _Seen], interval: float) -> float:
        """The time of processes that have vanished and that no process has waited for."""
        parents = {pid: (pid, start) for pid, start in before}
        owed: dict[Key | None, float] = {}
        running: dict[Key | None, int] = {}
        for key, seen in before.items():
            if key not in self._seen and key[0] not in self._reaped:
                heir = self._heir(seen.parent, before, parents)
                owed[heir] = owed.get(heir, 0.0) + seen.total
                running[heir] = running.get(heir, 0) + seen.runs
        return sum(self._unpaid(heir, owed[heir], min(running[heir], _CORES) * interval, before) for heir in owed)

    def _heir(self, parent: int, before: dict[Key, _Seen], keys: dict[int, Key]) -> Key | None:
        """The nearest ancestor that is alive, or for which this process has waited. None: this process."""
        for _ in before:
            key = keys.get(parent)
            if key is None or key in self._seen or parent in self._reaped:
                return key
            parent = before[key].parent
        return None

    def _unpaid(self, heir: Key | None, owed: float, sampled: float, before: dict[Key, _Seen]) -> float:
        """What the heir has not got of the time that is owed to it."""
        if heir is None:
            return 0.0
        if heir in self._seen:
            gain = self._seen[heir].waited - before[heir].waited
        else:
            gain = self._reaped[heir[0]] - before[heir].total
        if gain <= _LITTLE or _ignores_children(heir[0]):
            owed = max(owed, sampled)
        return max(0.0, owed - gain)


def cpu_of_the_reaped() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _measure(pids: list[int]) -> dict[Key, _Seen]:
    found: dict[Key, _Seen] = {}
    for pid in pids:
        try:
            fields = stat_of(pid)
            own, waited = (sum(map(int, fields[at : at + 2])) / _TICKS for at in (11, 13))
            found[pid, int(fields[19])] = _Seen(int(fields[1]), fields[0] == b"R", own, waited)
        except (OSError, ValueError, IndexError):  # it has just ended
            continue
    return found


def _ignores_children(pid: int) -> bool:
    try:
        for line in read_file(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"SigIgn:"):
                return bool(int(line.split()[1], 16) & _IGNORES_CHILDREN)
    except (OSError, ValueError, IndexError):
        pass
    return False
