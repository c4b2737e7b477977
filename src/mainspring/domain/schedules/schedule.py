"""When a job is due. Pure functions: the same schedule and the same `after` always give the same next fire."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from cronsim import CronSimError

from mainspring.domain.durations import format_duration
from mainspring.domain.errors import InvalidInput, NotSupportedYet
from mainspring.domain.schedules.cron import next_cron_fire, wall_clock
from mainspring.domain.texts import shown

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_HASHED = re.compile(r"(?:^|[ ,/-])H", re.IGNORECASE)
_LONGEST_CRON = 1000


class ScheduleKind(StrEnum):
    NOW = "IMMEDIATE"
    AT = "FUTURE"
    EVERY = "INTERVAL"
    CRON = "CRON"
    MANUAL = "MANUAL"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of now, at, every, cron, manual. `anchor` is for every-schedules. Its default is the job's creation time."""

    kind: ScheduleKind
    at: datetime | None = None
    every: float | None = None
    anchor: datetime | None = None
    cron: str | None = None
    timezone: str = "UTC"

    @property
    def recurring(self) -> bool:
        return self.kind in (ScheduleKind.EVERY, ScheduleKind.CRON)

    @property
    def one_time(self) -> bool:
        return self.kind in (ScheduleKind.NOW, ScheduleKind.AT)

    def words(self) -> str:
        """The schedule in the short form in which users write it."""
        match self.kind:
            case ScheduleKind.NOW:
                return "now"
            case ScheduleKind.AT:
                return f"at {self.at.isoformat() if self.at else '?'}"
            case ScheduleKind.EVERY:
                return f"every {format_duration(self.every or 0.0)}"
            case ScheduleKind.CRON:
                return f"{self.cron} ({self.timezone})"
            case ScheduleKind.MANUAL:
                return "manual"


NOW = Schedule(kind=ScheduleKind.NOW)
MANUAL = Schedule(kind=ScheduleKind.MANUAL)


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    # Two names are not the time of a place: "localtime" is the setting of this machine, "Factory" means "not set".
    return frozenset(available_timezones()) - {"localtime", "Factory"}


def check_timezone(name: str, field: str) -> str:
    if name not in _zone_names():
        folded = {known.lower(): known for known in _zone_names()}
        hint = (
            f"did you mean {folded[name.lower()]!r}?" if name.lower() in folded else 'such as "Europe/Berlin" or "UTC"'
        )
        raise InvalidInput(
            f"{shown(name)} is not a known time zone",
            code="unknown_timezone",
            field=field,
            expected="the name of an IANA time zone",
            hint=hint,
        )
    return name


def check_cron(expression: str, timezone: str, field: str, now: datetime) -> str:
    """The expression with aliases expanded. Raises InvalidInput if it cannot be parsed or never fires."""
    if len(expression) > _LONGEST_CRON:
        raise _bad_cron("the expression is too long", field, f"at most {_LONGEST_CRON} characters")
    text = " ".join(expression.split())
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            raise _bad_cron(f"{shown(text)} is not a known alias", field, "one of " + ", ".join(sorted(ALIASES)))
        text = ALIASES[text.lower()]
    if _HASHED.search(text):
        raise NotSupportedYet(
            "H in a cron expression is not supported yet", field=field, hint="choose a value yourself"
        )
    fields = text.split()
    if len(fields) not in (5, 6):
        raise _bad_cron(f"{shown(expression)} has {len(fields)} field(s)", field)
    try:
        wall_clock(text)
        fires = _ever_fires(text, timezone, now.year)
    except CronSimError as error:
        if not _has_no_such_day(fields):
            raise _bad_cron(f"{shown(expression)} is not a cron expression: {error}", field) from None
        fires = False
    if not fires:
        raise InvalidInput(
            f"{shown(expression)} never fires", code="cron_never_fires", field=field, hint="check the day and the month"
        )
    return text


def _bad_cron(detail: str, field: str, expected: str | None = None) -> InvalidInput:
    return InvalidInput(
        detail,
        code="invalid_cron",
        field=field,
        expected=expected or "5 fields (minute hour day month weekday), or 6 with seconds first",
        hint='such as "0 9 * * MON-FRI" or "@daily"',
    )


def _has_no_such_day(fields: list[str]) -> bool:
    """Whether day and month are valid, but never occur together (30 February). cronsim reports a bad day for these."""
    *before, day, month, weekday = fields
    try:
        wall_clock(" ".join([*before, day, "*", weekday]))
        wall_clock(" ".join([*before, "*", month, weekday]))
    except CronSimError:
        return False
    return True


@lru_cache(maxsize=4096)
def _ever_fires(cron: str, timezone: str, year: int) -> bool:
    # Cached, because a negative answer takes up to 30 ms (it tries 50 years) and a batch can contain 10,000 of them.
    return _next_cron(cron, timezone, datetime(year, 1, 1, tzinfo=UTC)) is not None


def next_fire(schedule: Schedule, after: datetime) -> datetime | None:
    """The first fire strictly after `after` (aware), in UTC. None if there is none."""
    match schedule.kind:
        case ScheduleKind.NOW | ScheduleKind.MANUAL:
            return None
        case ScheduleKind.AT:
            return schedule.at if schedule.at is not None and schedule.at > after else None
        case ScheduleKind.EVERY:
            return _next_every(schedule, after)
        case ScheduleKind.CRON:
            assert schedule.cron is not None
            return _next_cron(schedule.cron, schedule.timezone, after)


def anchored(schedule: Schedule, now: datetime) -> Schedule:
    """Anchor an every-schedule without an anchor at `now`: its first fire is one interval later."""
    if schedule.kind is ScheduleKind.EVERY and schedule.anchor is None:
        return msgspec.structs.replace(schedule, anchor=now.astimezone(UTC).replace(microsecond=0))
    return schedule


def fires(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """All fires strictly after `after`, in order."""
    moment = next_fire(schedule, after)
    while moment is not None:
        yield moment
        moment = next_fire(schedule, moment)


def _next_every(schedule: Schedule, after: datetime) -> datetime | None:
    assert schedule.every is not None and schedule.anchor is not None
    anchor, step = schedule.anchor, timedelta(seconds=schedule.every)
    if after < anchor:
        return anchor
    try:
        # Integer microseconds: with floats the hundred-thousandth step would drift from the anchor's grid.
        return anchor + ((after - anchor) // step + 1) * step
    except OverflowError:
        return None  # after the year 9999


def _next_cron(cron: str, timezone: str, after: datetime) -> datetime | None:
    try:
        return next_cron_fire(cron, None if timezone == "UTC" else zone(timezone), after)
    except (OverflowError, ValueError):
        return None  # past the year 9999
