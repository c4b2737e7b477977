"""Each fire has one nominal time, and leads back to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.nominal_times import fire_of, nominal_of
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

T0 = datetime(2026, 3, 28, tzinfo=UTC)  # a day before clocks change in Berlin
MOMENT = timedelta(microseconds=1)

rules = st.sampled_from(
    [
        Schedule(ScheduleKind.CRON, cron="0 6 * * *"),
        Schedule(ScheduleKind.CRON, cron="*/15 * * * *", timezone="Europe/Berlin"),
        Schedule(ScheduleKind.CRON, cron="30 2 * * *", timezone="Europe/Berlin"),
        Schedule(ScheduleKind.EVERY, every=90.0, anchor=T0 - timedelta(days=3)),
        Schedule(ScheduleKind.EVERY, every=1.0, anchor=T0),
        Schedule(ScheduleKind.RRULE, rrule="FREQ=HOURLY;BYMINUTE=0,1,40", anchor=T0),
    ]
)
jitters = st.sampled_from([0.0005, 0.001, 0.5, 1.0, 60.0, 900.0, 86400.0]) | st.floats(0.001, 90000)
seeds = st.integers(0, 2**32 - 1)


@given(rules, st.none() | jitters, seeds, st.integers(0, 3 * 86400))
def test_every_fire_leads_to_its_nominal_time_and_back(
    rule: Schedule, jitter: float | None, seed: int, second: int
) -> None:
    schedule = msgspec.structs.replace(rule, jitter=jitter, seed=seed)
    after = T0 + timedelta(seconds=second)
    nominal = set(takewhile(lambda one: one < after + timedelta(days=9), islice(fires(rule, after - timedelta(1)), 9)))
    for fire in islice(fires(schedule, after), 5):
        moment = nominal_of(schedule, fire)
        assert fire_of(schedule, moment) == fire
        assert next(fires(rule, moment - MOMENT)) == moment
    for moment in nominal:
        found = fire_of(schedule, moment)
        assert found is not None and nominal_of(schedule, found) == moment


@given(jitters, seeds)
def test_a_time_of_another_job_has_no_fire(jitter: float, seed: int) -> None:
    schedule = Schedule(ScheduleKind.CRON, cron="0 6 * * *", jitter=jitter, seed=seed)
    assert fire_of(schedule, T0 + timedelta(hours=7)) is None
    assert fire_of(msgspec.structs.replace(schedule, jitter=None), T0 + timedelta(hours=7)) is None


def test_a_fire_that_start_or_end_leaves_out_is_none() -> None:
    six = T0 + timedelta(hours=6)
    schedule = Schedule(ScheduleKind.CRON, cron="0 6 * * *", jitter=3600.0, seed=7)
    fire = fire_of(schedule, six)
    assert fire is not None and fire > six
    assert fire_of(msgspec.structs.replace(schedule, end=fire - MOMENT), six) is None
    assert fire_of(msgspec.structs.replace(schedule, start=fire + MOMENT), six) is None
    later = msgspec.structs.replace(schedule, start=six + MOMENT)
    assert (fire_of(later, six), nominal_of(later, fire)) == (fire, six)


def test_a_time_that_is_no_fire_stands_for_itself() -> None:
    schedule = Schedule(ScheduleKind.CRON, cron="0 6 * * *", jitter=60.0, seed=7)
    assert nominal_of(schedule, T0) == T0
    assert fire_of(Schedule(ScheduleKind.MANUAL), T0) is None
