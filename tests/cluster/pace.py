"""How fast the machine was, measured by a process beside the cluster: bounds of time then hold on a busy machine.

Several times a second it uses 10 ms of CPU and writes a line to the disk. On a quiet machine that takes little more
than 10 ms. Where others use the machine it takes longer, and so does all that the cluster does: a second of a quiet
machine then takes so many times longer. Nothing of the product is measured.

    python -m tests.cluster.pace FILE
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Self

import msgspec

ROOT = Path(__file__).resolve().parents[2]
_WORK = 0.010
_QUIET = 0.025  # seconds that the work takes at most on a quiet machine, with the disk
_PAUSE = 0.15


class Slow(msgspec.Struct, array_like=True, frozen=True):
    """From `begin` to `end` everything took `factor` times as long."""

    begin: float
    end: float
    factor: float


class PaceWatch:
    """Runs the process, and reads what it wrote."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.cluster.pace", self._file], cwd=ROOT)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def passed(self, since: float, seconds: float) -> bool:
        """Whether so many seconds of a quiet machine have passed since then."""
        now = time.monotonic()
        return now >= since + seconds and now >= after(self.slow(), since, seconds)

    def slow(self) -> list[Slow]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        looks = [(float(begin), float(end)) for begin, end in (line.split() for line in lines)]
        return slow_windows(looks, time.monotonic())


def slow_windows(looks: Sequence[tuple[float, float]], now: float) -> list[Slow]:
    """From the begin of a look to that of the next one the machine was as slow as the look, or as the pause after it
    if that was longer than it should have been. A look that is not over by `now` counts as well."""
    found: list[Slow] = []
    last = looks[-1:] and (looks[-1][1] + _PAUSE, max(now, looks[-1][1] + _PAUSE))
    for (begin, end), (following, _) in pairwise([*looks, *([last] if last else [])]):
        factor = max((end - begin) / _QUIET, (following - end) / (2 * _PAUSE))
        if factor <= 1.0:
            continue
        if found and found[-1].end == begin and abs(found[-1].factor - factor) < 0.1 * factor:
            found[-1] = Slow(found[-1].begin, following, max(factor, found[-1].factor))
        else:
            found.append(Slow(begin, following, round(factor, 2)))
    if last and last[1] - last[0] > _QUIET:
        found.append(Slow(last[0], last[1], (last[1] - last[0]) / _QUIET))
    return found


def after(slow: Sequence[Slow], start: float, seconds: float) -> float:
    """When so many seconds of a quiet machine have passed since `start`."""
    at = start
    for window in islice(slow, bisect_right(slow, at, key=lambda window: window.end), None):
        quiet = max(0.0, window.begin - at)
        if seconds <= quiet:
            break
        at, seconds = at + quiet, seconds - quiet
        within = (window.end - at) / window.factor
        if seconds <= within:
            return at + seconds * window.factor
        at, seconds = window.end, seconds - within
    return at + seconds


def longest_step(slow: Sequence[Slow], begin: float, end: float) -> float:
    """How much longer than on a quiet machine one step of a process took between these times, at most."""
    taken = 1.0
    for window in islice(slow, bisect_right(slow, begin, key=lambda window: window.end), None):
        if window.begin > end:
            break
        taken = max(taken, window.factor)
    return _QUIET * (taken - 1.0)


def mean_factor(slow: Sequence[Slow], begin: float, end: float) -> float:
    """How many times as long everything took between these times."""
    longer = sum((window.end - window.begin) * (window.factor - 1.0) for window in slow)
    return 1.0 + longer / (end - begin) if end > begin else 1.0


def _measure(file: Path) -> None:
    parent = os.getppid()
    line = b""
    with file.open("ab", buffering=0) as output:
        while os.getppid() == parent:
            begin, used = time.monotonic(), time.process_time()
            while time.process_time() < used + _WORK:
                pass
            output.write(line)
            os.fdatasync(output.fileno())
            line = f"{begin:.4f} {time.monotonic():.4f}\n".encode()
            time.sleep(_PAUSE)


if __name__ == "__main__":
    _measure(Path(sys.argv[1]))
