"""Limits of a process tree. rlimits apply to single processes; the supervisor checks the whole tree every 0.25 s."""

from __future__ import annotations

import math
import resource
import time
from typing import Any

from . import cgroup, threads
from .cpu_use import CpuMeter
from .cpu_use import cpu_of_the_reaped as cpu_of_the_reaped
from .disk_use import DiskMeter
from .memory_use import MemoryMeter
from .tree import LINUX, descendants

LOOK_EVERY = 0.25

# Address space is not memory: Go, Node and Java reserve far more than they use, and would not start with a limit on it.
# RLIMIT_DATA counts what a process can write to.
_MEMORY = resource.RLIMIT_DATA if LINUX else resource.RLIMIT_AS


def set_rlimits(limits: dict[str, Any]) -> None:
    """Called in the process that becomes the command; its children inherit the limits."""
    _lower(resource.RLIMIT_CORE, 0)
    if limits.get("memory"):
        _lower(_MEMORY, limits["memory"])
    if limits.get("files"):
        _lower(resource.RLIMIT_NOFILE, limits["files"])
    if limits.get("disk"):
        _lower(resource.RLIMIT_FSIZE, limits["disk"])  # one file at least cannot be larger between two looks
    if limits.get("cpu"):
        # One second later than the supervisor, which reports the breach more clearly.
        _lower(resource.RLIMIT_CPU, math.ceil(limits["cpu"]) + 1)


class Gauge:
    """Compares the process tree below `root`, which is this process, with `limits`. CPU seconds count from now on.
    `group` is the control group of the tree. `isolated`: /dev/shm belongs to it."""

    def __init__(
        self, root: int, limits: dict[str, Any], group: cgroup.Group | None = None, *, isolated: bool = False
    ) -> None:
        self._root = root
        self._group = group
        self._isolated = isolated
        self._peak = 0
        self.set(limits)

    @property
    def peak(self) -> int:
        """The most memory that was seen."""
        return max(self._peak, 0 if self._group is None else cgroup.peak_bytes(self._group))

    def set(self, limits: dict[str, Any]) -> None:
        self._limits = {name: limits[name] for name in ("memory", "cpu", "processes", "disk") if limits.get(name)}
        self.active = bool(self._limits)
        self._cpu: CpuMeter | None = None
        if "cpu" in self._limits:
            self._cpu = CpuMeter(self._root, descendants(self._root), time.monotonic(), self._group)
        self._memory = MemoryMeter(isolated=self._isolated) if "memory" in self._limits else None
        self._disk = DiskMeter(limits["folder"], limits["disk"]) if "disk" in self._limits else None

    def reaped(self, pid: int, usage: resource.struct_rusage) -> None:
        """This process has waited for a process of the tree."""
        if self._cpu is not None:
            self._cpu.reaped(pid, usage)

    def breach(self) -> str | None:
        """The limit that the tree exceeds now."""
        pids = descendants(self._root)
        now = time.monotonic()
        limits = self._limits
        if "processes" in limits and threads.count(pids) > limits["processes"]:
            return "processes"
        if self._cpu is not None and self._cpu.look(pids, now) > limits["cpu"]:
            return "cpu"
        if self._memory is not None:
            used = self._memory.look(pids, limits["memory"])
            self._peak = max(self._peak, used)
            # The kernel may have killed one process of the tree, and the others would go on.
            enforced = self._group is not None and cgroup.breach(self._group) == "memory"
            if used > limits["memory"] or enforced:
                return "memory"
        if self._disk is not None and self._disk.exceeded(pids, now):
            return "disk"
        return None


def peak_in(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1024 if LINUX else 1)


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))
