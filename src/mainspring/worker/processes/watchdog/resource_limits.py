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
_CALM_LOOK = 1.0
_FEW = 8  # a tree has few processes if it has at most this part of what it may have
# A tree that the kernel refuses another process in this many looks does not stop by itself.
_MOST_REFUSED = 4
_SLACK = 16
_SHARE = 0.8  # of the process ids of the machine, for one user

# Address space is not memory: Go, Node and Java reserve far more than they use, and would not start with a limit on it.
# RLIMIT_DATA counts what a process can write to.
_MEMORY = resource.RLIMIT_DATA if LINUX else resource.RLIMIT_AS


def set_rlimits(limits: dict[str, Any], *, own_users: bool = False) -> None:
    """Called in the process that becomes the command; its children inherit the limits. `own_users`: the kernel counts
    the processes of this run only. Otherwise it counts all processes of its user."""
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

    if limits.get("processes"):
        # The supervisor ends the run a little earlier, and says why. root is not limited by this.
        _lower(resource.RLIMIT_NPROC, limits["processes"] + _SLACK if own_users else int(_SHARE * threads.possible()))


class ResourceGauge:
    """Compares the process tree below `root`, which is this process, with `limits`. CPU seconds count from now on.
    `group` is the control group of the tree. `isolated`: /dev/shm belongs to it. `bounded`: the kernel lets it have
    hardly more processes than it may, so that a look now and then is enough while it has few."""

    def __init__(
        self,
        root: int,
        limits: dict[str, Any],
        group: cgroup.Group | None = None,
        *,
        isolated: bool = False,
        bounded: bool = False,
    ) -> None:
        self._root = root
        self._bounded = bounded
        self._refused = cgroup.refused(group)
        self._looks_refused = 0
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
        self.look_in = LOOK_EVERY  # seconds until the next look
        self._cpu: CpuMeter | None = None
        if "cpu" in self._limits:
            self._cpu = CpuMeter(self._root, descendants(self._root), time.monotonic(), self._group)
        self._memory = MemoryMeter(isolated=self._isolated) if "memory" in self._limits else None
        self._disk = DiskMeter(limits["folder"], limits["disk"]) if "disk" in self._limits else None

    def reaped(self, pid: int, usage: resource.struct_rusage) -> None:
        """Note that this process has waited for a process of the tree."""
        if self._cpu is not None:
            self._cpu.reaped(pid, usage)

    def breach(self) -> str | None:
        """The limit that the tree exceeds now."""
        pids = descendants(self._root)
        now = time.monotonic()
        limits = self._limits
        if "processes" in limits and self._has_too_many(pids, limits["processes"]):
            return "processes"
        if self._cpu is not None and self._cpu.measure(pids, now) > limits["cpu"]:
            return "cpu"
        if self._memory is not None:
            used = self._memory.measure(pids, limits["memory"])
            self._peak = max(self._peak, used)
            # The kernel may have killed one process of the tree, and the others would go on.
            enforced = None if self._group is None else cgroup.breach(self._group, limits)
            if used > limits["memory"] or enforced == "memory":
                return "memory"
            if enforced == "all-memory":
                return enforced
        if self._disk is not None and self._disk.exceeded(pids, now):
            return "disk"
        return None

    def _has_too_many(self, pids: list[int], most: int) -> bool:
        """More processes than it may have; or the kernel refuses them, and it goes on trying."""
        found = threads.count(pids)
        calm = self._bounded and len(self._limits) == 1 and found * _FEW <= most
        self.look_in = _CALM_LOOK if calm else LOOK_EVERY
        before, self._refused = self._refused, cgroup.refused(self._group)
        self._looks_refused = self._looks_refused + 1 if self._refused > before else 0
        return found > most or self._looks_refused >= _MOST_REFUSED


def peak_in(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1024 if LINUX else 1)


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))
