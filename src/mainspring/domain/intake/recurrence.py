"""Intake of what recurring schedules have in common: rules, jitter, start, end and max_runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise

import msgspec

from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.times import parse_time
from mainspring.domain.schedules.exclusions import is_one_of
from mainspring.domain.schedules.fires import next_fire, nominal
from mainspring.domain.schedules.occurrences import each
from mainspring.domain.schedules.rrule import last_moment
from mainspring.domain.schedules.rrule_text import RuleText, WallTime, read_text
from mainspring.domain.schedules.rule import read_rule
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind, for_job
from mainspring.domain.schedules.zones import check_timezone, zone
from mainspring.domain.texts import shown
from mainspring.wire.schedules import ScheduleIn

MEMBERS = ("jitter", "start", "end", "max_runs")
MOST_RUNS = 10**9
_MOST_EXDATES = 500
_LOOKED_AT = 64  # fires whose distances the jitter is compared with
_LEAST_JITTER = 0.001
_FARTHEST = timedelta(days=366 * 100)


def read_rrule(given: ScheduleIn, timezone: str | None, timezone_field: str) -> Schedule:
    """A rule. Its anchor is DTSTART, if it has one."""
    assert given.rrule is not None
    try:
        text = read_text(given.rrule)
        rule = read_rule(text.body)
    except InvalidInput as error:
        error.field = "schedule.rrule"
        raise
    tz = _zone_of(text, timezone, timezone_field)
    place = None if tz == "UTC" else zone(tz)
    if rule.until is not None:
        try:
            last_moment(rule.until, place)
        except (ValueError, OverflowError):
            raise _bad_rule(f"UNTIL={rule.until} is not a time", "such as 20301231T235959Z or 20301231") from None
    exdates = [_moment(one, tz, "EXDATE") for one in text.exdates]
    for index, one in enumerate(given.exdates or ()):
        field = f"schedule.exdates[{index}]"
        if "T" not in one.upper() and " " not in one.strip():
            raise InvalidInput(
                f"{shown(one)} has no time", field=field, expected="the time of a fire",
                hint='such as "2030-12-24T09:00:00+01:00"',
            )  # fmt: skip
        exdates.append(_time(one, field, tz, timezone_field))
    if len(exdates) > _MOST_EXDATES:
        raise InvalidInput(
            f"there are {len(exdates)} exdates", field="schedule.exdates", expected=f"at most {_MOST_EXDATES}"
        )
    return Schedule(
        kind=ScheduleKind.RRULE,
        rrule=text.as_stored(),
        timezone=tz,
        anchor=None if text.start is None else _moment(text.start, tz, "DTSTART"),
        exdates=tuple(sorted(set(exdates))) or None,
    )


def _zone_of(text: RuleText, timezone: str | None, timezone_field: str) -> str:
    start = text.start
    if start is None or start.zone is None:
        return "UTC" if timezone is None else check_timezone(timezone, timezone_field)
    check_timezone(start.zone, "schedule.rrule")
    if timezone is not None and timezone != start.zone:
        raise InvalidInput(
            f"DTSTART is in {start.zone}, and {timezone_field} is {shown(timezone)}",
            field=timezone_field,
            hint="leave it out, or write DTSTART without its zone",
        )
    return start.zone


def _moment(time: WallTime, timezone: str, name: str) -> datetime:
    """The moment of a time in a line."""
    tz = time.zone or timezone
    wall = time.wall.replace(tzinfo=zone(check_timezone(tz, "schedule.rrule")))
    if not 1900 <= wall.year <= 9998:
        raise _bad_rule(f"{time.text} in {name} is out of range", "a time from 1900 to 9998")
    moment = wall.astimezone(UTC)
    if name == "DTSTART" and moment.astimezone(wall.tzinfo).replace(tzinfo=None) != time.wall:
        raise _bad_rule(f"clocks in {tz} skip the DTSTART {time.text}", "a time that exists")
    return moment


def with_members(
    schedule: Schedule,
    given: ScheduleIn,
    timezone: str | None,
    timezone_field: str,
    now: datetime,
    before: Schedule | None,
) -> Schedule:
    """The schedule with its jitter, start, end and max_runs, if it fires at all. `before`: the schedule in the place of
    which it comes."""
    if given.start is None and before is not None:
        schedule = _with_same_start(before, schedule)
    named = [member for member in MEMBERS if getattr(given, member) is not None]
    if given.exdates is not None and given.rrule is None:
        raise InvalidInput("exdates need an rrule", field="schedule.exdates", hint="leave them out")
    if not named and schedule.kind is not ScheduleKind.RRULE:
        return schedule
    if not schedule.recurring:
        raise InvalidInput(f"{named[0]} needs every, cron or rrule", field=f"schedule.{named[0]}", hint="leave it out")
    start, end = (
        None if text is None else _time(text, f"schedule.{name}", timezone, timezone_field)
        for name, text in (("start", given.start), ("end", given.end))
    )
    _check_bounds(start, end, now)
    if given.max_runs is not None and not 1 <= given.max_runs <= MOST_RUNS:
        raise InvalidInput(
            f"max_runs is {given.max_runs}", field="schedule.max_runs", expected=f"a number from 1 to {MOST_RUNS}"
        )
    anchor = schedule.anchor
    if anchor is None and schedule.kind is not ScheduleKind.CRON:
        anchor = start
    if anchor is not None and anchor > now + _FARTHEST:
        raise _out_of_reach("start" if schedule.anchor is None else "rrule" if schedule.rrule else "anchor")
    jitter = None
    if given.jitter is not None:
        jitter = parse_duration(given.jitter, "schedule.jitter", least=_LEAST_JITTER)
    schedule = msgspec.structs.replace(
        schedule, anchor=anchor, start=start, end=end, max_runs=given.max_runs, jitter=jitter
    )
    _check_fires(schedule, now)
    return schedule


def _with_same_start(stored: Schedule, changed: Schedule) -> Schedule:
    """The changed schedule. If its rule is the same and says nothing about its start, it goes on from the old one."""
    same = (
        changed.anchor is None
        and changed.kind is stored.kind
        and (
            changed.every == stored.every
            if changed.kind is ScheduleKind.EVERY
            else changed.kind is ScheduleKind.RRULE
            and (changed.rrule, changed.timezone) == (stored.rrule, stored.timezone)
        )
    )
    return msgspec.structs.replace(changed, anchor=stored.anchor) if same else changed


def _time(text: str, field: str, timezone: str | None, timezone_field: str) -> datetime:
    """A time with its own offset, or else in the zone of the schedule."""
    try:
        has_offset = datetime.fromisoformat(text.upper()).tzinfo is not None
    except ValueError:
        has_offset = False
    return parse_time(text, field, None if has_offset else timezone, timezone_field)


def _check_bounds(start: datetime | None, end: datetime | None, now: datetime) -> None:
    if start is not None and start > now + _FARTHEST:
        raise _out_of_reach("start")
    if end is None:
        return
    if start is not None and start > end:
        raise InvalidInput("start is after end", field="schedule.end", expected="a time after start")
    if end <= now:
        raise InvalidInput(
            f"{end.isoformat()} has passed", code="time_passed", field="schedule.end", expected="a later time"
        )


def _out_of_reach(member: str) -> InvalidInput:
    return InvalidInput(
        f"{member} is more than 100 years ahead", field=f"schedule.{member}", expected="an earlier time"
    )


def _check_fires(schedule: Schedule, now: datetime) -> None:
    """Refuse a schedule without a fire, an exdate that is none, and a jitter that is longer than the interval."""
    plain = msgspec.structs.replace(for_job(schedule, 0, "", now), jitter=None, seed=None)
    after = now if schedule.start is None else max(now, schedule.start - timedelta(microseconds=1))
    if next_fire(plain, after) is None:
        raise never_fires(schedule)
    if schedule.exdates is not None:
        rule = nominal(msgspec.structs.replace(plain, exdates=None))
        for moment in schedule.exdates:
            if not is_one_of(rule, moment):
                raise InvalidInput(
                    f"{moment.isoformat()} is not a fire of the rule", field="schedule.exdates",
                    expected="the exact time of a fire that is left out", hint="leave it out, or give the rule a start",
                )  # fmt: skip
    if schedule.jitter is not None:
        gap = _smallest_gap(msgspec.structs.replace(plain, start=None, end=None, max_runs=None), after)
        if gap is not None and schedule.jitter > gap:
            raise InvalidInput(
                f"the jitter is longer than the interval: fires are {format_duration(gap)} apart",
                field="schedule.jitter", expected=f"at most {format_duration(gap)}",
            )  # fmt: skip


def never_fires(schedule: Schedule) -> InvalidInput:
    """The error for a schedule that has no fire."""
    if schedule.start is not None or schedule.end is not None:
        field = "schedule.end" if schedule.end is not None else "schedule.start"
        return InvalidInput(
            "the schedule has no fire between its start and its end", code="never_fires", field=field,
            hint="check start, end and the rule",
        )  # fmt: skip
    if schedule.rrule is not None:
        return InvalidInput(
            "the rule has no fire in the next 50 years", code="never_fires", field="schedule.rrule",
            hint="check the days, COUNT and UNTIL",
        )  # fmt: skip
    return InvalidInput("the schedule never fires", code="never_fires", field="schedule")


def runs_left_after(stored: Schedule, left: int | None, changed: Schedule) -> int | None:
    """How many runs a changed schedule has left: those that the job has made under max_runs count."""
    if changed.max_runs is None:
        return None
    made = 0 if stored.max_runs is None or left is None else stored.max_runs - left
    if changed.max_runs <= made:
        raise InvalidInput(
            f"the schedule has made {made} run(s) already", field="schedule.max_runs", expected=f"more than {made}"
        )
    return changed.max_runs - made


def _smallest_gap(schedule: Schedule, after: datetime) -> float | None:
    """The smallest distance of the next fires, in seconds."""
    if schedule.kind is ScheduleKind.EVERY and schedule.calendar is None:
        return schedule.every
    return _gap_of_day(schedule, after.replace(hour=0, minute=0, second=0, microsecond=0))


@lru_cache(maxsize=1024)
def _gap_of_day(schedule: Schedule, after: datetime) -> float | None:
    coming = list(islice(each(nominal(schedule), after), _LOOKED_AT))
    return min(((late - early).total_seconds() for early, late in pairwise(coming)), default=None)


def _bad_rule(detail: str, expected: str) -> InvalidInput:
    return InvalidInput(detail, code="invalid_rrule", field="schedule.rrule", expected=expected)
