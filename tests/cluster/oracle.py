"""Computes fire times by checking every instant. It shares no code with the product's schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from tests.domain.cron_oracle import scan

_FARTHEST = timedelta(minutes=10)
_INSTANT = timedelta(microseconds=1)


def fires_between(schedule: dict[str, Any], first: datetime, last: datetime) -> list[datetime]:
    """All fires in [first, last]. `schedule` is the stored definition as JSON."""
    match schedule["kind"]:
        case "CRON":
            return _cron_fires(schedule["cron"], schedule.get("timezone", "UTC"), first, last)
        case "INTERVAL":
            return _interval_fires(schedule, first, last)
        case "FUTURE":
            at = parse(schedule["at"])
            return [at] if first <= at <= last else []
        case _:
            return []


def first_after(schedule: dict[str, Any], after: datetime) -> datetime | None:
    """The first fire strictly after `after`, within ten minutes."""
    span = timedelta(seconds=5)
    while span < _FARTHEST:
        found = fires_between(schedule, after + _INSTANT, after + span)
        if found:
            return found[0]
        span *= 4
    return None


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _cron_fires(expression: str, zone: str, first: datetime, last: datetime) -> list[datetime]:
    """The fires of whole minutes are cached, because the rules check the same minutes several times."""
    found: list[datetime] = []
    minute = first.astimezone(UTC).replace(second=0, microsecond=0)
    while minute <= last:
        found += [moment for moment in _minute(expression, zone, minute) if first <= moment <= last]
        minute += timedelta(minutes=1)
    return found


@lru_cache(maxsize=4096)
def _minute(expression: str, zone: str, minute: datetime) -> tuple[datetime, ...]:
    before = minute - timedelta(seconds=1 if len(expression.split()) == 6 else 60)
    return tuple(scan(expression, zone, before, minute + timedelta(seconds=59)))


def _interval_fires(schedule: dict[str, Any], first: datetime, last: datetime) -> list[datetime]:
    anchor, step = parse(schedule["anchor"]), timedelta(seconds=schedule["every"])
    found = []
    moment = anchor
    if first > anchor:
        moment += ((first - anchor) // step) * step
    while moment <= last:
        if moment >= first:
            found.append(moment)
        moment += step
    return found
