"""Rates: how often runs may start. A rate is a token bucket (GCRA): one token per start, at most `burst` of them."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

MOST_PER_SECOND = 100_000
MOST_BURST = 1_000_000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WORDS = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}
_RATE = re.compile(r"(\d{1,12})\s*/\s*([a-z]+)\Z", re.ASCII)
_EXPECTED = 'a number of starts per s, m, h or d, such as "100/m"'
_BURST_PART = 10  # the default burst is what comes in a tenth of a second


class Rate(msgspec.Struct, frozen=True):
    """`count` starts per unit: s, m, h or d."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}"

    @property
    def every(self) -> float:
        """Seconds per start."""
        return _UNITS[self.unit] / self.count

    @property
    def usual_burst(self) -> int:
        """The burst where none is given: what comes in a tenth of a second, at least 1."""
        return max(1, -(-self.count // (_UNITS[self.unit] * _BURST_PART)))


def parse_rate(text: str, field: str) -> Rate:
    """Read a rate such as "100/m". Raises InvalidInput that names `field`."""
    found = _RATE.match(text.strip().lower())
    unit = None if found is None else _WORDS.get(found[2], found[2])
    if found is None or unit not in _UNITS:
        raise InvalidInput(
            f"{shown(text)} is not a rate", code="invalid_rate", field=field, expected=_EXPECTED,
            hint='write "10/s", "100/m", "5000/h" or "20000/d"',
        )  # fmt: skip
    count = int(found[1])
    if count == 0:
        raise InvalidInput(
            "a rate of 0 lets nothing start", code="invalid_rate", field=field, expected=_EXPECTED,
            hint="to stop all starts, pause instead; null removes the rate",
        )  # fmt: skip
    if count > MOST_PER_SECOND * _UNITS[unit]:
        raise InvalidInput(
            f"{shown(text)} is out of range", code="invalid_rate", field=field,
            expected=f"at most {MOST_PER_SECOND}/s", hint="null removes the rate",
        )  # fmt: skip
    return Rate(count, unit)


class Bucket(msgspec.Struct, frozen=True):
    """A token bucket. `tat` is when it is full again; None or a time that has passed: it is full."""

    every: float
    burst: int
    tat: datetime | None = None

    def tokens(self, now: datetime) -> int:
        """How many may start now."""
        return max(0, math.floor(self.burst - self._missing(now) / self.every + 1e-9))

    def take(self, count: int, now: datetime) -> datetime:
        """The new `tat` after `count` starts. It is rounded up, so that no window has a start too many."""
        return now + timedelta(microseconds=math.ceil((self._missing(now) + count * self.every) * 1e6 - 1e-3))

    def wait(self, now: datetime) -> float:
        """The seconds until a token is there."""
        return max(0.0, self._missing(now) - (self.burst - 1) * self.every)

    def ahead(self, now: datetime) -> bool:
        """Whether `tat` is later than it can be: the clock was set back, or the rate has changed. It must be written
        again, or the bucket would stay empty."""
        return self.tat is not None and (self.tat - now).total_seconds() > self.burst * self.every

    def _missing(self, now: datetime) -> float:
        """The seconds until the bucket is full. It is never more than empty, also if the clock was set back or the rate
        has changed."""
        left = 0.0 if self.tat is None else (self.tat - now).total_seconds()
        return min(max(0.0, left), self.burst * self.every)
