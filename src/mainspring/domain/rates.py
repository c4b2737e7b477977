"""Rates: how often runs may start, such as `"100/m"`, `"5/s"` or `"10/30s"`."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.durations import format_duration, is_duration, parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

FASTEST = 1e-6  # seconds per start: 1,000,000/s
SLOWEST = 30 * 86400.0
MOST_BURST = 1_000_000

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WORDS = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}
_RATE = re.compile(r"(\d{1,12})\s*/\s*(\S+)\Z", re.ASCII)
_LONGEST_TEXT = 100
_HINT = 'write a number of starts and a time, such as "100/m", "5/s", "1000/h" or "10/30s"'
_RANGE = "at most 1000000/s, at least 1/30d"
_BURST_PART = 10  # the usual burst is what comes in a tenth of a second


class Rate(msgspec.Struct, frozen=True):
    """`count` starts per unit: s, m, h, d or a duration."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}"

    @property
    def every(self) -> float:
        """Seconds per start."""
        return (_UNITS.get(self.unit) or parse_duration(self.unit, "rate")) / self.count

    @property
    def usual_burst(self) -> int:
        """The burst where none is given: what comes in a tenth of a second, at least 1."""
        return max(1, math.ceil(1 / (self.every * _BURST_PART) - 1e-9))


def parse_rate(text: str, field: str) -> Rate:
    """Read a rate such as "100/m". Raises InvalidInput that names `field`."""
    found = _RATE.match(text.strip().lower()) if len(text) <= _LONGEST_TEXT else None
    unit = "" if found is None else _WORDS.get(found[2], found[2])
    if found is None or not (unit in _UNITS or is_duration(unit)):
        raise InvalidInput(f"{shown(text)} is not a rate", code="invalid_rate", field=field, hint=_HINT)
    count, period = int(found[1]), _UNITS.get(unit) or parse_duration(unit, field)
    if count == 0:
        raise InvalidInput(
            "a rate of 0 lets nothing start", code="invalid_rate", field=field, expected=_RANGE,
            hint="to stop all starts, pause instead; null removes the rate",
        )  # fmt: skip
    if not FASTEST <= period / count <= SLOWEST:
        raise InvalidInput(
            f"{shown(text)} is out of range", code="invalid_rate", field=field, expected=_RANGE, hint=_HINT
        )
    return Rate(count, unit)


def format_rate(every: float) -> str:
    """The rate of one start in so many seconds, in the first unit in which it is a whole number."""
    for unit, seconds in _UNITS.items():
        count = seconds / every
        if count >= 1 - 1e-9 and abs(count - round(count)) < 1e-9 * count:
            return f"{round(count)}/{unit}"
    return f"1/{format_duration(every)}"


class Bucket(msgspec.Struct, frozen=True):
    """A token bucket, as GCRA. `tat` is when it is full again; None or a time that has passed: it is full. `early`:
    tokens are given out up to so many seconds before their moment."""

    every: float
    burst: int
    tat: datetime | None = None
    early: float = 0.0

    def tokens(self, now: datetime) -> int:
        """How many tokens can be given out now."""
        return max(0, math.floor((self.early - self.missing(now)) / self.every + self.burst + 1e-9))

    def take(self, count: int, now: datetime) -> datetime:
        """The new `tat` after `count` tokens. It is rounded up, so that no window has a start too many."""
        return _after(now, self.missing(now) + count * self.every)

    def moment(self, number: int, now: datetime) -> datetime:
        """When the run that gets the token with this number, from 1, may start."""
        return _after(now, max(0.0, self.missing(now) + (number - self.burst) * self.every))

    def wait(self, now: datetime, taken: int = 0) -> float:
        """The seconds until a token can be given out, after `taken` tokens of this time."""
        return max(0.0, self.missing(now) + (taken + 1 - self.burst) * self.every - self.early)

    def ahead(self, now: datetime) -> bool:
        """Whether `tat` is later than it can be: the clock was set back, or the rate has changed. It must be written
        again, or the bucket would stay empty."""
        return self.tat is not None and (self.tat - now).total_seconds() > self._most

    def missing(self, now: datetime) -> float:
        """The seconds until the bucket is full. It is never more than empty, also if the clock was set back or the rate
        has changed."""
        left = 0.0 if self.tat is None else (self.tat - now).total_seconds()
        return min(max(0.0, left), self._most)

    @property
    def _most(self) -> float:
        return self.burst * self.every + self.early


def _after(now: datetime, seconds: float) -> datetime:
    return now + timedelta(microseconds=math.ceil(seconds * 1e6 - 1e-3))
