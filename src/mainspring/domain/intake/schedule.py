"""Intake of the schedule: the full form, the short forms, and combinations that are refused."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.cron import read_cron, read_dst, refuse_dst
from mainspring.domain.intake.dependencies import read_names
from mainspring.domain.intake.event_schedule import EVENT_MEMBERS, read_event, refuse_without_event
from mainspring.domain.intake.recurrence import MEMBERS, read_rrule, with_members
from mainspring.domain.intake.schedule_calendar import in_calendar
from mainspring.domain.intake.times import parse_time
from mainspring.domain.schedules.schedule import MANUAL, NOW, Schedule, ScheduleKind
from mainspring.domain.texts import shown
from mainspring.wire.fields import bounds_of
from mainspring.wire.jobs import JobRequest
from mainspring.wire.schedules import ScheduleIn

WAYS = ("at", "every", "cron", "rrule", "after", "event")
_SHORTEST_EVERY, _ = bounds_of("schedule.every")
_OF_A_RULE = (*MEMBERS, "exdates", "calendar", "outside")
_SOURCES = ("schedule", "schedule_time", "cron_expression", "cron", "delay")
_KINDS = {kind.value for kind in ScheduleKind}


def read_schedule(request: JobRequest, now: datetime, before: Schedule | None = None) -> Schedule:
    """The schedule of `request`. Without one the job runs now. `before`: the schedule that the job has so far."""
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
    schedule = _one_source(request, timezone, field, now, before)
    if request.schedule_type is not None:
        _check_type(request.schedule_type, schedule)
    uses_zone = (
        schedule.kind in (ScheduleKind.CRON, ScheduleKind.AT, ScheduleKind.RRULE)
        or schedule.anchor is not None
        or schedule.end is not None
        or schedule.calendar is not None
    )
    if timezone is not None and not uses_zone:
        raise InvalidInput(
            "timezone has no effect on this schedule", field=field,
            hint='leave it out, or give wall times: cron, such as "0 9 * * MON-FRI", or rrule',
        )  # fmt: skip
    return schedule


def says_when(request: JobRequest) -> bool:
    """Whether the request says when the job runs."""
    return (
        request.schedule is not None
        or request.schedule_type is not None
        or request.schedule_time is not None
        or request.cron_expression is not None
        or request.cron is not None
        or request.timezone is not None
        or request.delay is not None
    )


def _one_source(
    request: JobRequest, timezone: str | None, timezone_field: str, now: datetime, before: Schedule | None
) -> Schedule:
    schedule = request.schedule
    if isinstance(schedule, ScheduleIn):
        return in_calendar(
            _schedule_object(schedule, timezone, timezone_field, now, before), schedule, timezone, timezone_field
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
            raise InvalidInput(
                "schedule_type FUTURE needs a schedule_time",
                field="schedule_time",
                hint='such as "2026-12-31T23:59:59Z"',
            )
        case "CRON":
            raise InvalidInput(
                "schedule_type CRON needs a cron_expression", field="cron_expression", hint='such as "0 9 * * MON-FRI"'
            )
        case "INTERVAL":
            raise InvalidInput(
                "schedule_type INTERVAL needs a schedule", field="schedule", expected='"schedule": {"every": "10m"}'
            )
        case "RRULE":
            raise InvalidInput(
                "schedule_type RRULE needs a schedule", field="schedule", expected='"schedule": {"rrule": "FREQ=DAILY"}'
            )
        case "EVENT":
            raise InvalidInput(
                "schedule_type EVENT needs a schedule",
                field="schedule",
                expected='"schedule": {"event": "order.paid"}',
            )
        case "AFTER":
            raise InvalidInput(
                "schedule_type AFTER needs a schedule", field="schedule", expected='"schedule": {"after": ["a"]}'
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
            expected="IMMEDIATE, FUTURE, CRON, INTERVAL, RRULE, AFTER, EVENT or MANUAL",
        )
    if kind != schedule.kind.value:
        raise InvalidInput(
            f"schedule_type is {kind}, but the rest of the request describes {schedule.kind.value}",
            field="schedule_type",
            hint="leave schedule_type out, or give the field that belongs to it",
        )


def _schedule_object(
    given: ScheduleIn, timezone: str | None, timezone_field: str, now: datetime, before: Schedule | None
) -> Schedule:
    named = [field for field in WAYS if getattr(given, field) is not None]
    lonely_event = next((name for name in EVENT_MEMBERS if not named and getattr(given, name) is not None), None)
    if lonely_event is not None:
        refuse_without_event(given)
    lonely = None if named else next((field for field in _OF_A_RULE if getattr(given, field) is not None), None)
    if lonely is not None:
        raise InvalidInput(
            f"{lonely} needs every, cron or rrule", field=f"schedule.{lonely}", hint="say when, or leave it out"
        )
    if len(named) != 1:
        raise InvalidInput(
            "schedule needs exactly one way to say when", field="schedule", expected="one of " + ", ".join(WAYS)
        )
    refuse_without_event(given)
    if given.anchor is not None and given.every is None:
        raise InvalidInput("anchor needs every", field="schedule.anchor", hint="leave it out")
    schedule = _rule(given, timezone, timezone_field, now)
    return with_members(schedule, given, timezone, timezone_field, now, before)


def _rule(given: ScheduleIn, timezone: str | None, timezone_field: str, now: datetime) -> Schedule:
    if given.cron is None and given.rrule is None:
        refuse_dst(given.dst)
    if given.at is not None:
        return Schedule(kind=ScheduleKind.AT, at=parse_time(given.at, "schedule.at", timezone, timezone_field))
    if given.every is not None:
        return _every(given.every, given.anchor, timezone, timezone_field)
    if given.after is not None:
        names = read_names(given.after, "schedule.after")
        if not names:
            raise InvalidInput("after names no job", field="schedule.after", expected="at least one job_id")
        return Schedule(kind=ScheduleKind.AFTER, after=tuple(names))
    if given.event is not None:
        return read_event(given)
    if given.rrule is not None:
        rule = read_rrule(given, timezone, timezone_field)
        gap, fold = read_dst(given.dst, rule.timezone)
        return msgspec.structs.replace(rule, gap=gap, fold=fold)
    assert given.cron is not None
    return read_cron(given.cron, given.dst, timezone, timezone_field, "schedule.cron", now)


def _every(given: str | float, anchor: str | None, timezone: str | None, timezone_field: str) -> Schedule:
    # Rounded to microseconds, like timestamps.
    every = timedelta(seconds=parse_duration(given, "schedule.every", least=_SHORTEST_EVERY)).total_seconds()
    start = None if anchor is None else parse_time(anchor, "schedule.anchor", timezone, timezone_field)
    return Schedule(kind=ScheduleKind.EVERY, every=every, anchor=start)
