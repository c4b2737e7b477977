"""Late fires: with every policy each fire is run once or recorded as missed once, and planning always ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.schedules.fires import fires, next_fire
from mainspring.domain.schedules.misfire import CHUNK, ON_TIME, FirePlan, MisfirePolicy, plan_fires
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.wire.states import MISFIRE_POLICIES

T0 = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
A_MICROSECOND = timedelta(microseconds=1)
policies = st.builds(
    MisfirePolicy,
    st.sampled_from(MISFIRE_POLICIES),
    st.none() | st.floats(0, 4000),
    st.integers(1, 1000) | st.integers(1, 5),
)
schedules = st.one_of(
    st.integers(1, 900).map(lambda seconds: every(seconds)),
    st.floats(1.0, 900.0).map(lambda seconds: every(round(seconds, 6))),
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 */2 * * *", "*/20 * * * * *", "15 3 * * *"]).map(
        lambda text: Schedule(kind=ScheduleKind.CRON, cron=text, timezone="Europe/Berlin")
    ),
)


def every(seconds: float) -> Schedule:
    return Schedule(kind=ScheduleKind.EVERY, every=seconds, anchor=T0)


def catch_up(schedule: Schedule, due: datetime, now: datetime, misfire: MisfirePolicy) -> list[FirePlan]:
    """All plans for a job until it is no longer due."""
    plans: list[FirePlan] = []
    following: datetime | None = due
    while following is not None and following <= now:
        plans.append(plan_fires(schedule, following, now, misfire))
        assert plans[-1].next_fire is None or plans[-1].next_fire > following, "a look must get on"
        following = plans[-1].next_fire
    return plans


def due_fires(schedule: Schedule, due: datetime, now: datetime) -> list[datetime]:
    return list(takewhile(lambda moment: moment <= now, fires(schedule, due - A_MICROSECOND)))


def check_plans(schedule: Schedule, due: datetime, now: datetime, plans: list[FirePlan]) -> None:
    """Every due fire is in exactly one plan entry, and the entries are in order."""
    expected = due_fires(schedule, due, now)
    runs = [moment for plan in plans for moment in plan.runs]
    missed = [one for plan in plans for one in plan.missed]
    assert len(runs) + sum(one.count for one in missed) == len(expected)
    covered: list[datetime] = []
    for one in missed:
        assert one.count > 0 and one.reason
        inside = [moment for moment in expected if one.first <= moment <= one.last]
        assert len(inside) == one.count and (inside[0], inside[-1]) == (one.first, one.last)
        covered += inside
    assert sorted(covered + runs) == expected
    assert runs == sorted(runs)
    begin = due
    for plan in plans:
        assert all(begin <= moment <= plan.through for moment in plan.runs)
        assert all(begin <= one.first <= one.last <= plan.through for one in plan.missed)
        assert [one.first for one in plan.missed] == sorted(one.first for one in plan.missed)
        assert plan.next_fire == next_fire(schedule, plan.through)
        begin = plan.next_fire or now
    assert begin > now


@settings(max_examples=200)
@given(schedules, st.integers(0, 12 * 3600), st.integers(0, 5 * 3600 * 10**6), policies)
def test_every_due_fire_is_run_once_or_missed_once(
    schedule: Schedule, start: int, behind: int, misfire: MisfirePolicy
) -> None:
    due = next_fire(schedule, T0 + timedelta(seconds=start))
    assert due is not None
    now = due + timedelta(microseconds=behind)
    plans = catch_up(schedule, due, now, misfire)
    check_plans(schedule, due, now, plans)
    check_policy(due_fires(schedule, due, now), now, misfire, [moment for plan in plans for moment in plan.runs])


@settings(max_examples=15)
@given(st.integers(CHUNK - 10, 3 * CHUNK), policies)
def test_a_backlog_longer_than_one_look_is_covered_too(seconds: int, misfire: MisfirePolicy) -> None:
    schedule, due = every(1), T0 + timedelta(seconds=1)
    now = due + timedelta(seconds=seconds)
    plans = catch_up(schedule, due, now, misfire)
    check_plans(schedule, due, now, plans)
    assert len(plans) <= 1 + seconds // (CHUNK // 2)
    check_policy(due_fires(schedule, due, now), now, misfire, [moment for plan in plans for moment in plan.runs])


def check_policy(expected: list[datetime], now: datetime, misfire: MisfirePolicy, runs: list[datetime]) -> None:
    on_time = [moment for moment in expected if now - moment <= ON_TIME]
    late = [moment for moment in expected if now - moment > ON_TIME]
    young = [m for m in late if misfire.grace is None or (now - m).total_seconds() <= misfire.grace]
    late_runs = {"skip": [], "once": [] if on_time else young[-1:], "all": young[-misfire.cap :]}
    assert runs == late_runs[misfire.policy] + on_time


@pytest.mark.parametrize("cap", [1, 3, 1000])
@pytest.mark.parametrize("policy", MISFIRE_POLICIES)
def test_fires_that_are_on_time_are_run_even_behind_a_backlog_of_just_one_look(policy: str, cap: int) -> None:
    due = T0 + timedelta(seconds=1)
    now = due + timedelta(seconds=CHUNK)
    plans = catch_up(every(1), due, now, MisfirePolicy(policy, None, cap))
    runs = [moment for plan in plans for moment in plan.runs]
    assert runs[-6:] == [now - timedelta(seconds=back) for back in (5, 4, 3, 2, 1, 0)]


def test_a_fire_within_five_seconds_is_simply_run() -> None:
    for policy in MISFIRE_POLICIES:
        plan = plan_fires(every(60), T0, T0 + timedelta(seconds=5), MisfirePolicy(policy))
        assert plan == FirePlan([T0], [], T0, T0 + timedelta(seconds=60))


def test_once_runs_the_latest_and_records_the_others() -> None:
    plan = plan_fires(every(60), T0, T0 + timedelta(seconds=200), MisfirePolicy("once"))
    assert plan.runs == [T0 + timedelta(seconds=180)]
    (missed,) = plan.missed
    assert (missed.first, missed.last, missed.count) == (T0, T0 + timedelta(seconds=120), 3)
    assert missed.reason == "coalesced into a later fire"
    assert plan.next_fire == T0 + timedelta(seconds=240)


def test_once_needs_no_late_run_when_one_is_on_time() -> None:
    now = T0 + timedelta(seconds=181)
    plan = plan_fires(every(60), T0, now, MisfirePolicy("once"))
    assert plan.runs == [T0 + timedelta(seconds=180)]
    assert [one.count for one in plan.missed] == [3]


def test_all_runs_the_newest_up_to_the_cap_within_the_grace() -> None:
    now = T0 + timedelta(seconds=600 + 30)
    plan = plan_fires(every(60), T0, now, MisfirePolicy("all", 400.0, 3))
    assert plan.runs == [T0 + timedelta(seconds=seconds) for seconds in (480, 540, 600)]
    assert [(one.count, one.reason) for one in plan.missed] == [
        (4, "older than the misfire grace"),
        (4, "over the misfire cap"),
    ]


@pytest.mark.parametrize("policy", ["once", "all"])
def test_a_fire_as_old_as_the_grace_is_run_and_an_older_one_is_not(policy: str) -> None:
    misfire = MisfirePolicy(policy, 90.0)
    now = T0 + timedelta(seconds=90)
    assert plan_fires(every(3600), T0, now, misfire).runs == [T0]
    late = plan_fires(every(3600), T0, now + A_MICROSECOND, misfire)
    assert (late.runs, [one.reason for one in late.missed]) == ([], ["older than the misfire grace"])


def test_skip_runs_nothing_that_is_late() -> None:
    plan = plan_fires(every(60), T0, T0 + timedelta(seconds=90), MisfirePolicy("skip"))
    assert plan.runs == [] and [one.reason for one in plan.missed] == ["late: misfire policy skip"]


def test_a_long_backlog_past_its_grace_is_recorded_as_that() -> None:
    now = T0 + timedelta(seconds=2 * CHUNK)
    plan = plan_fires(every(1), T0, now, MisfirePolicy("once", 60.0))
    assert [one.reason for one in plan.missed] == ["older than the misfire grace"]


@pytest.mark.parametrize(("policy", "runs", "missed"), [("skip", 0, 1), ("once", 1, 0), ("all", 1, 0)])
def test_a_one_time_job_that_is_late_follows_its_policy(policy: str, runs: int, missed: int) -> None:
    schedule = Schedule(kind=ScheduleKind.AT, at=T0)
    plan = plan_fires(schedule, T0, T0 + timedelta(days=3), MisfirePolicy(policy))
    assert (len(plan.runs), len(plan.missed), plan.next_fire) == (runs, missed, None)
