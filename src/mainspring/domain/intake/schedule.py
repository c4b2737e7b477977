"""Intake of the schedule: the full form, the short forms, and combinations that are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput, NotSupportedYet
from mainspring.domain.intake.cron import read_cron, refuse_dst
from mainspring.domain.intake.schedule_calendar import in_calendar
from mainspring.domain.schedules.schedule import MANUAL, NOW, Schedule, ScheduleKind
from mainspring.domain.schedules.zones import check_timezone, zone
from mainspring.domain.texts import shown
from mainspring.wire.jobs import JobRequest, ScheduleIn

LATER_MEMBERS = ("rrule", "after", "jitter", "start", "end", "max_runs", "exdates")
_SOURCES = ("schedule", "schedule_time", "cron_expression", "cron", "delay")
_KINDS = {kind.value for kind in ScheduleKind}
_FIRST_YEAR, _LAST_YEAR = 1900, 9998  # the driver maps the first and last year of the calendar to infinity


def read_schedule(request: JobRequest, now: datetime) -> Schedule:
    """The schedule of `request`. Without one the job runs now."""
    named = [field for field in _SOURCES if getattr(request, field) is not None]
    if len(named) > 1:
        raise InvalidInput(f"{' and '.join(named)} both say when", field=named[1], hint="give one of them")
    timezone, field = request.timezone, "timezone"
    if isinstance(request.schedule, ScheduleIn) and request.schedule.timezone is not None:
        if timezone is not None and timezone != request.schedule.timezone:
            raise InvalidInput(
                "timezone and schedule.timezone differ", field="timezone", hint="give only schedule.timezone"
            )
        timezone, field = request.schedule.timezone, "schedule.timezone"
    schedule = _one_source(request, timezone, field, now)
    if request.schedule_type is not None:
        _check_type(request.schedule_type, schedule)
    uses_zone = (
        schedule.kind in (ScheduleKind.CRON, ScheduleKind.AT) or schedule.anchor is not None or schedule.calendar
    )
    if timezone is not None and not uses_zone:
        raise InvalidInput("timezone has no effect on this schedule", field=field, hint="leave it out")
    return schedule


def parse_time(text: str, field: str, timezone: str | None = None, timezone_field: str = "timezone") -> datetime:
    """An aware UTC time. A time without an offset needs `timezone`."""
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise _bad_time(f"{shown(text)} is not a time", field) from None
    named = None if timezone is None else zone(check_timezone(timezone, timezone_field))
    if moment.tzinfo is None:
        if named is None:
            raise InvalidInput(
                f"{shown(text)} has no time zone",
                code="missing_timezone",
                field=field,
                expected="a time with its zone",
                hint=f'add one: "{moment.isoformat()}Z" or "{moment.isoformat()}+01:00"',
            )
        moment = moment.replace(tzinfo=named)
    try:
        in_utc = moment.astimezone(UTC)
        agrees = named is None or in_utc.astimezone(named).utcoffset() == moment.utcoffset()
    except OverflowError:
        raise _bad_time(f"{shown(text)} is out of range", field) from None
    if not _FIRST_YEAR <= in_utc.year <= _LAST_YEAR:
        raise _bad_time(f"{shown(text)} is out of range", field)
    if not agrees and moment.tzinfo is not named:
        raise InvalidInput(
            f"{shown(text)} has an offset that is not the offset of {timezone}",
            field=timezone_field,
            hint="leave the zone out, or write the time without an offset",
        )
    return in_utc


def _bad_time(detail: str, field: str) -> InvalidInput:
    return InvalidInput(
        detail,
        code="invalid_time",
        field=field,
        expected=f"RFC 3339, from {_FIRST_YEAR} to {_LAST_YEAR}",
        hint='such as "2026-12-31T23:59:59Z"',
    )


def _one_source(request: JobRequest, timezone: str | None, timezone_field: str, now: datetime) -> Schedule:
    schedule = request.schedule
    if isinstance(schedule, ScheduleIn):
        return in_calendar(
            _schedule_object(schedule, timezone, timezone_field, now), schedule, timezone, timezone_field
        )
    if isinstance(schedule, str):
        word = schedule.strip().lower()
        if word == "now":
            return NOW
        if word == "manual":
            return MANUAL
        return read_cron(schedule, None, timezone, timezone_field, "schedule", now)
    if request.cron_expression is not None:
        return read_cron(request.cron_expression, None, timezone, timezone_field, "cron_expression", now)
    if request.cron is not None:
        return read_cron(request.cron, None, timezone, timezone_field, "cron", now)
    if request.delay is not None:
        if timezone is not None:
            raise InvalidInput("timezone has no effect on a delay", field=timezone_field, hint="leave it out")
        delay = parse_duration(request.delay, "delay")
        return Schedule(kind=ScheduleKind.AT, at=now + timedelta(seconds=delay))
    if request.schedule_time is not None:
        return Schedule(kind=ScheduleKind.AT, at=parse_time(request.schedule_time, "schedule_time", timezone))
    match (request.schedule_type or "").upper():
        case "MANUAL":
            return MANUAL
        case "FUTURE":
            raise InvalidInput("schedule_type FUTURE needs a schedule_time", field="schedule_time")
        case "CRON":
            raise InvalidInput("schedule_type CRON needs a cron_expression", field="cron_expression")
        case "INTERVAL":
            raise InvalidInput(
                "schedule_type INTERVAL needs a schedule", field="schedule", expected='"schedule": {"every": "10m"}'
            )
        case _:
            return NOW


def _check_type(given: str, schedule: Schedule) -> None:
    """Refuse a schedule_type that contradicts the rest of the request."""
    kind = given.upper()
    if kind not in _KINDS:
        raise InvalidInput(
            f"{shown(given)} is not a schedule type",
            field="schedule_type",
            expected="IMMEDIATE, FUTURE, CRON, INTERVAL or MANUAL",
        )
    if kind != schedule.kind.value:
        raise InvalidInput(
            f"schedule_type is {kind}, but the rest of the request describes {schedule.kind.value}",
            field="schedule_type",
            hint="leave schedule_type out, or give the field that belongs to it",
        )


def _schedule_object(given: ScheduleIn, timezone: str | None, timezone_field: str, now: datetime) -> Schedule:
    for field in LATER_MEMBERS:
        if getattr(given, field) is not None:
            raise NotSupportedYet(
                f"schedule.{field} is not supported yet", field=f"schedule.{field}", hint="leave it out for now"
            )
    named = [field for field in ("at", "every", "cron") if getattr(given, field) is not None]
    if len(named) != 1:
        raise InvalidInput(
            "schedule needs exactly one way to say when", field="schedule", expected="one of at, every, cron"
        )
    if given.anchor is not None and given.every is None:
        raise InvalidInput("anchor needs every", field="schedule.anchor", hint="leave it out")
    if given.cron is None:
        refuse_dst(given.dst)
    if given.at is not None:
        return Schedule(kind=ScheduleKind.AT, at=parse_time(given.at, "schedule.at", timezone, timezone_field))
    if given.every is not None:
        return _every(given.every, given.anchor, timezone, timezone_field)
    assert given.cron is not None
    return read_cron(given.cron, given.dst, timezone, timezone_field, "schedule.cron", now)


def _every(given: str | float, anchor: str | None, timezone: str | None, timezone_field: str) -> Schedule:
    # Rounded to microseconds, like timestamps.
    every = timedelta(seconds=parse_duration(given, "schedule.every", least=1.0)).total_seconds()
    start = None if anchor is None else parse_time(anchor, "schedule.anchor", timezone, timezone_field)
    return Schedule(kind=ScheduleKind.EVERY, every=every, anchor=start)
