"""Durations: `"90s"`, `"15m"`, `"1h30m"`, or a number of seconds. A year, `"1y"`, has 365 days."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown
from mainspring.wire.fields import LONGEST_DURATION

# Decimals, not floats: 9 * 0.001 is 0.009000000000000001, and 1.1 * 3600 is not 3960 either.
_UNITS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
    "w": Decimal(604800),
    "y": Decimal(365 * 86400),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|y)", re.ASCII)
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w|y))+\Z", re.ASCII)
_SECONDS = re.compile(r"[+-]?\d+(?:\.\d+)?\Z", re.ASCII)
_HINT = 'write "90s", "15m", "1h30m" or a number of seconds'
_LONGEST_TEXT = 400


def parse_duration(
    value: str | float, field: str, *, least: float = 0.0, most: float = LONGEST_DURATION, zero_ok: bool = True
) -> float:
    """Read a duration and return seconds. Raises InvalidInput that names `field`."""
    seconds = _seconds_of_text(value, field) if isinstance(value, str) else _seconds_of_number(value)
    if not math.isfinite(seconds) or seconds < least or seconds > most or (seconds == 0 and not zero_ok):
        low = f"at least {format_duration(least)}" if least else ("zero or more" if zero_ok else "more than zero")
        raise InvalidInput(
            f"{shown(value)} is out of range",
            code="invalid_duration",
            field=field,
            expected=f"{low}, at most {format_duration(most)}",
            hint=_HINT,
        )
    return seconds


def is_duration(text: str) -> bool:
    """Whether `text` is a duration with a unit, such as "5m"."""
    return len(text) <= _LONGEST_TEXT and _WHOLE.match(text.strip().lower()) is not None


def _seconds_of_text(value: str, field: str) -> float:
    text = value.strip().lower()
    if len(text) <= _LONGEST_TEXT:
        if _WHOLE.match(text):
            return float(sum(Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
        if _SECONDS.match(text):
            return float(text)
    raise InvalidInput(f"{shown(value)} is not a duration", code="invalid_duration", field=field, hint=_HINT)


def _seconds_of_number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer with more than 308 digits
        return math.inf if value > 0 else -math.inf


def format_duration(seconds: float) -> str:
    """The short form of a duration. `parse_duration` reads exactly the same value back."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    whole = int(seconds)
    if whole != seconds:
        milliseconds = round(seconds * 1000)
        if seconds < 1 and milliseconds / 1000 == seconds:
            return f"{milliseconds}ms"
        return f"{Decimal(repr(float(seconds))):f}s"
    parts = []
    for unit in ("y", "w", "d", "h", "m", "s"):
        size = int(_UNITS[unit])
        if whole >= size:
            parts.append(f"{whole // size}{unit}")
            whole %= size
    return "".join(parts) or "0s"
