"""The fields of a cron expression: what their text means.

A field is a list of values, ranges and steps, with names for months and weekdays. The day of the month knows `L` (the
last day) and `LW` (the last weekday, Monday to Friday), the day of the week `5L` (the last Friday) and `MON#2` (the
second Monday). `H` is replaced before (see cron_hash.py).
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DIGITS = re.compile(r"[0-9]+\Z")


class CronError(ValueError):
    """The text is not a cron expression. The message names the field."""


class Kind(msgspec.Struct, frozen=True):
    """One of the six fields. `first` is the number of the first name."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0

    def number(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.first
        if not _DIGITS.match(text) or not self.low <= int(text) <= self.high:
            short = text[:3]  # MONDAY
            names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
            meant = f"; did you mean {short}?" if short in self.names else ""
            raise self.bad(f"{text[:20]!r} is not one of {self.low} to {self.high}{names}{meant}")
        return int(text)

    def bad(self, why: str) -> CronError:
        return CronError(f"Bad {self.name}: {why}")


KINDS = (
    Kind("second", 0, 59),
    Kind("minute", 0, 59),
    Kind("hour", 0, 23),
    Kind("day-of-month", 1, 31),
    Kind("month", 1, 12, _MONTHS, first=1),
    Kind("day-of-week", 0, 7, _WEEKDAYS),
)
SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK = range(6)


class FieldValues(msgspec.Struct, frozen=True):
    """What a field matches. `bits` has a bit for each number. nth: weekdays as (0 to 6, 1 to 5); 0 means the last."""

    bits: int
    last_day: bool = False
    last_weekday: bool = False
    nth: frozenset[tuple[int, int]] = frozenset()

    def __contains__(self, number: int) -> bool:
        return bool(self.bits >> number & 1)

    @property
    def numbers(self) -> list[int]:
        return [number for number in range(self.bits.bit_length()) if self.bits >> number & 1]

    @property
    def plain(self) -> bool:
        """Whether the field matches fixed numbers: neither `L` nor `#`."""
        return not (self.last_day or self.last_weekday or self.nth)


@lru_cache(maxsize=4096)
def field_values(index: int, text: str) -> FieldValues:
    """The values of a field in capitals. Raises CronError. Cached: most lines consist of the same few fields."""
    bits, last_day, last_weekday, nth = 0, False, False, set()
    for term in text.split(","):
        body, slash, step = term.partition("/")
        if slash and (not _DIGITS.match(step) or int(step) == 0):
            raise KINDS[index].bad(f"{step[:20]!r} is not a step")
        if index == DAY_OF_MONTH and body in ("L", "LW"):
            last_day, last_weekday = last_day or body == "L", last_weekday or body == "LW"
        elif index == DAY_OF_WEEK and ("#" in term or term.endswith("L")):
            nth.add(_nth_weekday(term))
        else:
            bits |= _range(KINDS[index], body, int(step) if slash else None)
    if index == DAY_OF_WEEK and bits >> 7 & 1:
        bits = bits & 0x7F | 1  # 7 is Sunday too
    return FieldValues(bits, last_day, last_weekday, frozenset(nth))


def _nth_weekday(term: str) -> tuple[int, int]:
    kind = KINDS[DAY_OF_WEEK]
    day, hash_sign, nth = term.partition("#")
    if not hash_sign:
        if not _DIGITS.match(term[:-1]):
            raise kind.bad(f"{term[:20]!r} needs a number before L, such as 5L")
        return kind.number(term[:-1]) % 7, 0
    if not _DIGITS.match(nth) or not 1 <= int(nth) <= 5:
        raise kind.bad(f"{nth[:20]!r} is not one of 1 to 5")
    return kind.number(day) % 7, int(nth)


def _range(kind: Kind, body: str, step: int | None) -> int:
    """The bits of `*`, a number or a range. A number with a step begins a range that ends with the field."""
    begin, dash, end = body.partition("-")
    if body == "*":
        low, high = kind.low, kind.high
    elif dash:
        low, high = kind.number(begin), kind.number(end)
        if high < low:
            raise kind.bad(f"{body[:20]!r} ends before it begins")
    else:
        low = kind.number(body)
        high = kind.high if step is not None else low
    return sum(1 << number for number in range(low, high + 1, step or 1))
