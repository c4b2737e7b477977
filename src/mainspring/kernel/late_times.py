"""Periods in which a part of this process was late. Times are of the monotonic clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

Period = tuple[float, float]
LatePeriods = Callable[[float], list[Period]]
"""The late periods up to a given time, including one that has not ended."""

_KEPT = 1000


class LateTimes:
    """The last late periods. `begin` and `end` mark one that is under way; it counts once it is longer than
    `tolerated` seconds."""

    def __init__(self, tolerated: float) -> None:
        self._tolerated = tolerated
        self._periods: deque[Period] = deque(maxlen=_KEPT)
        self._since: float | None = None

    def begin(self, now: float) -> None:
        self._since = now

    def end(self, now: float) -> None:
        if self._since is not None and now - self._since > self._tolerated:
            self._periods.append((self._since, now))
        self._since = None

    def until(self, now: float) -> list[Period]:
        """The late periods, including the one that is under way."""
        periods = list(self._periods)
        if self._since is not None and now - self._since > self._tolerated:
            periods.append((self._since, now))
        return periods


def late_within(sources: Iterable[LatePeriods], now: float, seconds: float) -> float:
    """For how long the process was late, counting each period that has ended within the last `seconds`. It counts in
    full: after a long stop every worker gets this time once more."""
    ended = sorted(period for source in sources for period in source(now) if period[1] > now - seconds)
    total, counted_to = 0.0, float("-inf")
    for begin, end in ended:
        total += max(0.0, end - max(begin, counted_to))
        counted_to = max(counted_to, end)
    return total
