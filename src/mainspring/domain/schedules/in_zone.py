"""Wall times in a time zone: what becomes of those that clocks skip or show twice. For cron lines and recurrence rules.

Fires are found and counted in the stretches of clock_changes.py, without a step for each of them: a year of a
one-second cron has 31 million.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from mainspring.domain.schedules.clock_changes import DAY, year_of
from mainspring.domain.schedules.occurrences import before_newest, listed

_MOST_YEARS = 50  # with wall times of which none may fire. The same date falls on the same weekday within 40 years.


class Walls(Protocol):
    """Wall times in seconds since 1970."""

    def next(self, after: int) -> int | None:
        """The first one after `after`."""

    def count(self, after: int, until: int) -> int:
        """How many are in (after, until]."""


class InZone:
    """The occurrences (see occurrences.py) of wall times. `zone` None means UTC. gap, fold: see clock_changes.py."""

    def __init__(self, walls: Walls, zone: ZoneInfo | None, gap: str = "shift", fold: str = "first") -> None:
        self._rule = (walls, zone, gap == "shift", fold)

    def next(self, after: datetime) -> datetime | None:
        try:
            moment = next_in_zone(*self._rule, second_of(after))
            return None if moment is None else datetime.fromtimestamp(moment, UTC)
        except (OverflowError, ValueError):
            return None  # after the year 9999

    def count(self, after: datetime, until: datetime) -> int:
        return count_in_zone(*self._rule, second_of(after), second_of(until))

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        before = before_newest(
            lambda low, high: count_in_zone(*self._rule, low, high), second_of(after), second_of(until), count
        )
        return listed(self, max(after, datetime.fromtimestamp(before, UTC)), until)[-count:]


def next_in_zone(walls: Walls, place: ZoneInfo | None, shift: bool, fold: str, after: int) -> int | None:
    """The first fire after a second. shift: whether a gap shifts."""
    if place is None:
        return walls.next(after)
    for _ in range(_MOST_YEARS):
        year = year_of(place, shift, fold, datetime.fromtimestamp(after + 1, UTC).year)
        offset = 0
        for part in year.stretches[bisect_right(year.lasts, after) :]:
            offset = part.offset
            wall = walls.next(part.low if part.at is not None else max(part.low, after + offset))
            if wall is not None and wall <= part.high:
                return wall - offset if part.at is None else part.at
        # None is left in this year. Years without a fire are left out. An offset changes by a day at most, so a wall
        # time before the end of the year can occur in the next one.
        wall = walls.next(year.end + offset - 2 * DAY)
        if wall is None:
            return None
        after = max(year.end - 1, wall - offset - 2 * DAY)
    return None


def count_in_zone(walls: Walls, place: ZoneInfo | None, shift: bool, fold: str, after: int, until: int) -> int:
    """The number of fires in the seconds (after, until]."""
    if place is None:
        return walls.count(after, until)
    count = 0
    while after < until:
        year = year_of(place, shift, fold, datetime.fromtimestamp(after + 1, UTC).year)
        for part in year.stretches[bisect_right(year.lasts, after) :]:
            if part.at is None:
                count += walls.count(max(part.low, after + part.offset), min(part.high, until + part.offset))
            elif part.at <= until and walls.count(part.low, part.high):
                # If there is a fire at that moment anyway, it is counted with its own stretch.
                count += not walls.count(part.high, part.high + 1)
        after = year.end - 1
    return count


def second_of(moment: datetime) -> int:
    return int(moment.replace(microsecond=0).timestamp())
