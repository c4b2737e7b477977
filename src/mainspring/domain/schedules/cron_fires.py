"""The fires of a cron expression in a time zone.

They are counted without a step for each of them: a year of a one-second cron has 31 million. All days that match have
the same number of fires, so the work is one step a day. Stretches of time between two changes of the zone's offset are
counted apart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import cached_property
from zoneinfo import ZoneInfo

import msgspec

from mainspring.domain.schedules.cron import (
    DAY,
    WallClock,
    change_of_offset,
    next_cron_fire,
    offset_at,
    wall_clock,
)
from mainspring.domain.schedules.occurrences import listed
from mainspring.domain.schedules.zones import zone

_EPOCH_DAY = date(1970, 1, 1).toordinal()


class CronFires:
    """The occurrences of a cron expression (see occurrences.py)."""

    def __init__(self, cron: str, timezone: str) -> None:
        self._cron = cron
        self._timezone = timezone

    def next(self, after: datetime) -> datetime | None:
        return next_in_zone(self._cron, self._timezone, after)

    def count(self, after: datetime, until: datetime) -> int:
        return _count(self._clock, self._place, _second(after), _second(until))

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        return listed(self, self._before_newest(after, until, count), until)[-count:]

    @cached_property
    def _clock(self) -> WallClock:
        return wall_clock(self._cron)

    @cached_property
    def _place(self) -> ZoneInfo | None:
        return None if self._timezone == "UTC" else zone(self._timezone)

    def _before_newest(self, after: datetime, until: datetime, count: int) -> datetime:
        """The second after which exactly `count` fires follow: first in windows that double, then by bisection. Each
        look counts a part that no other look has counted, so the work is that of counting the last window twice."""
        first, high = _second(after), _second(until)
        window, low, wanted = 1, high, count
        while True:
            low = max(first, high - window)
            found = _count(self._clock, self._place, low, high)
            if found >= wanted:
                break
            if low == first:
                return after
            wanted -= found
            high = low
            window *= 2
        while high - low > 1:
            middle = (low + high) // 2
            found = _count(self._clock, self._place, middle, high)
            if found >= wanted:
                low = middle
            else:
                wanted -= found
                high = middle
        return max(after, datetime.fromtimestamp(low, UTC))


def next_in_zone(cron: str, timezone: str, after: datetime) -> datetime | None:
    """The first fire strictly after `after`, in UTC. None if there is none before the year 9999."""
    try:
        return next_cron_fire(cron, None if timezone == "UTC" else zone(timezone), after)
    except (OverflowError, ValueError):
        return None


def _second(moment: datetime) -> int:
    return int(moment.replace(microsecond=0).timestamp())


def _count(clock: WallClock, place: ZoneInfo | None, start: int, end: int) -> int:
    """The number of fires in the seconds (start, end]."""
    if place is None:
        return _count_walls(clock, start, end)
    if clock.fixed_time:
        return _count_at_fixed_time(clock, place, start, end)
    return sum(
        _count_walls(clock, part.low + part.offset, part.high + part.offset) for part in _parts(place, start, end)
    )


def _count_at_fixed_time(clock: WallClock, place: ZoneInfo, start: int, end: int) -> int:
    """See cron.py: a skipped wall time fires right after the change, and of two equal ones the first fires."""
    count = 0
    # From two days before: a change shortly before `start` can make wall times after `start` the second of two.
    for part in _parts(place, start - 2 * DAY, end):
        low, before = part.low, part.before
        if before is not None and part.offset < before:
            low += before - part.offset
        elif before is not None and start <= low:
            change = low + 1
            skipped = _count_walls(clock, low + before, low + part.offset)
            if skipped and not _count_walls(clock, low + part.offset, change + part.offset):
                count += 1
        low = max(low, start)
        count += _count_walls(clock, low + part.offset, part.high + part.offset)
    return count


class _Part(msgspec.Struct, frozen=True):
    """The seconds (low, high], in which the zone has one offset. `before` is the offset of the part before it."""

    low: int
    high: int
    offset: int
    before: int | None


def _parts(place: ZoneInfo, start: int, end: int) -> Iterator[_Part]:
    low, offset, before = start, offset_at(place, start), None
    known = start
    while low < end:
        look = min(known + DAY, end)
        if offset_at(place, look) != offset:
            known = change_of_offset(place, known, look)
            yield _Part(low, known - 1, offset, before)
            low, before, offset = known - 1, offset, offset_at(place, known)
            if known == end:
                yield _Part(low, end, offset, before)
                return
        elif look == end:
            yield _Part(low, end, offset, before)
            return
        else:
            known = look


def _count_walls(clock: WallClock, after: int, until: int) -> int:
    """The number of matching wall times in (after, until], both in seconds since 1970."""
    if until <= after:
        return 0
    hours, minutes, seconds = sorted(clock.hours), sorted(clock.minutes), sorted(clock.seconds)
    an_hour = len(minutes) * len(seconds)
    a_day = len(hours) * an_hour

    def through(time_of_day: int) -> int:
        """The fires of a matching day up to and with this second."""
        hour, rest = divmod(time_of_day, 3600)
        minute, second = divmod(rest, 60)
        count = bisect_left(hours, hour) * an_hour
        if hour in clock.hours:
            count += bisect_left(minutes, minute) * len(seconds)
            if minute in clock.minutes:
                count += bisect_right(seconds, second)
        return count

    (first, morning), (last, evening) = divmod(after, DAY), divmod(until, DAY)
    count = (_matches(clock, last) and through(evening)) - (_matches(clock, first) and through(morning))
    return count + a_day * sum(_matches(clock, day) for day in range(first, last))


def _matches(clock: WallClock, day: int) -> bool:
    here = date.fromordinal(_EPOCH_DAY + day)
    return here.month in clock.months and clock.match_day(here)
