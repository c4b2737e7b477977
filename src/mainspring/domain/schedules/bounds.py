"""Start and end of a schedule."""

from __future__ import annotations

from datetime import datetime, timedelta

from mainspring.domain.schedules.occurrences import Occurrences

_MOMENT = timedelta(microseconds=1)


class Bounded:
    """The occurrences of `inner` from `start` to `end`, both included."""

    def __init__(self, inner: Occurrences, start: datetime | None, end: datetime | None) -> None:
        self._inner = inner
        self._before = None if start is None else start - _MOMENT
        self._end = end

    def next(self, after: datetime) -> datetime | None:
        following = self._inner.next(self._from(after))
        return None if following is None or (self._end is not None and following > self._end) else following

    def count(self, after: datetime, until: datetime) -> int:
        after, until = self._from(after), self._to(until)
        return self._inner.count(after, until) if after < until else 0

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        after, until = self._from(after), self._to(until)
        return self._inner.newest(after, until, count) if after < until else []

    def _from(self, after: datetime) -> datetime:
        return after if self._before is None else max(after, self._before)

    def _to(self, until: datetime) -> datetime:
        return until if self._end is None else min(until, self._end)
