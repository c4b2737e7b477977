"""The fires of a cron expression in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from mainspring.domain.schedules.in_zone import count_in_zone, next_in_zone, second_of
from mainspring.domain.schedules.occurrences import before_newest, listed
from mainspring.domain.schedules.wall_clock import WallClock, wall_clock
from mainspring.domain.schedules.zones import zone


class CronFires:
    """The occurrences of a cron expression without `H` (see occurrences.py).

    gap, fold: what happens when clocks are moved, see clock_changes.py. None means Debian's rule: the line runs once at
    a fixed time (shift, first), and any other line follows real time (skip, both)."""

    def __init__(self, cron: str, timezone: str, gap: str | None = None, fold: str | None = None) -> None:
        self._rule = (cron, timezone, gap, fold)

    def next(self, after: datetime) -> datetime | None:
        return _next(*self._rule, second_of(after))

    def count(self, after: datetime, until: datetime) -> int:
        return count_in_zone(*_parsed(*self._rule), second_of(after), second_of(until))

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        rule = _parsed(*self._rule)
        before = before_newest(
            lambda low, high: count_in_zone(*rule, low, high), second_of(after), second_of(until), count
        )
        return listed(self, max(after, datetime.fromtimestamp(before, UTC)), until)[-count:]


@lru_cache(maxsize=16384)
def _next(cron: str, timezone: str, gap: str | None, fold: str | None, second: int) -> datetime | None:
    """The first fire after a second. Jobs that share a line and a moment share the answer: those that are registered
    together, and those that fire together."""
    parsed = _parsed(cron, timezone, gap, fold)  # a line that cannot be read is an error, not the end of its fires
    try:
        moment = next_in_zone(*parsed, second) if parsed[0].occurs else None
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
