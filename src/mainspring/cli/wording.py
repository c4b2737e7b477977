"""Formats times and texts for people. The functions are pure: the caller passes the current time."""

from __future__ import annotations

from datetime import datetime

_STEPS = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"))


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
    """ "in 3m20s", "2h ago", "now", or "-" for None."""
    if moment is None:
        return "-"
    seconds = (moment - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def local(moment: datetime | None) -> str:
    """The time in the reader's time zone, with the name of the zone."""
    return "-" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def local_and_relative(moment: datetime | None, now: datetime) -> str:
    """ "2026-11-15 09:00:00 CET (in 3m20s)"."""
    return "-" if moment is None else f"{local(moment)} ({relative(moment, now)})"
