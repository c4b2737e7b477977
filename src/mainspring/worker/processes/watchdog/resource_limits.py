"""Limits of a process tree. rlimits apply to single processes; the supervisor checks the whole tree every 0.25 s."""

from __future__ import annotations

import math
import os
import resource
from typing import Any

from .tree import LINUX, descendants, read_file, stat_of

LOOK_EVERY = 0.25

_PAGE = resource.getpagesize()
_TICKS = os.sysconf("SC_CLK_TCK")
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
    if limits.get("cpu"):
        # One second later than the supervisor, which reports the breach more clearly.
        _lower(resource.RLIMIT_CPU, math.ceil(limits["cpu"]) + 1)


class Gauge:
    """Compares the process tree below `root` with `limits`. CPU seconds count from now on."""

    def __init__(self, root: int, limits: dict[str, Any]) -> None:
        self._root = root
        self.peak = 0
        self.set(limits)

    def set(self, limits: dict[str, Any]) -> None:
        self._limits = {name: limits[name] for name in ("memory", "cpu", "processes") if limits.get(name)}
        self.active = bool(self._limits)
        self._spent_before = self._cpu(descendants(self._root)) if "cpu" in self._limits else 0.0

    def breach(self) -> str | None:
        """The limit that the tree exceeds now."""
        pids = descendants(self._root)
        limits = self._limits
        if "processes" in limits and len(pids) > limits["processes"]:
            return "processes"
        if "cpu" in limits and self._cpu(pids) - self._spent_before > limits["cpu"]:
            return "cpu"
        if "memory" in limits:
            resident = sum(map(_resident, pids))
            # Shared pages count in each process here. The exact value is slow to read, so it is read only if needed.
            if resident > limits["memory"]:
                resident = sum(map(_proportional, pids))
            self.peak = max(self.peak, resident)
            if resident > limits["memory"]:
                return "memory"
        return None

    def _cpu(self, pids: list[int]) -> float:
        return sum(map(_cpu_of, pids)) + cpu_of_the_reaped()


def cpu_of_the_reaped() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def peak_in(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1024 if LINUX else 1)


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _cpu_of(pid: int) -> float:
    """CPU seconds of the process and of the children it has waited for."""
    try:
        return sum(map(int, stat_of(pid)[11:15])) / _TICKS
    except (OSError, ValueError):
        return 0.0


def _resident(pid: int) -> int:
    try:
        return int(read_file(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        for line in read_file(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it is gone, or belongs to another user
        pass
    return _resident(pid)
