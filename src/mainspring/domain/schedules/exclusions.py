"""Occurrences without some moments: the EXDATEs of a rule."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property

from mainspring.domain.schedules.occurrences import Occurrences

_MOMENT = timedelta(microseconds=1)


class Excluding:
    """The occurrences of `inner` that are not one of `left_out`."""

    def __init__(self, inner: Occurrences, left_out: Sequence[datetime]) -> None:
        self._inner = inner
        self._left_out = left_out

    def next(self, after: datetime) -> datetime | None:
        following = self._inner.next(after)
        while following is not None and following in self._set:
            following = self._inner.next(following)
        return following

    def count(self, after: datetime, until: datetime) -> int:
        return self._inner.count(after, until) - self._hits_in(after, until)

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        found = self._inner.newest(after, until, count + self._hits_in(after, until))
        return [moment for moment in found if moment not in self._set][-count:]

    @cached_property
    def _set(self) -> frozenset[datetime]:
        return frozenset(self._left_out)

    @cached_property
    def _hits(self) -> list[datetime]:
        """The moments of `left_out` that are occurrences of `inner`."""
        return [moment for moment in sorted(self._set) if is_one_of(self._inner, moment)]

    def _hits_in(self, after: datetime, until: datetime) -> int:
        return bisect_right(self._hits, until) - bisect_right(self._hits, after)


def is_one_of(occurrences: Occurrences, moment: datetime) -> bool:
    return occurrences.count(moment - _MOMENT, moment) > 0
