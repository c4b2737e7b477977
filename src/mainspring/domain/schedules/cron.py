"""The next fire time of a cron expression in a time zone. cronsim computes fire times on a wall clock without offset
changes. This module handles the changes of the zone's offset.

The rule is that of Debian's cron. A job with a fixed time (five fields, and neither minute nor hour begins with `*`)
runs once. If its wall time is skipped, it runs right after the change. If its wall time occurs twice, it runs the first
time. All other jobs follow real time: they do not run at skipped wall times, and run twice at repeated ones.

cronsim implements this rule too, but in steps of whole hours. Where clocks move by half an hour (Lord Howe) it lost
fires, such as 02:30 of `30 * * * *` and 03:00 of `0 */3 * * *`. Where they move at midnight it fired `* 0 * * SUN` at
01:00. On wall clocks without changes it is correct, and twice as fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

_EPOCH = datetime(1970, 1, 1)
_NONE = timedelta(0)
_RANGE_OF_ONE = re.compile(r"(?<!\w)(\w+)-\1/0*[1-9][0-9]*(?!\w)")  # 5-5/2 means 5; cronsim reads it as 5/2
DAY = 86400
_GIVE_UP_AFTER = 50 * 366 * DAY  # the same limit as cronsim: no fire within 50 years means that there is none


class WallClock(CronSim):
    """A parsed cron expression that yields fire times on a clock without offset changes. Raises CronSimError."""

    def __init__(self, expression: str) -> None:
        super().__init__(_RANGE_OF_ONE.sub(r"\1", expression), _EPOCH)
        fields = expression.split()
        self.fixed_time = len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")

    def after(self, wall: datetime) -> Iterator[datetime]:
        """The fire times strictly after `wall`. Ends when none follows within 50 years."""
        copy = object.__new__(CronSim)
        copy.__dict__.update(self.__dict__, dt=wall)
        return copy


wall_clock = lru_cache(maxsize=2048)(WallClock)  # each takes up to 15 KB


def next_cron_fire(expression: str, zone: ZoneInfo | None, after: datetime) -> datetime | None:
    """The first fire time strictly after `after`, in UTC. `zone` None means UTC."""
    clock = wall_clock(expression)
    start = int(after.replace(microsecond=0).timestamp())
    if zone is None:
        wall = next(clock.after(_wall(start)), None)
        return None if wall is None else wall.replace(tzinfo=UTC)
    moment = _next_at_fixed_time(clock, zone, start) if clock.fixed_time else _next_in_real_time(clock, zone, start)
    return None if moment is None else datetime.fromtimestamp(moment, UTC)


def _next_at_fixed_time(clock: WallClock, zone: ZoneInfo, start: int) -> int | None:
    for wall in clock.after(_wall(start + offset_at(zone, start))):
        here = wall.replace(tzinfo=zone)
        moment, other = int(here.timestamp()), int(here.replace(fold=1).timestamp())
        if other < moment:
            # A skipped wall time: with fold 0 and fold 1 it is on the two sides of the change.
            moment = change_of_offset(zone, other, moment)
        if moment > start:  # false in the second of two equal hours
            return moment
    return None


def _next_in_real_time(clock: WallClock, zone: ZoneInfo, start: int) -> int | None:
    give_up = start + _GIVE_UP_AFTER
    offset = offset_at(zone, start)
    while start < give_up:
        wall = next(clock.after(_wall(start + offset)), None)
        if wall is None:
            return None
        moment = _seconds(wall) - offset
        look = min(moment, start + DAY)
        if offset_at(zone, look) != offset:
            # The offset changes before that fire. Continue from the change with the new offset.
            start = change_of_offset(zone, start, look) - 1
            offset = offset_at(zone, start + 1)
        elif look == moment:
            return moment
        else:
            # No wall time before that fire matches, so changes before it do not matter. Continue from two days before
            # it, because an offset can change by a whole day.
            start = max(look, moment - 2 * DAY)
            offset = offset_at(zone, start)
    return None


def change_of_offset(zone: ZoneInfo, before: int, after: int) -> int:
    """The first second with the offset of `after`. The offset at `before` is a different one."""
    offset = offset_at(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        if offset_at(zone, middle) == offset:
            after = middle
        else:
            before = middle
    return after


def offset_at(zone: ZoneInfo, moment: int) -> int:
    offset = datetime.fromtimestamp(moment, zone).utcoffset() or _NONE
    return offset.days * DAY + offset.seconds


def _wall(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def _seconds(wall: datetime) -> int:
    passed = wall - _EPOCH
    return passed.days * DAY + passed.seconds
