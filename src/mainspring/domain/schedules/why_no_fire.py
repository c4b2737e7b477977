"""Why a schedule has no fire at a time: calendar, clock change, left-out dates, bounds, or none of these. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from mainspring.domain.schedules.calendar_fires import within_calendar
from mainspring.domain.schedules.dst_notes import dst_notes
from mainspring.domain.schedules.fires import by_rule, newest_fires, next_fire, nominal
from mainspring.domain.schedules.nominal_times import fire_of
from mainspring.domain.schedules.occurrences import Once
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.zones import zone
from mainspring.wire.states import JobWhyWord

_MOMENT = timedelta(microseconds=1)
_MINUTE, _SECOND, _DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)
_LOOK_BACK = timedelta(days=366)


class NoFire(msgspec.Struct, frozen=True):
    """Why there is no fire, as a word and as a sentence."""

    reason: JobWhyWord
    words: str


def span_of(moment: datetime) -> datetime:
    """The end of what a person means by a time: a whole minute, or a second if the time has seconds."""
    return moment + (_MINUTE if moment.second == moment.microsecond == 0 else _SECOND)


def fire_at(schedule: Schedule, moment: datetime) -> datetime | None:
    """The fire that a person means by `moment`: by its nominal time or by its time after jitter. Raises
    RulesNotLoaded."""
    before, end = moment - _MOMENT, span_of(moment)
    meant = nominal(schedule).next(before)
    if meant is not None and meant < end and (fire := fire_of(schedule, meant)) is not None:
        return fire
    fire = next_fire(schedule, before)
    return fire if fire is not None and fire < end else None


def fires_around(schedule: Schedule, moment: datetime) -> tuple[datetime | None, datetime | None]:
    """The last fire before `moment`, a year back at most, and the first one after it."""
    before = newest_fires(schedule, moment - _LOOK_BACK, moment - _MOMENT, 1)
    return (before[0] if before else None), next_fire(schedule, moment)


def why_no_fire(schedule: Schedule, moment: datetime) -> NoFire:
    """Why a schedule has no fire at `moment`. Raises RulesNotLoaded."""
    if schedule.kind is ScheduleKind.MANUAL:
        return NoFire("no_schedule", "The job has no schedule: it runs only by hand.")
    if schedule.kind is ScheduleKind.AFTER:
        return NoFire("no_schedule", f"The job has no times: it runs {schedule.words()}.")
    if schedule.kind is ScheduleKind.EVENT:
        return NoFire("no_schedule", f"The job has no times: it runs {schedule.words()}.")
    if schedule.start is not None and moment < schedule.start:
        return NoFire("not_due", f"The schedule begins on {in_zone(schedule.start, schedule)}.")
    if schedule.end is not None and moment > schedule.end:
        return NoFire("ended", f"The schedule has ended on {in_zone(schedule.end, schedule)}.")
    before, end = moment - _MOMENT, span_of(moment)
    rule = by_rule(schedule).next(before)
    if schedule.calendar is not None and rule is not None and rule < end:
        return NoFire("calendar", _excluded(schedule, rule))
    if schedule.exdates:
        whole = by_rule(msgspec.structs.replace(schedule, exdates=None)).next(before)
        if whole is not None and whole < end:
            return NoFire("left_out", f"The exdates of the schedule leave out {in_zone(whole, schedule)}.")
    day = f"{moment.astimezone(zone(schedule.timezone)):%Y-%m-%d}"
    for note in dst_notes(schedule, moment - _DAY, moment + _DAY):
        if f" on {day}: " in note:
            return NoFire("clock_change", f"The clocks of {schedule.timezone} changed: {note}.")
    return NoFire("not_due", f"The job is not due at {in_zone(moment, schedule)}: its schedule is {schedule.words()}.")


def _excluded(schedule: Schedule, rule: datetime) -> str:
    words = f"The calendar {schedule.calendar} excludes {in_zone(rule, schedule)}"
    if schedule.outside != "next":
        return f"{words}."
    moved = within_calendar(Once(rule), schedule).next(rule - _MOMENT)
    return f"{words}." if moved is None else f"{words}: the fire was moved to {in_zone(moved, schedule)}."


def in_zone(moment: datetime, schedule: Schedule) -> str:
    """A time by the clocks of the schedule."""
    local = moment.astimezone(zone(schedule.timezone))
    clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    return f"{local:%Y-%m-%d} {clock} ({schedule.timezone})"
