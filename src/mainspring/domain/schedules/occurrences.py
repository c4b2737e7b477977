"""The fires of a schedule, as an interface: `next`, `count` and `newest` over a range of time.

Some occurrences are computed from a rule (every, cron, rrule). Others change those that they wrap: they leave some out
or move them. fires.py puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Protocol


class Occurrences(Protocol):
    """All times are aware and in UTC. The same arguments always give the same answer."""

    def next(self, after: datetime) -> datetime | None:
        """The first one strictly after `after`. None if there is none."""

    def count(self, after: datetime, until: datetime) -> int:
        """How many are in (after, until]. `after` is before `until`."""

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        """The last `count` in (after, until], in order; all of them if there are fewer. `count` is positive."""


def each(occurrences: Occurrences, after: datetime) -> Iterator[datetime]:
    """All of them strictly after `after`, in order."""
    moment = occurrences.next(after)
    while moment is not None:
        yield moment
        moment = occurrences.next(moment)


def listed(occurrences: Occurrences, after: datetime, until: datetime) -> list[datetime]:
    """The occurrences in (after, until]."""
    return list(takewhile(lambda moment: moment <= until, each(occurrences, after)))


def before_newest(count: Callable[[int, int], int], after: int, until: int, wanted: int) -> int:
    """The second after which exactly `wanted` of those that `count` counts follow up to `until`; `after` if there are
    fewer. First in windows that double, then by bisection. Each look counts a part that no other look has counted, so
    the work is that of counting the last window twice."""
    high, window = until, 1
    while True:
        low = max(after, high - window)
        found = count(low, high)
        if found >= wanted:
            break
        if low == after:
            return after
        wanted -= found
        high = low
        window *= 2
    while high - low > 1:
        middle = (low + high) // 2
        found = count(middle, high)
        if found >= wanted:
            low = middle
        else:
            wanted -= found
            high = middle
    return low


class NoOccurrence:
    """No occurrences."""

    def next(self, after: datetime) -> datetime | None:
        return None

    def count(self, after: datetime, until: datetime) -> int:
        return 0

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        return []


class Once:
    """One occurrence."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def next(self, after: datetime) -> datetime | None:
        return self._at if self._at > after else None

    def count(self, after: datetime, until: datetime) -> int:
        return int(after < self._at <= until)

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        return [self._at] if after < self._at <= until else []


class Every:
    """Anchored intervals. They are counted by arithmetic."""

    def __init__(self, every: float, anchor: datetime) -> None:
        self._step = timedelta(seconds=every)
        self._anchor = anchor

    def next(self, after: datetime) -> datetime | None:
        if after < self._anchor:
            return self._anchor
        try:
            # Integer microseconds: with floats the hundred-thousandth step would drift from the anchor's grid.
            return self._anchor + ((after - self._anchor) // self._step + 1) * self._step
        except OverflowError:
            return None  # after the year 9999

    def count(self, after: datetime, until: datetime) -> int:
        return self._through(until) - self._through(after)

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        older = self._through(until) - count
        if older > self._through(after):
            after = self._anchor + (older - 1) * self._step
        return listed(self, after, until)[-count:]

    def _through(self, moment: datetime) -> int:
        return 0 if moment < self._anchor else (moment - self._anchor) // self._step + 1
