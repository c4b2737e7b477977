"""Fires are counted exactly, as one look at each of them says, and a year of seconds takes milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainspring.domain.schedules.fires import count_fires, fires, newest_fires
from mainspring.domain.schedules.misfire import CHUNK, MisfirePolicy, missed_fires, plan_fires
from mainspring.domain.schedules.schedule import MANUAL, NOW, Schedule, ScheduleKind
from mainspring.wire.states import MISFIRE_POLICIES
from tests.domain.cron_oracle import CHANGES, STEADY_ZONES, day_fields, five_fields, six_fields

T0 = datetime(2026, 11, 15, 12, tzinfo=UTC)
A_MICROSECOND = timedelta(microseconds=1)
zones = st.sampled_from(STEADY_ZONES + sorted({zone for zone, _ in CHANGES}))
moments = st.datetimes(datetime(2001, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))
around_changes = st.builds(
    lambda change, seconds: (change[0], change[1] + timedelta(seconds=seconds)),
    st.sampled_from(CHANGES),
    st.integers(-30 * 3600, 6 * 3600),
)
SPECIAL_DAYS = ["0 0 L * *", "0 12 LW * *", "0 0 * * 5L", "15 3 * * MON#2", "0 0 13 * FRI", "30 2 31 * *", "0 0 29 2 *"]


def cron(expression: str, zone: str = "UTC") -> Schedule:
    return Schedule(kind=ScheduleKind.CRON, cron=expression, timezone=zone)


def every(seconds: float, anchor: datetime = T0) -> Schedule:
    return Schedule(kind=ScheduleKind.EVERY, every=seconds, anchor=anchor)


def one_by_one(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    return list(takewhile(lambda moment: moment <= until, fires(schedule, after)))


def check(schedule: Schedule, after: datetime, until: datetime) -> None:
    expected = one_by_one(schedule, after, until)
    assert count_fires(schedule, after, until) == len(expected)
    for count in (0, 1, 2, 7, len(expected), len(expected) + 1):
        assert newest_fires(schedule, after, until, count) == (expected[-count:] if count else [])


@settings(max_examples=150)
@given(five_fields, around_changes, st.integers(0, 60 * 3600 * 10**6))
@example("0,30 2,3 * * *", ("Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC)), 30 * 3600 * 10**6)
@example("30 2 * * *", ("Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC)), 30 * 3600 * 10**6)
@example("30 2 * * *", ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)), 30 * 3600 * 10**6)
@example("30 2 * * *", ("Europe/Berlin", datetime(2026, 10, 24, 12, tzinfo=UTC)), 30 * 3600 * 10**6)
@example("* 0 * * SUN", ("America/Sao_Paulo", datetime(2018, 11, 3, 3, tzinfo=UTC)), 30 * 3600 * 10**6)
@example("30 12 * * *", ("Pacific/Apia", datetime(2011, 12, 29, 12, tzinfo=UTC)), 60 * 3600 * 10**6)
def test_five_fields_are_counted_where_clocks_are_moved(
    expression: str, place: tuple[str, datetime], span: int
) -> None:
    zone, after = place
    check(cron(expression, zone), after, after + timedelta(microseconds=span))


@settings(max_examples=40)
@given(six_fields, around_changes, st.integers(0, 4 * 3600))
def test_six_fields_are_counted_where_clocks_are_moved(expression: str, place: tuple[str, datetime], span: int) -> None:
    zone, after = place
    check(cron(expression, zone), after, after + timedelta(seconds=span))


@pytest.mark.parametrize(("zone", "change"), CHANGES)
@pytest.mark.parametrize("expression", ["*/10 * * * *", "5,35 0-4,22,23 * * *", "0 0 * * *", "0 */30 * * * *"])
def test_spans_that_begin_or_end_at_a_change_are_counted(expression: str, zone: str, change: datetime) -> None:
    near = [change + timedelta(seconds=seconds) for seconds in (-7200, -1800, -1, 0, 1, 1800, 3599, 3600, 7200)]
    for after in near:
        for until in near:
            check(cron(expression, zone), after, until)


@settings(max_examples=60)
@given(five_fields | day_fields | st.sampled_from(SPECIAL_DAYS), zones, moments, st.integers(0, 40))
def test_days_of_cron_are_counted(expression: str, zone: str, after: datetime, days: int) -> None:
    check(cron(expression, zone), after, after + timedelta(days=days))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", [*SPECIAL_DAYS, "0 9 * * MON-FRI", "30 2 * * *", "0 */6 * * *"])
def test_years_of_cron_are_counted(expression: str, zone: str) -> None:
    check(cron(expression, zone), T0, T0 + timedelta(days=3 * 365 + 100))


@settings(max_examples=200)
@given(st.floats(1.0, 5000.0).map(lambda s: round(s, 6)), st.integers(-(10**10), 10**10), st.integers(-(10**9), 10**10))
def test_intervals_are_counted(seconds: float, start: int, span: int) -> None:
    after = T0 + timedelta(microseconds=start)
    check(every(seconds), after, after + timedelta(microseconds=span))


@pytest.mark.parametrize("schedule", [NOW, MANUAL, Schedule(kind=ScheduleKind.AT, at=T0)])
def test_other_schedules_are_counted(schedule: Schedule) -> None:
    for after in (T0 - A_MICROSECOND, T0):
        for until in (T0 - A_MICROSECOND, T0, T0 + A_MICROSECOND):
            check(schedule, after, until)


def test_a_range_of_missed_fires_begins_and_ends_with_a_fire() -> None:
    [missed] = missed_fires(every(60), T0, T0 + timedelta(seconds=601), "paused")
    assert (missed.first, missed.last, missed.count) == (T0, T0 + timedelta(seconds=600), 11)
    assert missed_fires(every(60), T0 + timedelta(seconds=1), T0 + timedelta(seconds=59), "paused") == []


def seconds_of(work: Callable[[], object]) -> float:
    """The CPU time of the fastest of five turns."""
    turns = []
    for _ in range(5):
        began = time.thread_time()
        work()
        turns.append(time.thread_time() - began)
    return min(turns)


@pytest.mark.parametrize("schedule", [cron("* * * * * *"), cron("* * * * * *", "Europe/Berlin"), every(1)], ids=str)
def test_a_year_of_every_second_is_counted_within_50_ms(schedule: Schedule) -> None:
    until = T0 + timedelta(days=365)
    [missed] = missed_fires(schedule, T0, until, "paused")
    assert (missed.first, missed.last, missed.count) == (T0, until, 365 * 86400 + 1)
    assert seconds_of(lambda: missed_fires(schedule, T0, until, "paused")) < 0.05


@pytest.mark.parametrize("policy", MISFIRE_POLICIES)
@pytest.mark.parametrize("grace", [None, 86400.0])
@pytest.mark.parametrize("schedule", [cron("* * * * * *"), cron("* * * * * *", "Europe/Berlin"), every(1)], ids=str)
def test_an_outage_of_a_year_is_planned_in_two_steps_of_50_ms(
    schedule: Schedule, policy: str, grace: float | None
) -> None:
    now, misfire = T0 + timedelta(days=365), MisfirePolicy(policy, grace, 1000)
    first = plan_fires(schedule, T0, now, misfire)
    assert first.next_fire is not None and first.runs == []
    second = plan_fires(schedule, first.next_fire, now, misfire)
    assert second.through == now
    counted = sum(missed.count for plan in (first, second) for missed in plan.missed)
    assert counted + len(second.runs) == 365 * 86400 + 1
    assert seconds_of(lambda: plan_fires(schedule, T0, now, misfire)) < 0.05
    following = first.next_fire
    assert seconds_of(lambda: plan_fires(schedule, following, now, misfire)) < 0.05


@pytest.mark.parametrize("policy", MISFIRE_POLICIES)
def test_a_backlog_of_one_step_is_planned_within_50_ms(policy: str) -> None:
    schedule, misfire = cron("* * * * * *", "Europe/Berlin"), MisfirePolicy(policy, None, 1000)
    now = T0 + timedelta(seconds=CHUNK - 1)
    plan = plan_fires(schedule, T0, now, misfire)
    assert len(plan.missed) == 1 and plan.missed[0].count + len(plan.runs) == CHUNK
    assert plan.through == now
    assert seconds_of(lambda: plan_fires(schedule, T0, now, misfire)) < 0.05


@settings(max_examples=60)
@given(
    st.sampled_from(["* * * * * *", "*/3 * 1-3 * * *", "* * * * *"]),
    around_changes,
    st.integers(0, 6 * 3600 * 10**6),
    st.builds(MisfirePolicy, st.sampled_from(MISFIRE_POLICIES), st.none() | st.floats(0, 20_000), st.integers(1, 1000)),
)
def test_a_long_outage_over_a_change_of_the_clock_loses_no_fire(
    expression: str, place: tuple[str, datetime], behind: int, misfire: MisfirePolicy
) -> None:
    schedule = cron(expression, place[0])
    due = next(fires(schedule, place[1]))
    now = due + timedelta(microseconds=behind)
    expected = one_by_one(schedule, due - A_MICROSECOND, now)
    following: datetime | None = due
    covered: list[datetime] = []
    while following is not None and following <= now:
        plan = plan_fires(schedule, following, now, misfire)
        for missed in plan.missed:
            inside = [moment for moment in expected if missed.first <= moment <= missed.last]
            assert (inside[0], inside[-1], len(inside)) == (missed.first, missed.last, missed.count)
            too_old = misfire.grace is not None and (now - missed.last).total_seconds() > misfire.grace
            assert (missed.reason == "older than the misfire grace") == (too_old and misfire.policy != "skip")
            covered += inside
        covered += plan.runs
        following = plan.next_fire
    assert sorted(covered) == expected
