"""Fires by an independent road: every minute of a year is looked at, by the rules of another scheduler.

It shares no code with `domain/schedules`, so that a comparison finds mistakes of either. What schedulers do differently
is in `Rules`: what two restricted days mean together, and what happens when clocks are moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_TERM = re.compile(r"(\*|\?|[a-z0-9]+(?:-[a-z0-9]+)?)(?:/(\d+))?")
ALIASES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """star: a field that is no restriction is one that begins with a star ("begins", Debian), or is a star ("whole",
    Kubernetes). Days that are both restricted: either matches, unless `both`, as in Celery. moved: "debian" (a fixed
    time runs once on each day, others by real time) or "real" (skipped times do not run, repeated ones run twice)."""

    star: str = "begins"
    both: bool = False
    moved: str = "debian"


DEBIAN = Rules()
KUBERNETES = Rules(star="whole", moved="real")
ALL_MATCH = Rules(both=True)


class BadLine(ValueError):
    """Not five fields that this scheduler reads."""


def line_fires(line: str, zone: str, rules: Rules, start: datetime, end: datetime) -> Iterator[datetime]:
    """The fires of a cron line from `start` until `end`, in order. Raises BadLine."""
    fields = ALIASES.get(line.strip().lower(), line).lower().split()
    if len(fields) != len(_BOUNDS):
        raise BadLine(f"{line!r} does not have five fields")
    minutes, hours, days, months, weekdays = (values_of(index, text) for index, text in enumerate(fields))
    weekdays = {day % 7 for day in weekdays}
    open_days, open_weekdays = (_is_open(text, rules) for text in (fields[2], fields[4]))
    either = not (open_days or open_weekdays or rules.both)
    times = [(hour, minute) for hour in sorted(hours) for minute in sorted(minutes)]
    fixed = not (fields[0].startswith("*") or fields[1].startswith("*"))
    place = ZoneInfo(zone)
    day = (start.astimezone(place) - _DAY).date()
    last = (end.astimezone(place) + _DAY).date()
    found: set[datetime] = set()
    while day <= last:
        in_month, in_week = day.day in days, day.isoweekday() % 7 in weekdays
        if day.month in months and (in_month or in_week if either else in_month and in_week):
            found.update(_on_day(day, times, place, rules, fixed=fixed))
        day += _DAY
    yield from sorted(one for one in found if start <= one < end)


def _is_open(text: str, rules: Rules) -> bool:
    return text[0] in "*?" if rules.star == "begins" else text in ("*", "?", "*/1")


def values_of(index: int, text: str) -> set[int]:
    """The numbers of a field. Raises BadLine."""
    least, most = _BOUNDS[index]
    found: set[int] = set()
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None:
            raise BadLine(f"{term!r} cannot be read")
        body, step = match[1], int(match[2] or 1)
        if body in "*?":
            first, last = least, most if index < 4 else 6
        else:
            low, dash, high = body.partition("-")
            first = _number(index, low)
            last = _number(index, high) if dash else first if match[2] is None else most
        if not (least <= first <= last <= most and step):
            raise BadLine(f"{term!r} is out of range")
        found.update(range(first, last + 1, step))
    return found


def _number(index: int, text: str) -> int:
    names = {3: _MONTHS, 4: _WEEKDAYS}.get(index, [])
    if text in names:
        return names.index(text) + (1 if index == 3 else 0)
    if not text.isdigit():
        raise BadLine(f"{text!r} is not a number")
    return int(text)


def _on_day(
    day: date, times: list[tuple[int, int]], place: ZoneInfo, rules: Rules, *, fixed: bool
) -> Iterator[datetime]:
    midnight = datetime(day.year, day.month, day.day, tzinfo=place)
    begin, end = midnight.astimezone(UTC), datetime.combine(day + _DAY, midnight.timetz()).astimezone(UTC)
    if end - begin == _DAY and midnight.utcoffset() == (midnight + timedelta(hours=23, minutes=59)).utcoffset():
        for hour, minute in times:
            yield begin + timedelta(hours=hour, minutes=minute)
        return
    once = rules.moved == "debian" and fixed
    for hour, minute in times:
        first = datetime(day.year, day.month, day.day, hour, minute, tzinfo=place)
        instants = {one.astimezone(UTC) for one in (first, first.replace(fold=1))}
        real = sorted(
            one for one in instants if one.astimezone(place).replace(tzinfo=None) == first.replace(tzinfo=None)
        )
        if real:
            yield from real[:1] if once else real
        elif once:
            yield _after_gap(first, place)


def _after_gap(wall: datetime, place: ZoneInfo) -> datetime:
    """The first moment after the gap in which the wall time lies."""
    low, high = (wall.replace(fold=fold).astimezone(UTC) for fold in (1, 0))
    before = low.astimezone(place).utcoffset()
    while high - low > timedelta(minutes=1):
        middle = low + timedelta(minutes=int((high - low).total_seconds() // 120))
        if middle.astimezone(place).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high
