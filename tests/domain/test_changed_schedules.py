"""The first fire of a schedule that takes the place of another one: no time of the rule fires twice, and none that has
come and waits is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.schedules.calendar_fires import waiting_since, within_calendar
from mainspring.domain.schedules.fires import by_rule, next_fire, nominal
from mainspring.domain.schedules.misfire import MisfirePolicy, limited, plan_fires
from mainspring.domain.schedules.nominal_times import first_fire_instead, nominal_of
from mainspring.domain.schedules.occurrences import Once, listed
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from tests.domain.test_calendar_fires import WORKDAYS, cron, in_calendar

MOMENT, HOUR = timedelta(microseconds=1), timedelta(hours=1)
ALL = MisfirePolicy("all")
OPEN: dict[str, Any] = {"dates": ["2099-01-01"]}


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}").replace(tzinfo=UTC)


def instead(new: Schedule, old: Schedule, now: datetime, dealt_with: datetime | None = None) -> datetime | None:
    return first_fire_instead(
        new, old, next_fire(old, now if dealt_with is None else max(now, dealt_with)), now, dealt_with
    )


def utc(line: str, rules: dict[str, Any], outside: str = "next") -> Schedule:
    return cron(line, rules, outside, "UTC")


# -- a calendar that moves fires to the next open time


def test_a_fire_that_waits_for_a_closed_day_to_end_is_not_lost_if_the_day_opens() -> None:
    """The first of August is a Saturday: the run of the month waits for Monday."""
    monthly = "0 9 1 * *"
    closed, now = utc(monthly, {"weekdays": WORKDAYS}), at("08-01T12:00")
    assert next_fire(closed, now) == at("08-03T09:00")
    assert instead(utc(monthly, OPEN), closed, now) == at("08-01T09:00")  # past: at once
    assert instead(utc(monthly, {"weekdays": [*WORKDAYS, "SUN"]}), closed, now) == at("08-02T09:00")
    assert instead(utc(monthly, {"weekdays": ["TUE"]}), closed, now) == at("08-04T09:00")
    assert instead(utc(monthly, OPEN, "skip"), closed, now) == at("08-01T09:00")
    assert instead(cron(monthly, None, zone="UTC"), closed, now) == at("08-01T09:00")
    assert instead(utc("30 9 1 * *", OPEN), closed, now) == at("09-01T09:30")  # it has not got that time


def test_a_closed_time_that_was_left_out_stays_left_out() -> None:
    closed, now = utc("0 9 1 * *", {"weekdays": WORKDAYS}, "skip"), at("08-01T12:00")
    assert instead(utc("0 9 1 * *", OPEN), closed, now) == at("09-01T09:00")


def test_a_fire_that_has_run_does_not_move_to_a_later_day() -> None:
    """It ran at nine, and at noon the day is closed."""
    monthly, now, fired = "0 9 1 * *", at("07-01T12:00"), at("07-01T09:00")
    closed = utc(monthly, {"dates": ["2026-07-01"]})
    assert next_fire(closed, now) == at("07-02T09:00")
    assert instead(closed, utc(monthly, OPEN), now, fired) == at("08-01T09:00")


def test_fires_that_wait_for_the_morning_are_not_lost_if_the_night_opens() -> None:
    hours = {"hours": {"from": "09:00", "to": "17:00"}}
    closed, now = utc("0 20 * * *", hours), at("07-01T21:00")
    assert next_fire(closed, now) == at("07-02T09:00")
    assert instead(utc("0 20 * * *", OPEN), closed, now) == at("07-01T20:00")
    jitter = msgspec.structs.replace(closed, jitter=3600.0, seed=1)
    assert instead(utc("0 20 * * *", OPEN), jitter, now) == at("07-01T20:00")


def test_very_many_times_that_wait_together_are_not_made_up_for() -> None:
    closed, now = utc("* * * * *", {"weekdays": WORKDAYS}), at("08-01T12:00:30")
    assert instead(utc("* * * * *", OPEN), closed, now) == at("08-01T12:01")


RULES = [
    {"weekdays": WORKDAYS},
    {"weekdays": ["WED"]},
    {"hours": {"from": "09:00", "to": "17:00"}},
    {"weekdays": WORKDAYS, "hours": {"from": "09:00", "to": "17:00"}},
    {
        "dates": [{"from": "2026-07-03", "to": "2026-07-07"}],
        "blackouts": [{"from": "2026-07-01T08:00", "to": "2026-07-01T19:30"}],
    },
]
LINES = ["0 9 * * *", "0 10,20 * * *", "30 16 * * 5,6", "0 */5 * * *", "15 3 1,4 * *"]


@given(st.sampled_from(RULES), st.sampled_from(LINES), st.integers(0, 400))
@settings(max_examples=200)
def test_what_waits_is_what_a_plain_look_finds(rules: dict[str, Any], line: str, hours: int) -> None:
    schedule = utc(line, rules)
    moment = nominal(schedule).next(at("06-25T00:00") + hours * HOUR)
    assert moment is not None
    rule = by_rule(schedule)
    moved = {
        one: within_calendar(Once(one), schedule).next(one - MOMENT)
        for one in listed(rule, moment - timedelta(days=20), moment)
    }
    waiting = [one for one, to in moved.items() if to is not None and to >= moment]
    assert waiting_since(rule, schedule, moment) == waiting[0]


# -- plans


@pytest.mark.parametrize("seed", range(20))
def test_a_next_fire_that_the_schedule_has_no_more_is_no_second_one(seed: int) -> None:
    """A stored next fire with another seed: what follows has the next nominal time."""
    schedule = Schedule(ScheduleKind.EVERY, every=3600.0, anchor=at("07-01T00:00"), jitter=3600.0, seed=seed)
    other = msgspec.structs.replace(schedule, seed=seed + 1000)
    due = next_fire(other, at("07-01T00:59:59"))
    assert due is not None
    plan = plan_fires(schedule, due, due, ALL)
    assert (plan.runs, plan.nominal_runs, plan.nominal) == ([due], [at("07-01T01:00")], at("07-01T01:00"))
    assert plan.next_fire is not None and nominal_of(schedule, plan.next_fire) == at("07-01T02:00")


def test_nothing_is_planned_for_nominal_times_that_are_dealt_with() -> None:
    schedule = Schedule(ScheduleKind.EVERY, every=3600.0, anchor=at("07-01T00:00"), jitter=600.0, seed=5)
    due = next_fire(schedule, at("07-01T00:59"))
    assert due is not None
    plan = plan_fires(schedule, due, due, ALL, at("07-01T01:00"))
    assert (plan.runs, plan.missed, plan.through) == ([], [], due)
    assert plan.next_fire is not None and nominal_of(schedule, plan.next_fire) == at("07-01T02:00")
    late = plan_fires(schedule, due, at("07-01T05:30"), ALL, at("07-01T02:00"))
    assert late.nominal_runs == [at(f"07-01T0{hour}:00") for hour in (3, 4, 5)]
    assert (late.nominal, late.dealt_with) == (at("07-01T05:00"), at("07-01T05:00"))
    two = limited(late, 2)
    assert (len(two.runs), two.nominal_runs, two.nominal) == (2, late.nominal_runs[:2], late.nominal_runs[1])
    assert two.through == late.runs[1] and two.next_fire is None


def test_without_jitter_a_plan_has_no_nominal_times() -> None:
    schedule = Schedule(ScheduleKind.EVERY, every=3600.0, anchor=at("07-01T00:00"))
    plan = plan_fires(schedule, at("07-01T01:00"), at("07-01T01:00"), ALL)
    assert (plan.nominal, plan.nominal_runs, plan.dealt_with) == (None, [], at("07-01T01:00"))


def test_jitter_and_a_calendar_at_once() -> None:
    """Held up by both: the first of August waits for Monday and for its jitter."""
    rules = {"weekdays": WORKDAYS}
    before = msgspec.structs.replace(utc("0 9 1 * *", rules), jitter=7200.0, seed=3)
    following = next_fire(before, at("08-03T08:00"))
    assert following is not None and at("08-03T09:10") < following < at("08-03T11:00")
    now = at("08-03T09:05")
    plain = in_calendar(Schedule(ScheduleKind.CRON, cron="0 9 1 * *"), rules, "next")
    assert instead(plain, before, now) == at("08-03T09:00")
    assert instead(plain, before, now, at("08-03T09:00")) == at("09-01T09:00")
