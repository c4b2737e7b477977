"""In which minutes a schedule fires, and how often in each. Pure.

Cron lines and intervals are laid over the minutes without a step for each fire. All else is stepped through or counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from mainspring.domain.schedules.calendar_fires import open_times
from mainspring.domain.schedules.cron_hash import without_hash
from mainspring.domain.schedules.fires import occurrences
from mainspring.domain.schedules.occurrences import each
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.wall_clock import wall_clock
from mainspring.domain.schedules.zones import zone

MINUTE = timedelta(minutes=1)
_INSTANT = timedelta(microseconds=1)
_DAY = 86400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LOOK = 6 * 3600  # seconds: no zone leaves an offset and returns to it within this time
_MARGIN = 3 * _DAY
_WEEK = 7 * 24 * 60  # minutes
_STEP_COST = 15  # a fire that is stepped to costs as much as so many that are laid out
_SLOW_STEP_COST = 100  # a fire of a rule, of a calendar, or with jitter

Pair = tuple[int, int]  # the number of a minute from the start, and the fires in it


def minutes_of(schedule: Schedule, start: datetime, minutes: int) -> Iterator[Pair]:
    """The minutes of [start, start + minutes) with fires. `start` is a whole minute."""
    if is_plain(schedule):
        if schedule.kind is ScheduleKind.EVERY:
            return _of_interval(schedule, start, minutes)
        if schedule.kind is ScheduleKind.CRON and (offset := _offset(schedule, start, minutes)) is not None:
            return _of_cron(schedule, offset, start, minutes)
    return _stepped(schedule, start, minutes)


def is_plain(schedule: Schedule) -> bool:
    """Whether the rule alone says when it fires."""
    return (
        schedule.jitter is None
        and schedule.calendar is None
        and schedule.start is None
        and schedule.end is None
        and schedule.max_runs is None
    )


def cost_of_a_minute(schedule: Schedule, start: datetime, minutes: int) -> int:
    """About how much work each minute of `minutes_of` is."""
    laid = is_plain(schedule) and (
        schedule.kind is ScheduleKind.EVERY
        or (schedule.kind is ScheduleKind.CRON and _offset(schedule, start, minutes) is not None)
    )
    if laid:
        return 1
    return _STEP_COST if schedule.kind is ScheduleKind.CRON and is_plain(schedule) else _SLOW_STEP_COST


def cost_of_counting(schedule: Schedule, minutes: int) -> int:
    """About how much work it is to count all fires: those of a calendar are counted part by part."""
    if schedule.calendar is None:
        return 0
    parts = open_times(schedule.calendar_rules, schedule.timezone).parts_a_week
    return parts * minutes // _WEEK * _SLOW_STEP_COST


def fires_in(schedule: Schedule, start: datetime, minutes: int) -> int:
    """How often it fires in all these minutes."""
    # Not through the cache of `occurrences`, which belongs to the jobs that fire now.
    return occurrences.__wrapped__(schedule).count(start - _INSTANT, start + minutes * MINUTE - _INSTANT)


def _of_interval(schedule: Schedule, start: datetime, minutes: int) -> Iterator[Pair]:
    assert schedule.every is not None and schedule.anchor is not None
    step = round(schedule.every * 1_000_000)
    first = (schedule.anchor - start) // _INSTANT
    if first < 0:
        first = first % step
    end = minutes * 60_000_000
    if step >= 60_000_000:
        for moment in range(first, end, step):
            yield moment // 60_000_000, 1
        return
    before = 0
    for number in range(minutes):
        until = (number + 1) * 60_000_000
        through = 0 if until <= first else -((first - until) // step)
        if through > before:
            yield number, through - before
        before = through


def _offset(schedule: Schedule, start: datetime, minutes: int) -> int | None:
    """The offset of the zone in seconds. None if it changes then, or is not a whole minute."""
    return 0 if schedule.timezone == "UTC" else _steady_offset(schedule.timezone, start, minutes)


@lru_cache(maxsize=256)
def _steady_offset(timezone: str, start: datetime, minutes: int) -> int | None:
    place = zone(timezone)
    begin = int(start.timestamp())
    offset = _offset_at(place, begin)
    if offset % 60:
        return None
    looks = range(begin - _MARGIN, begin + minutes * 60 + _MARGIN, _LOOK)
    return offset if all(_offset_at(place, look) == offset for look in looks) else None


def _offset_at(place: ZoneInfo, moment: int) -> int:
    offset = datetime.fromtimestamp(moment, place).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


def _of_cron(schedule: Schedule, offset: int, start: datetime, minutes: int) -> Iterator[Pair]:
    """On a clock that is not moved: the matching days, and on each the same times."""
    assert schedule.cron is not None
    clock = wall_clock(without_hash(schedule.cron, schedule.seed or 0))
    times = [hour * 60 + minute for hour in clock.hours.numbers for minute in clock.minutes.numbers]
    per_minute = clock.seconds.bits.bit_count()
    begin = int(start.timestamp()) + offset
    for day in range(begin // _DAY, (begin + minutes * 60) // _DAY + 1):
        if not clock.matches(date.fromordinal(_EPOCH_DAY + day)):
            continue
        first = (day * _DAY - begin) // 60
        for time in times:
            if 0 <= first + time < minutes:
                yield first + time, per_minute


def _stepped(schedule: Schedule, start: datetime, minutes: int) -> Iterator[Pair]:
    found, end = occurrences.__wrapped__(schedule), start + minutes * MINUTE
    if found.count(start - _INSTANT, end - _INSTANT) > minutes:
        for number in range(minutes):
            begin = start + number * MINUTE - _INSTANT
            if count := found.count(begin, begin + MINUTE):
                yield number, count
        return
    number, count = -1, 0
    for moment in each(found, start - _INSTANT):
        if moment >= end:
            break
        here = (moment - start) // MINUTE
        if here != number and count:
            yield number, count
            count = 0
        number, count = here, count + 1
    if count:
        yield number, count


def floor_minute(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(second=0, microsecond=0)
