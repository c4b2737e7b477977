"""Intake of the calendar of a schedule. Which calendars there are is not known here."""

from __future__ import annotations

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.calendar_names import check_calendar_name
from mainspring.domain.schedules.schedule import Schedule
from mainspring.domain.schedules.zones import check_timezone
from mainspring.domain.texts import shown
from mainspring.wire.schedules import ScheduleIn

SKIP, NEXT = "skip", "next"  # a fire outside the calendar is left out, or moves to the next allowed time


def in_calendar(schedule: Schedule, given: ScheduleIn, timezone: str | None, timezone_field: str) -> Schedule:
    """The schedule with the calendar of the request."""
    if given.calendar is None:
        if given.outside is not None:
            raise InvalidInput(
                "outside needs a calendar", field="schedule.outside", hint="name a calendar, or leave it out"
            )
        return schedule
    if not schedule.recurring:
        raise InvalidInput(
            "a calendar works only with a schedule that recurs", field="schedule.calendar",
            expected="every, cron or rrule beside it",
        )  # fmt: skip
    outside = SKIP if given.outside is None else given.outside.lower()
    if outside not in (SKIP, NEXT):
        raise InvalidInput(
            f"{shown(given.outside)} is not known", field="schedule.outside",
            expected="skip (no fire) or next (the next allowed time)",
        )  # fmt: skip
    return msgspec.structs.replace(
        schedule,
        calendar=check_calendar_name(given.calendar, "schedule.calendar"),
        outside=None if outside == SKIP else outside,
        timezone=schedule.timezone if timezone is None else check_timezone(timezone, timezone_field),
    )
