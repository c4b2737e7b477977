"""What all runs of a worker use together. The kernel enforces it in the control group of all runs, where there is one.
Otherwise the watchdog looks four times a second, and chooses the run that uses the most.

A look is two short files, unless the whole machine uses more than the runs may: then all their processes are counted.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable

from . import cgroup, threads
from .memory_use import MemoryMeter
from .tree import descendants, read_file
from .tree_use import usage_of

LOOK_EVERY = 0.25
_UNKNOWN = 1 << 62
NO_CAPS: cgroup.Caps = {"memory": None, "processes": None, "cpus": None, "run_processes": None}


def read_caps(words: list[bytes]) -> cgroup.Caps:
    """From the words of the line `caps`: memory, processes, cpus, run_processes. `-`: no cap."""
    memory, processes, cpus, run_processes = (None if word == b"-" else float(word) for word in words)
    return {
        "memory": None if memory is None else int(memory),
        "processes": None if processes is None else int(processes),
        "cpus": cpus,
        "run_processes": None if run_processes is None else int(run_processes),
    }


class AllRuns:
    """`owner` is the pid of the worker."""

    def __init__(self, owner: int, caps: cgroup.Caps = NO_CAPS) -> None:
        self._owner = owner
        self._caps = caps
        self._by_kernel = cgroup.open_all(owner, caps)
        # The kernel bounds processes too, but it does not say which run to end. Of memory it ends the largest user.
        self._processes: int | None = caps["processes"]
        self._memory: int | None = None if "memory" in self._by_kernel else caps["memory"]
        self.active = bool(self._memory or self._processes)
        self.look_at = 0.0

    def admit(self, supervisor: int) -> cgroup.Group | None:
        """In a new supervisor, whose pid outside of all namespaces this is: its commands are among those that are
        limited. Returns its control group."""
        cpus = self._caps["cpus"]
        if cpus and "cpus" not in self._by_kernel:
            # All below it can undo that. The cores that a control group allows cannot be exceeded.
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, cores[: max(1, math.ceil(cpus))])
        return cgroup.join(self._owner, supervisor, self._caps)

    def dismiss(self, supervisor: int) -> None:
        """A supervisor has ended."""
        cgroup.leave(self._owner, supervisor, self._caps)

    def measure(self, supervisors: Iterable[int]) -> tuple[int, str] | None:
        """The supervisor whose command must end, and why."""
        self.look_at = time.monotonic() + LOOK_EVERY
        too_many = self._processes is not None and _threads_of_machine() > self._processes
        in_use, shared = _memory_of_machine() if self._memory is not None else (0, 0)
        too_large = self._memory is not None and in_use > self._memory
        if not too_many and not too_large:
            return None
        trees = {supervisor: descendants(supervisor) for supervisor in supervisors}
        if too_many and (chosen := _largest(trees, threads.count, self._processes)) is not None:
            return chosen, "all-processes"
        if too_large:
            # The first sum is quick and too high: pages that processes share count for each of them.
            resident = sum(usage_of(pids)[1] for pids in trees.values())
            if resident + shared > (self._memory or 0):
                chosen = _largest(trees, lambda pids: MemoryMeter().measure(pids, 0), self._memory)
                return None if chosen is None else (chosen, "all-memory")
        return None


def _largest(trees: dict[int, list[int]], measure: Callable[[list[int]], int], most: int | None) -> int | None:
    """The supervisor of the tree that uses the most, if all together use more than `most`."""
    used = {supervisor: measure(pids) for supervisor, pids in trees.items() if pids}
    if most is None or sum(used.values()) <= most:
        return None
    return max(used, key=lambda supervisor: used[supervisor])


def _threads_of_machine() -> int:
    try:
        return int(read_file("/proc/loadavg").split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return _UNKNOWN


def _memory_of_machine() -> tuple[int, int]:
    """The bytes that are in use and cannot be given back, and those of them that are in shared memory."""
    found: dict[bytes, int] = {}
    try:
        for line in read_file("/proc/meminfo").splitlines():
            name, value, *_ = line.split()
            found[name] = int(value) * 1024
        return found[b"MemTotal:"] - found[b"MemAvailable:"], found[b"Shmem:"]
    except (OSError, ValueError, KeyError):
        return _UNKNOWN, _UNKNOWN
