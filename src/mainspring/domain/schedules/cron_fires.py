"""The fires of a cron expression in a time zone.

They are counted without a step for each of them: a year of a one-second cron has 31 million.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from mainspring.domain.schedules.clock_changes import DAY, year_of
from mainspring.domain.schedules.occurrences import before_newest, listed
from mainspring.domain.schedules.wall_clock import WallClock, wall_clock
from mainspring.domain.schedules.zones import zone

_GIVE_UP_AFTER = 50 * 366 * DAY  # the same date falls on the same weekday within 40 years
_Rule = tuple[WallClock, ZoneInfo | None, bool, str]  # the last two: whether a gap shifts, and the overlap policy


class CronFires:
    """The occurrences of a cron expression without `H` (see occurrences.py).

    gap, fold: what happens when clocks are moved, see clock_changes.py. None means Debian's rule: the line runs once at
    a fixed time (shift, first), and any other line follows real time (skip, both)."""

    def __init__(self, cron: str, timezone: str, gap: str | None = None, fold: str | None = None) -> None:
        self._rule = (cron, timezone, gap, fold)

    def next(self, after: datetime) -> datetime | None:
        return _next(*self._rule, _second(after))

    def count(self, after: datetime, until: datetime) -> int:
        return _count(*_parsed(*self._rule), _second(after), _second(until))

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        rule = _parsed(*self._rule)
        before = before_newest(lambda low, high: _count(*rule, low, high), _second(after), _second(until), count)
        return listed(self, max(after, datetime.fromtimestamp(before, UTC)), until)[-count:]


@lru_cache(maxsize=16384)
def _next(cron: str, timezone: str, gap: str | None, fold: str | None, second: int) -> datetime | None:
    """The first fire after a second. Jobs that share a line and a moment share the answer: those that are registered
    together, and those that fire together."""
    parsed = _parsed(cron, timezone, gap, fold)  # a line that cannot be read is an error, not the end of its fires
    try:
        moment = _next_second(*parsed, second)
        return None if moment is None else datetime.fromtimestamp(moment, UTC)
    except (OverflowError, ValueError):  # after the year 9999
        return None


@lru_cache(maxsize=16384)
def _parsed(
    cron: str, timezone: str, gap: str | None, fold: str | None
) -> tuple[WallClock, ZoneInfo | None, bool, str]:
    clock = wall_clock(cron)
    shift = (gap or ("shift" if clock.fixed_time else "skip")) == "shift"
    return (
        clock,
        None if timezone == "UTC" else zone(timezone),
        shift,
        fold or ("first" if clock.fixed_time else "both"),
    )


def _second(moment: datetime) -> int:
    return int(moment.replace(microsecond=0).timestamp())


def _next_second(clock: WallClock, place: ZoneInfo | None, shift: bool, fold: str, after: int) -> int | None:
    if place is None:
        return clock.next(after)
    give_up = after + _GIVE_UP_AFTER
    while after < give_up and clock.occurs:
        year = year_of(place, shift, fold, datetime.fromtimestamp(after + 1, UTC).year)
        offset = 0
        for part in year.stretches[bisect_right(year.lasts, after) :]:
            offset = part.offset
            wall = clock.next(part.low if part.at is not None else max(part.low, after + offset))
            if wall is not None and wall <= part.high:
                return wall - offset if part.at is None else part.at
        # None is left in this year. Years without a fire are left out. An offset changes by a day at most, so a wall
        # time before the end of the year can occur in the next one.
        wall = clock.next(year.end + offset - 2 * DAY)
        if wall is None:
            return None
        after = max(year.end - 1, wall - offset - 2 * DAY)
    return None


def _count(clock: WallClock, place: ZoneInfo | None, shift: bool, fold: str, after: int, until: int) -> int:
    """The number of fires in the seconds (after, until]."""
    if place is None:
        return clock.count(after, until)
    count = 0
    while after < until:
        year = year_of(place, shift, fold, datetime.fromtimestamp(after + 1, UTC).year)
        for part in year.stretches[bisect_right(year.lasts, after) :]:
            if part.at is None:
                count += clock.count(max(part.low, after + part.offset), min(part.high, until + part.offset))
            elif part.at <= until and clock.count(part.low, part.high):
                # If the line fires at that moment anyway, it is counted with its own stretch.
                count += not clock.count(part.high, part.high + 1)
        after = year.end - 1
    return count
