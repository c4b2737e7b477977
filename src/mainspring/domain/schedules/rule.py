"""Recurrence rules of RFC 5545: the text `FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9` as a checked struct."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import IntEnum
from functools import lru_cache

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_ORDINAL = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,3}")
_UNTIL = re.compile(r"[0-9]{8}(T[0-9]{6}Z?)?")
_LARGEST = 10**9
_LONGEST = 2000


class Frequency(IntEnum):
    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5


class RecurrenceRule(msgspec.Struct, frozen=True):
    """The parts of a rule. Lists are sorted; an empty one was not given. `by_day`: pairs of a number (0: none) and a
    weekday from 0 for Monday."""

    freq: Frequency
    interval: int = 1
    count: int | None = None
    until: str | None = None
    by_month: tuple[int, ...] = ()
    by_week: tuple[int, ...] = ()
    by_year_day: tuple[int, ...] = ()
    by_month_day: tuple[int, ...] = ()
    by_day: tuple[tuple[int, int], ...] = ()
    by_hour: tuple[int, ...] = ()
    by_minute: tuple[int, ...] = ()
    by_second: tuple[int, ...] = ()
    by_position: tuple[int, ...] = ()
    week_start: int = 0


def _whole(least: int, most: int) -> Callable[[str, str], int]:
    def read(value: str, name: str) -> int:
        if not value.isascii() or not value.isdigit() or len(value) > 10 or not least <= int(value) <= most:
            raise _bad(f"{name}={shown(value)} is out of range", f"a number from {least} to {most}")
        return int(value)

    return read


def _numbers(least: int, most: int, *, negative: bool = False) -> Callable[[str, str], tuple[int, ...]]:
    def read(value: str, name: str) -> tuple[int, ...]:
        found = set()
        for item in value.split(","):
            number = int(item) if _NUMBER.fullmatch(item) else None
            if number is None or not least <= (abs(number) if negative else number) <= most:
                also = f" or -{most} to -{least}" if negative else ""
                raise _bad(f"{shown(item)} in {name} is out of range", f"a number from {least} to {most}{also}")
            found.add(number)
        return tuple(sorted(found))

    return read


def _days(value: str, name: str) -> tuple[tuple[int, int], ...]:
    found = set()
    for item in value.split(","):
        match = _ORDINAL.fullmatch(item)
        number = int((match and match[1]) or 0)
        if match is None or (match[1] and number == 0) or abs(number) > 53:
            raise _bad(f"{shown(item)} in {name} is not a day", "such as MO, -1FR or 2TU")
        found.add((number, WEEKDAYS.index(match[2])))
    return tuple(sorted(found))


def _weekday(value: str, name: str) -> int:
    if value not in WEEKDAYS:
        raise _bad(f"{name}={shown(value)} is not a day", "one of " + ", ".join(WEEKDAYS))
    return WEEKDAYS.index(value)


def _frequency(value: str, _: str) -> Frequency:
    if value == "SECONDLY":
        raise _bad("FREQ=SECONDLY is not accepted", hint='use "every": "10s" instead of an rrule')
    if value not in Frequency.__members__:
        raise _bad(f"FREQ={shown(value)} is not a frequency", "one of " + ", ".join(Frequency.__members__))
    return Frequency[value]


def _until(value: str, name: str) -> str:
    if not _UNTIL.fullmatch(value):
        raise _bad(f"{name}={shown(value)} is not a time", "such as 20301231T235959Z or 20301231")
    return value


_PARTS: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    "FREQ": ("freq", _frequency),
    "INTERVAL": ("interval", _whole(1, _LARGEST)),
    "COUNT": ("count", _whole(1, _LARGEST)),
    "UNTIL": ("until", _until),
    "BYMONTH": ("by_month", _numbers(1, 12)),
    "BYWEEKNO": ("by_week", _numbers(1, 53, negative=True)),
    "BYYEARDAY": ("by_year_day", _numbers(1, 366, negative=True)),
    "BYMONTHDAY": ("by_month_day", _numbers(1, 31, negative=True)),
    "BYDAY": ("by_day", _days),
    "BYHOUR": ("by_hour", _numbers(0, 23)),
    "BYMINUTE": ("by_minute", _numbers(0, 59)),
    "BYSECOND": ("by_second", _numbers(0, 59)),
    "BYSETPOS": ("by_position", _numbers(1, 366, negative=True)),
    "WKST": ("week_start", _weekday),
}


@lru_cache(maxsize=4096)
def read_rule(text: str) -> RecurrenceRule:
    """The rule of a text in capitals and without blanks. Raises InvalidInput that names no field."""
    if len(text) > _LONGEST:
        raise _bad("the rule is too long", f"at most {_LONGEST} characters")
    values: dict[str, object] = {}
    for part in text.rstrip(";").split(";"):
        name, separator, value = part.partition("=")
        if not separator:
            raise _bad(f"{shown(part)} is not a part of a rule", "such as FREQ=DAILY;BYHOUR=9")
        if name not in _PARTS:
            close = get_close_matches(name, _PARTS, 1)
            raise _bad(
                f"{shown(name)} is not a part of a rule",
                "one of " + ", ".join(_PARTS),
                f"did you mean {close[0]}?" if close else None,
            )
        member, read = _PARTS[name]
        if member in values:
            raise _bad(f"{name} is given twice", hint="give it once, with a list")
        values[member] = read(value, name)
    if "freq" not in values:
        raise _bad("the rule has no FREQ", "one of " + ", ".join(Frequency.__members__), "such as FREQ=DAILY;BYHOUR=9")
    rule = msgspec.convert(values, RecurrenceRule)
    _check_parts(rule)
    return rule


def _check_parts(rule: RecurrenceRule) -> None:
    """Refuse what RFC 5545 excludes."""
    freq = rule.freq
    if rule.count is not None and rule.until is not None:
        raise _bad("COUNT and UNTIL cannot be combined", hint="give one of them")
    if rule.by_week and freq is not Frequency.YEARLY:
        raise _bad("BYWEEKNO goes with FREQ=YEARLY alone", hint="leave out BYWEEKNO")
    if rule.by_year_day and freq in (Frequency.MONTHLY, Frequency.WEEKLY, Frequency.DAILY):
        raise _bad(f"BYYEARDAY does not go with FREQ={freq.name}", hint="use FREQ=YEARLY")
    if rule.by_month_day and freq is Frequency.WEEKLY:
        raise _bad("BYMONTHDAY does not go with FREQ=WEEKLY", hint="use FREQ=DAILY")
    if any(number for number, _ in rule.by_day):
        if freq not in (Frequency.YEARLY, Frequency.MONTHLY):
            raise _bad(
                f"a numbered BYDAY does not go with FREQ={freq.name}", hint="use FREQ=MONTHLY, or leave out the number"
            )
        if rule.by_week:
            raise _bad("a numbered BYDAY does not go with BYWEEKNO", hint="leave out the number")
    if rule.by_position and not (
        rule.by_month or rule.by_week or rule.by_year_day or rule.by_month_day or rule.by_day
        or rule.by_hour or rule.by_minute or rule.by_second
    ):  # fmt: skip
        raise _bad("BYSETPOS needs another BY part", hint="such as FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1")


def _bad(detail: str, expected: str | None = None, hint: str | None = None) -> InvalidInput:
    return InvalidInput(detail, code="invalid_rrule", expected=expected, hint=hint)
