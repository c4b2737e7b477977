"""Computes fire times by checking every instant. It shares no code with the product's schedules."""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from tests.domain.cron_oracle import scan

_FARTHEST = timedelta(minutes=10)
_INSTANT = timedelta(microseconds=1)


def fires_between(schedule: dict[str, Any], first: datetime, last: datetime) -> list[datetime]:
    """All fires in [first, last]. `schedule` is the stored definition as JSON."""
    if "jitter" in schedule:
        return _jittered(schedule, first, last)
    match schedule["kind"]:
        case "CRON":
            return _cron_fires(_resolved(schedule), schedule.get("timezone", "UTC"), first, last)
        case "INTERVAL":
            return _interval_fires(schedule, first, last)
        case "RRULE":  # a rule of the load: some seconds of every minute
            seconds = {int(second) for second in schedule["rrule"].partition("BYSECOND=")[2].split(";")[0].split(",")}
            each = _cron_fires("* * * * * *", "UTC", max(first, parse(schedule["anchor"]) + _INSTANT), last)
            return [moment for moment in each if moment.second in seconds]
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


def nominal_of(schedule: dict[str, Any], fire: datetime) -> datetime:
    """The time of a fire before its jitter."""
    if "jitter" not in schedule:
        return fire
    return fires_between(_plain(schedule), fire - timedelta(seconds=schedule["jitter"]), fire)[-1]


def has(schedule: dict[str, Any], moment: datetime) -> bool:
    """Whether `moment` is a nominal time of the schedule."""
    return bool(fires_between(_plain(schedule), moment, moment))


def is_hashed(schedule: dict[str, Any]) -> bool:
    return any(field.startswith("H") for field in schedule.get("cron", "").split())


def _resolved(schedule: dict[str, Any]) -> str:
    """The cron line with numbers for `H/step` in its first field, the only use of it in the load."""
    if not is_hashed(schedule):
        return str(schedule["cron"])
    second, rest = schedule["cron"].split(maxsplit=1)
    step = int(second.removeprefix("H/"))
    amount = int.from_bytes(hashlib.blake2b(f"{schedule.get('seed', 0)}/0".encode(), digest_size=8).digest(), "big")
    return f"{amount % step}-59/{step} {rest}"


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


def _jittered(schedule: dict[str, Any], first: datetime, last: datetime) -> list[datetime]:
    """Each nominal time is moved by what its hash says, and never to the next one."""
    plain = _plain(schedule)
    jitter = timedelta(seconds=schedule["jitter"])
    found = []
    for nominal in fires_between(plain, first - jitter, last):
        following = first_after(plain, nominal)
        room = jitter if following is None else min(jitter, following - nominal)
        places = math.ceil(room / timedelta(milliseconds=1))
        microseconds = round(nominal.timestamp()) * 1_000_000 + nominal.microsecond
        key = int(schedule.get("seed", 0)).to_bytes(8, "big")
        amount = int.from_bytes(hashlib.blake2b(str(microseconds).encode(), digest_size=8, key=key).digest(), "big")
        found.append(nominal + timedelta(milliseconds=amount % places))
    return [moment for moment in found if first <= moment <= last]


def _plain(schedule: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schedule.items() if name != "jitter"}
