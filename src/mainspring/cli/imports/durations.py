"""Durations as other schedulers write them."""

from __future__ import annotations

import re

_GO = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SYSTEMD = {
    **dict.fromkeys(("s", "sec", "second", "seconds", ""), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
    **dict.fromkeys(("ms", "msec"), 0.001),
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)")


def go_seconds(text: str) -> float | None:
    """1h30m, as Go writes it. None if it is something else."""
    return _seconds(text.strip(), _GO)


def systemd_seconds(text: str) -> float | None:
    """1h 30min, or a number of seconds."""
    return _seconds(text.strip().lower(), _SYSTEMD)


def _seconds(text: str, units: dict[str, float]) -> float | None:
    total, place = 0.0, 0
    while place < len(text):
        found = _PART.match(text, place)
        if found is None or found[2] not in units:
            return None
        total += float(found[1]) * units[found[2]]
        place = found.end()
    return total or None
