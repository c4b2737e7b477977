"""The next fire of a cron expression in a zone. cronsim reads the calendar, on a plain wall clock; the steps across a
change of the zone's offset are taken here.

The rule is Debian cron's. A job at a fixed time (five fields, neither minute nor hour begins with `*`) runs once: in
the hour that is left out right after it, in the hour that comes twice the first time. All others follow real time:
what is left out is not run, what comes twice is run twice.

cronsim knows that rule too, but steps whole hours of real time. Where clocks move by half an hour (Lord Howe) that
lost fires, such as 02:30 of `30 * * * *` and 03:00 of `0 */3 * * *`, and where they move at midnight it fired
`* 0 * * SUN` at 01:00. On wall clocks it is right, and twice as fast.
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
_RANGE_OF_ONE = re.compile(r"(?<!\w)(\w+)-\1/0*[1-9][0-9]*(?!\w)")  # 5-5/2 is 5; cronsim reads it as 5/2
_DAY = 86400
_GIVE_UP_AFTER = 50 * 366 * _DAY  # as cronsim does: what has not come in 50 years never will


class WallClock(CronSim):
    """A cron expression, read once, that yields its fires on a clock that never jumps. Raises CronSimError."""

    def __init__(self, expression: str) -> None:
        super().__init__(_RANGE_OF_ONE.sub(r"\1", expression), _EPOCH)
        fields = expression.split()
        self.fixed_time = len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")

    def after(self, wall: datetime) -> Iterator[datetime]:
        """The fires strictly after `wall`, for as long as one comes within 50 years."""
        twin = object.__new__(CronSim)
        twin.__dict__.update(self.__dict__, dt=wall)
        return twin


wall_clock = lru_cache(maxsize=2048)(WallClock)  # one weighs up to 15 KB


def next_cron_fire(expression: str, zone: ZoneInfo | None, after: datetime) -> datetime | None:
    """The first fire strictly after `after`, in UTC; `zone` None is UTC."""
    clock = wall_clock(expression)
    start = int(after.replace(microsecond=0).timestamp())
    if zone is None:
        wall = next(clock.after(_wall(start)), None)
        return None if wall is None else wall.replace(tzinfo=UTC)
    moment = _next_at_fixed_time(clock, zone, start) if clock.fixed_time else _next_in_real_time(clock, zone, start)
    return None if moment is None else datetime.fromtimestamp(moment, UTC)


def _next_at_fixed_time(clock: WallClock, zone: ZoneInfo, start: int) -> int | None:
    for wall in clock.after(_wall(start + _offset(zone, start))):
        here = wall.replace(tzinfo=zone)
        moment, other = int(here.timestamp()), int(here.replace(fold=1).timestamp())
        if other < moment:
            # A wall time that is left out: its two readings lie on the two sides of the change.
            moment = _change(zone, other, moment)
        if moment > start:  # not so in the second of two equal hours
            return moment
    return None


def _next_in_real_time(clock: WallClock, zone: ZoneInfo, start: int) -> int | None:
    give_up = start + _GIVE_UP_AFTER
    offset = _offset(zone, start)
    while start < give_up:
        wall = next(clock.after(_wall(start + offset)), None)
        if wall is None:
            return None
        moment = _seconds(wall) - offset
        look = min(moment, start + _DAY)
        if _offset(zone, look) != offset:
            # The offset changes before that fire: from the change on, the new one counts.
            start = _change(zone, start, look) - 1
            offset = _offset(zone, start + 1)
        elif look == moment:
            return moment
        else:
            # No wall time up to that fire matches, so changes on the way do not matter: look again from close by
            # (two days, for an offset may change by a whole one).
            start = max(look, moment - 2 * _DAY)
            offset = _offset(zone, start)
    return None


def _change(zone: ZoneInfo, before: int, after: int) -> int:
    """The first second of the offset that holds at `after`, which another one preceded at `before`."""
    offset = _offset(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == offset:
            after = middle
        else:
            before = middle
    return after


def _offset(zone: ZoneInfo, moment: int) -> int:
    offset = datetime.fromtimestamp(moment, zone).utcoffset() or _NONE
    return offset.days * _DAY + offset.seconds


def _wall(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def _seconds(wall: datetime) -> int:
    passed = wall - _EPOCH
    return passed.days * _DAY + passed.seconds
