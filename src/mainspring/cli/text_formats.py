"""Formats times and texts for people. The functions are pure: the caller passes the current time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

_STEPS = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"))
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 86400 * 365
# A unit is used up to twice the next one: "100 s" says more than "1 min".
_UNITS = ((2 * _MINUTE, 1, "s"), (2 * _HOUR, _MINUTE, "min"), (2 * _DAY, _HOUR, "h"), (2 * _YEAR, _DAY, "d"))


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How a command shows moments: relative to `now`, or with `utc` as absolute times in UTC."""

    now: datetime
    utc: bool = False

    def brief(self, moment: datetime | None) -> str:
        """For a cell of a table: "in 3 min", or "2026-11-15T09:00:00Z"."""
        if not self.utc:
            return relative(moment, self.now)
        return "-" if moment is None else in_utc(moment)

    def full(self, moment: datetime) -> str:
        """For a line of its own: "2026-11-15 09:00:00 CET (in 3 min)"."""
        return f"{in_utc(moment) if self.utc else local(moment)} ({relative(moment, self.now)})"


def memory(size: int) -> str:
    """A size with at most one decimal: "12.5MiB"."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f}".removesuffix(".0") + unit


def span(seconds: float) -> str:
    """A duration in its two largest units: "340ms", "12.5s", "3m20s", "2d4h"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds)
    for index, (size, unit) in enumerate(_STEPS):
        if whole >= size:
            below, below_unit = _STEPS[index + 1] if index + 1 < len(_STEPS) else (1, "s")
            rest = whole % size // below
            return f"{whole // size}{unit}" + (f"{rest}{below_unit}" if rest else "")
    return f"{whole}s"


def relative(moment: datetime | None, now: datetime) -> str:
    """ "in 3 min", "2 h ago", "now", or "-" for None."""
    if moment is None:
        return "-"
    seconds = (moment - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {rough(seconds)}" if seconds > 0 else f"{rough(-seconds)} ago"


def rough(seconds: float) -> str:
    """A duration in one unit, rounded down: "100 s", "3 min", "26 h", "40 d", "3 y"."""
    for bound, size, unit in _UNITS:
        if seconds < bound:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds // _YEAR)} y"


def local(moment: datetime | None) -> str:
    """The time in the reader's time zone, with the name of the zone."""
    return "-" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def in_utc(moment: datetime) -> str:
    """ "2026-11-15T09:00:00Z": --since and --until accept it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
