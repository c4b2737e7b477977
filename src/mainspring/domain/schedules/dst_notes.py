"""What a change of the clocks does to a schedule, in words: "02:30 does not exist on 2027-03-28: fires at 03:00"."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from mainspring.domain.schedules.clock_changes import DAY, ClockChange, changes
from mainspring.domain.schedules.fires import count_fires, next_fire
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.zones import zone

_MOST_NOTES = 20
_FURTHEST = 3660 * DAY  # seconds: nothing is planned for clocks more than ten years ahead
_SECOND = timedelta(seconds=1)


def dst_notes(schedule: Schedule, after: datetime, until: datetime) -> list[str]:
    """A sentence for each change of the clocks in (after, until] that moves, drops or doubles a fire."""
    if schedule.kind not in (ScheduleKind.CRON, ScheduleKind.RRULE) or schedule.timezone == "UTC":
        return []
    place, rule = zone(schedule.timezone), _bare(schedule)
    notes = []
    for change in _changes(place, int(after.timestamp()), int(until.timestamp())):
        if not count_fires(schedule, *_around(change.at, DAY)):
            continue  # the calendar or the bounds exclude it
        note = _note(rule, change)
        if note is not None:
            notes.append(note)
        if len(notes) >= _MOST_NOTES:
            break
    return notes


def _bare(schedule: Schedule) -> Schedule:
    """The rule alone: a calendar, jitter and bounds come after it. The start of an rrule belongs to the rule."""
    start = schedule.anchor if schedule.start is not None and schedule.kind is ScheduleKind.RRULE else None
    return msgspec.structs.replace(
        schedule, calendar=None, calendar_version=None, outside=None, jitter=None, start=start, end=None, max_runs=None
    )


def _on_walls(rule: Schedule) -> Schedule:
    """The rule on a clock that is never moved: its wall times as if they were UTC."""

    def wall(moment: datetime) -> datetime:
        return moment.astimezone(zone(rule.timezone)).replace(tzinfo=UTC)

    return msgspec.structs.replace(
        rule,
        timezone="UTC",
        gap=None,
        fold=None,
        anchor=None if rule.anchor is None else wall(rule.anchor),
        start=None if rule.start is None else wall(rule.start),
        exdates=None if rule.exdates is None else tuple(sorted({wall(one) for one in rule.exdates})),
    )


def _changes(place: ZoneInfo, after: int, until: int) -> Iterator[ClockChange]:
    """The changes in (after, until]."""
    until = min(until, after + _FURTHEST)
    for year in range(_at(after).year, _at(until).year + 1):
        yield from (change for change in changes(place, year) if after < change.at <= until)
        after = max([after, *(change.at for change in changes(place, year))])  # years overlap


def _note(rule: Schedule, change: ClockChange) -> str | None:
    moment, before, after = change
    on_walls = _on_walls(rule)
    low, high = sorted((moment + before, moment + after))
    count = count_fires(on_walls, _at(low) - _SECOND, _at(high) - _SECOND)
    first = next_fire(on_walls, _at(low) - _SECOND)
    if not count or first is None:
        return None
    times = _times(on_walls, first, _at(high), count)
    if after > before:
        verb = "does" if count == 1 else "do"
        return f"{times} {verb} not exist on {first.date()}: {_in_gap(rule, on_walls, moment, after)}"
    verb = "occurs" if count == 1 else "occur"
    return f"{times} {verb} twice on {first.date()}: {_in_overlap(rule, moment, before - after)}"


def _in_gap(rule: Schedule, on_walls: Schedule, moment: int, offset: int) -> str:
    wall = _at(moment + offset)
    moved = count_fires(rule, _at(moment) - _SECOND, _at(moment))
    if moved and not count_fires(on_walls, wall - _SECOND, wall):
        return f"fires at {_clock(wall)}"
    return "does not fire"


def _in_overlap(rule: Schedule, moment: int, length: int) -> str:
    first = count_fires(rule, _at(moment - length) - _SECOND, _at(moment) - _SECOND)
    second = count_fires(rule, _at(moment) - _SECOND, _at(moment + length) - _SECOND)
    if first and second:
        return "fires both times"
    return "fires the first time" if first else "fires the second time" if second else "does not fire"


def _times(on_walls: Schedule, first: datetime, end: datetime, count: int) -> str:
    if count == 1:
        return _clock(first)
    second = next_fire(on_walls, first)
    if count == 2 and second is not None:
        return f"{_clock(first)} and {_clock(second)}"
    return f"{count} times from {_clock(first)} until {_clock(end)}"


def _clock(wall: datetime) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"


def _around(moment: int, seconds: int) -> tuple[datetime, datetime]:
    return _at(moment - seconds), _at(moment + seconds)


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
