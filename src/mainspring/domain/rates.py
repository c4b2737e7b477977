"""Rates: `"100/m"`, `"5/s"`, `"10/30s"`. A rate is kept as seconds per token."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from mainspring.domain.durations import format_duration, is_duration, parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

FASTEST = 1e-6  # seconds per token: 1,000,000/s
SLOWEST = 30 * 86400.0
MOST_BURST = 1_000_000

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(\S+)\Z", re.ASCII)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_TEXT = 100
_HINT = 'write a number and a time, such as "100/m", "5/s", "1000/h" or "10/30s"'
_RANGE = "at most 1000000/s, at least 1/30d"


def parse_rate(value: str, field: str) -> float:
    """Read a rate and return seconds per token. Raises InvalidInput that names `field`."""
    text = value.strip().lower()
    found = _RATE.match(text) if len(text) <= _LONGEST_TEXT else None
    if found is None or not (found[2] in _UNITS or is_duration(found[2])):
        raise InvalidInput(f"{shown(value)} is not a rate", code="invalid_rate", field=field, hint=_HINT)
    period = _UNITS.get(found[2]) or parse_duration(found[2], field)
    count = float(found[1])
    every = period / count if count else math.inf
    if not FASTEST <= every <= SLOWEST:
        hint = "to stop a job or a queue, pause it" if count == 0 else _HINT
        raise InvalidInput(
            f"{shown(value)} is out of range", code="invalid_rate", field=field, expected=_RANGE, hint=hint
        )
    return every


def format_rate(every: float) -> str:
    """The short form of a rate, in the first unit in which it is a whole number."""
    for unit, seconds in _UNITS.items():
        count = seconds / every
        if count >= 1 - 1e-9 and abs(count - round(count)) < 1e-9 * count:
            return f"{round(count)}/{unit}"
    if every > 1:
        return f"1/{format_duration(every)}"
    return f"{Decimal(repr(1 / every)):f}/s"


def default_burst(every: float) -> int:
    """The tokens of one second, at least one."""
    return max(1, math.ceil(1 / every - 1e-9))
