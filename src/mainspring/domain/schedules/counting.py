"""Counts fires without a step for each of them: a year of a one-second cron has 31 million.

Every-schedules are counted by arithmetic. For cron, all days that match have the same number of fires, so the work is
one step a day. Stretches of time between two changes of the zone's offset are counted apart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import msgspec

from mainspring.domain.schedules.cron import DAY, WallClock, change_of_offset, offset_at, wall_clock
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind, fires, zone

_EPOCH_DAY = date(1970, 1, 1).toordinal()


def count_fires(schedule: Schedule, after: datetime, until: datetime) -> int:
    """The number of fires in (after, until]."""
    if until <= after:
        return 0
    match schedule.kind:
        case ScheduleKind.NOW | ScheduleKind.MANUAL:
            return 0
        case ScheduleKind.AT:
            return int(schedule.at is not None and after < schedule.at <= until)
        case ScheduleKind.EVERY:
            return _fires_through(schedule, until) - _fires_through(schedule, after)
        case ScheduleKind.CRON:
            return _count_cron(schedule, _second(after), _second(until))


def newest_fires(schedule: Schedule, after: datetime, until: datetime, count: int) -> list[datetime]:
    """The last `count` fires in (after, until], in order; all of them if there are fewer."""
    if count <= 0:
        return []
    if schedule.kind is ScheduleKind.EVERY:
        start = _before_newest_of_every(schedule, after, until, count)
    elif schedule.kind is ScheduleKind.CRON:
        start = _before_newest_of_cron(schedule, after, until, count)
    else:
        start = after
    return list(takewhile(lambda moment: moment <= until, fires(schedule, start)))[-count:]


def _fires_through(schedule: Schedule, moment: datetime) -> int:
    assert schedule.every is not None and schedule.anchor is not None
    if moment < schedule.anchor:
        return 0
    return (moment - schedule.anchor) // timedelta(seconds=schedule.every) + 1


def _before_newest_of_every(schedule: Schedule, after: datetime, until: datetime, count: int) -> datetime:
    assert schedule.every is not None and schedule.anchor is not None
    older = _fires_through(schedule, until) - count
    if older <= _fires_through(schedule, after):
        return after
    return schedule.anchor + (older - 1) * timedelta(seconds=schedule.every)


def _before_newest_of_cron(schedule: Schedule, after: datetime, until: datetime, count: int) -> datetime:
    """The second after which exactly `count` fires follow: first in windows that double, then by bisection. Each look
    counts a part that no other look has counted, so the work is that of counting the last window twice."""
    first, high = _second(after), _second(until)
    window, low, wanted = 1, high, count
    while True:
        low = max(first, high - window)
        found = _count_cron(schedule, low, high)
        if found >= wanted:
            break
        if low == first:
            return after
        wanted -= found
        high = low
        window *= 2
    while high - low > 1:
        middle = (low + high) // 2
        found = _count_cron(schedule, middle, high)
        if found >= wanted:
            low = middle
        else:
            wanted -= found
            high = middle
    return max(after, datetime.fromtimestamp(low, UTC))


def _second(moment: datetime) -> int:
    return int(moment.replace(microsecond=0).timestamp())


def _count_cron(schedule: Schedule, start: int, end: int) -> int:
    """The number of fires in the seconds (start, end]."""
    assert schedule.cron is not None
    clock = wall_clock(schedule.cron)
    if schedule.timezone == "UTC":
        return _count_walls(clock, start, end)
    place = zone(schedule.timezone)
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
