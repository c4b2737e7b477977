"""What this process, and the processes that it has waited for, have used: CPU seconds in all, and memory in one run."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from mainspring.worker.executors.process.warm.run_environment import resident_bytes

_UNIT = 1024 if sys.platform == "linux" else 1
_FORGET_PEAK = (Path("/proc/self/clear_refs"), "5")


def cpu_seconds() -> float:
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


class OwnUse:
    """The kernel keeps the peak of a process for its whole life. It is told to forget it after a run that has raised
    it, and only then, because that takes 50 µs."""

    def __init__(self) -> None:
        self._floor = _peak(resource.RUSAGE_SELF)
        self._floor_of_others = 0
        self._exact = True

    def of_run(self) -> tuple[float, int]:
        """At the end of a run: the CPU seconds since the process was started, and the peak of the run in bytes."""
        peak, others = _peak(resource.RUSAGE_SELF), _peak(resource.RUSAGE_CHILDREN)
        if peak > self._floor:
            self._exact = self._forget()
            self._floor = _peak(resource.RUSAGE_SELF)
        elif not self._exact:
            peak = resident_bytes()
        if others > self._floor_of_others:
            self._floor_of_others = others
            peak = max(peak, others)
        return cpu_seconds(), peak

    def _forget(self) -> bool:
        path, word = _FORGET_PEAK
        try:
            path.write_text(word)
        except OSError:  # not every kernel can
            return False
        return True


def _peak(whose: int) -> int:
    return resource.getrusage(whose).ru_maxrss * _UNIT
