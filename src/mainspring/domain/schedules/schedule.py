"""When a job is due. Pure functions: the same schedule and the same `after` always give the same next fire."""

from __future__ import annotations

import re
import zlib
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

import msgspec
from cronsim import CronSimError

from mainspring.domain.durations import format_duration
from mainspring.domain.errors import InvalidInput, NotSupportedYet
from mainspring.domain.schedules.cron import wall_clock
from mainspring.domain.schedules.cron_fires import next_in_zone
from mainspring.domain.schedules.rrule_text import body_of
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
    RRULE = "RRULE"
    MANUAL = "MANUAL"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of now, at, every, cron, rrule, manual, and what changes its fires (see fires.py).

    anchor: where an every-schedule or a rule begins, by default its start or the job's creation time. seed: a hash of
    the job's id and tenant, from which `H` and jitter take their values. gap, fold: what a cron line or a rule does
    when clocks are moved forward or back. start, end: no fire is before or after them. max_runs: how many runs the
    schedule makes. outside: what happens to a fire at a time that the calendar excludes.
    """

    kind: ScheduleKind
    at: datetime | None = None
    every: float | None = None
    anchor: datetime | None = None
    cron: str | None = None
    timezone: str = "UTC"
    seed: int | None = None
    gap: str | None = None
    fold: str | None = None
    rrule: str | None = None
    exdates: tuple[datetime, ...] | None = None
    start: datetime | None = None
    end: datetime | None = None
    max_runs: int | None = None
    jitter: float | None = None
    calendar: str | None = None
    calendar_version: int | None = None
    outside: str | None = None

    @property
    def recurring(self) -> bool:
        return self.kind in (ScheduleKind.EVERY, ScheduleKind.CRON, ScheduleKind.RRULE)

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
            case ScheduleKind.RRULE:
                return f"{body_of(self.rrule or '')} ({self.timezone})"
            case ScheduleKind.MANUAL:
                return "manual"


NOW = Schedule(kind=ScheduleKind.NOW)
MANUAL = Schedule(kind=ScheduleKind.MANUAL)


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
    return next_in_zone(cron, timezone, datetime(year, 1, 1, tzinfo=UTC)) is not None


def for_job(schedule: Schedule, tenant: int, job_id: str, now: datetime) -> Schedule:
    """The schedule as the job stores it. An every-schedule without an anchor is anchored at `now`: its first fire is
    one interval later. A rule without a start begins after `now`."""
    if schedule.kind in (ScheduleKind.EVERY, ScheduleKind.RRULE) and schedule.anchor is None:
        schedule = msgspec.structs.replace(schedule, anchor=now.astimezone(UTC).replace(microsecond=0))
    if schedule.jitter is not None or _has_hash(schedule.cron):
        schedule = msgspec.structs.replace(schedule, seed=zlib.crc32(f"{tenant}/{job_id}".encode()))
    return schedule


def _has_hash(cron: str | None) -> bool:
    return cron is not None and _HASHED.search(cron) is not None
