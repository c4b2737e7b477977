"""`H` picks a value for each job: jobs with one line spread, and each keeps its time."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.cron import check_cron
from mainspring.domain.schedules.cron_hash import without_hash
from mainspring.domain.schedules.fires import fires, next_fire
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind, for_job
from mainspring.domain.schedules.words import explain
from tests.domain.requests_as_sent import amended, defined

T0 = datetime(2026, 11, 15, 12, tzinfo=UTC)
seeds = st.integers(0, 2**32 - 1)


def values(cron: str, seed: int) -> list[str]:
    return without_hash(cron, seed).split()


@given(seeds)
def test_each_field_picks_a_value_of_its_own_range(seed: int) -> None:
    second, minute, hour, day, month, weekday = map(int, values("H H H H H H", seed))
    assert (second in range(60), minute in range(60), hour in range(24)) == (True, True, True)
    assert (day in range(1, 29), month in range(1, 13), weekday in range(7)) == (True, True, True)


@given(seeds, st.integers(0, 59), st.integers(0, 59), st.integers(1, 100))
def test_a_range_and_a_step_bound_the_values(seed: int, one: int, other: int, step: int) -> None:
    low, high = min(one, other), max(one, other)
    line = f"H({low}-{high})/{step} * * * *"
    schedule = Schedule(kind=ScheduleKind.CRON, cron=line, seed=seed)
    begin = T0 - timedelta(seconds=1)
    minutes = [moment.minute for moment in islice(fires(schedule, begin), 60) if moment < T0 + timedelta(hours=1)]
    assert low <= minutes[0] < low + step and minutes[-1] <= high < minutes[-1] + step
    assert all(later - earlier == step for earlier, later in pairwise(minutes))


def test_a_step_without_a_range_covers_the_field() -> None:
    for seed in range(50):
        [minute, *_] = values("H/15 * * * *", seed)
        first = int(minute.partition("-")[0])
        assert first in range(15) and minute == f"{first}-59/15"


@given(seeds)
def test_terms_of_a_field_keep_their_distance(seed: int) -> None:
    first, second = map(int, values("H(0-29),H(30-59) * * * *", seed)[0].split(","))
    assert second - first == 30


def test_a_thousand_jobs_spread_over_the_hour_and_the_day() -> None:
    lines = [without_hash("H H * * *", _seed(f"job-{number}")).split() for number in range(1000)]
    minutes, hours = Counter(line[0] for line in lines), Counter(line[1] for line in lines)
    assert len(minutes) == 60 and max(minutes.values()) < 40  # 17 on average
    assert len(hours) == 24 and max(hours.values()) < 75  # 42 on average
    assert len({tuple(line[:2]) for line in lines}) > 650, "the hour does not depend on the minute"


def test_the_value_depends_on_the_job_and_its_tenant_and_stays() -> None:
    hashed = Schedule(kind=ScheduleKind.CRON, cron="H H * * *")
    mine = for_job(hashed, 1, "report", T0)
    assert mine.cron == "H H * * *", "it is stored as it was written"
    assert for_job(mine, 1, "report", T0 + timedelta(days=400)) == mine
    others = [for_job(hashed, 1, "report-2", T0), for_job(hashed, 2, "report", T0)]
    assert len({next_fire(each, T0) for each in (mine, *others)}) == 3


def test_a_change_of_the_job_keeps_the_value() -> None:
    job = defined({"task": "a", "schedule": {"cron": "H H * * *", "timezone": "Europe/Berlin"}})
    job = msgspec.structs.replace(job, schedule=for_job(job.schedule, 1, "report", T0))
    changed = amended(job, {"priority": "high"})
    assert changed.schedule == job.schedule
    moved = for_job(amended(job, {"cron": "H H * * MON"}).schedule, 1, "report", T0)
    line, new_line = (without_hash(each.cron or "", each.seed or 0).split()[:2] for each in (job.schedule, moved))
    assert line == new_line
    plain = amended(job, {"cron": "0 9 * * *"}).schedule
    assert (plain.seed, plain.cron, plain.timezone) == (None, "0 9 * * *", "Europe/Berlin")


def test_words_show_the_line_and_what_it_resolves_to() -> None:
    schedule = Schedule(kind=ScheduleKind.CRON, cron="H H * * *", seed=4711)
    assert schedule.words() == "H H * * * = 6 15 * * * (UTC)"
    assert explain(schedule) == "At 15:06, every day, UTC"
    fire = next_fire(schedule, T0)
    assert fire is not None and (fire.hour, fire.minute) == (15, 6)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("H(5-2) * * * *", "Bad minute: 'H(5-2)' ends before it begins"),
        ("H(0-99) * * * *", "Bad minute: 'H(0-99)' is not within 0 to 59"),
        ("0 H(0-24) * * *", "Bad hour: 'H(0-24)' is not within 0 to 23"),
        ("0 0 H(1-31) * *", "Bad day-of-month: 'H(1-31)' is not within 1 to 28"),
        ("0 0 * H(0-3) *", "Bad month: 'H(0-3)' is not within 1 to 12"),
        ("0 0 * * H(1-7)", "Bad day-of-week: 'H(1-7)' is not within 0 to 6"),
        ("H(0-60) * * * * *", "Bad second: 'H(0-60)' is not within 0 to 59"),
        ("H/0 * * * *", "Bad minute: 'H/0' has a step of 0"),
        ("H(0-29)/0 * * * *", "Bad minute: 'H(0-29)/0' has a step of 0"),
        ("5-H * * * *", "Bad minute: '5-H' uses H in a way"),
        ("H-5 * * * *", "Bad minute: 'H-5' uses H in a way"),
        ("*/H * * * *", "Bad minute: '*/H' uses H in a way"),
        ("H() * * * *", "Bad minute: 'H()' uses H in a way"),
        ("H(5) * * * *", "Bad minute: 'H(5)' uses H in a way"),
        ("H(-5-5) * * * *", "Bad minute: 'H(-5-5)' uses H in a way"),
        ("0 0 * * H#2", "Bad day-of-week: 'H#2' uses H in a way"),
        ("0 0 * * MON#H", "Bad day-of-week: 'MON#H' uses H in a way"),
        ("0 0 * * HL", "Bad day-of-week: 'HL' needs a number"),
        ("H61 * * * *", "Bad minute: 'H61' uses H in a way"),
        ("61,H * * * *", "Bad minute: '61' is not one of 0 to 59"),
    ],
)
def test_a_use_of_h_without_a_meaning_is_refused(expression: str, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_cron(expression, "UTC", "schedule.cron", T0)
    assert (refused.value.code, refused.value.field) == ("invalid_cron", "schedule.cron")
    assert why in refused.value.detail


@pytest.mark.parametrize("expression", ["0 0 31 H *", "0 0 30 H(1-3) *", "0 0 LW * */6,H", "0 0 */31 2 H#5"])
def test_a_line_that_may_never_fire_is_refused_for_every_job(expression: str) -> None:
    with pytest.raises(InvalidInput):
        check_cron(expression, "UTC", "cron", T0)


@pytest.mark.parametrize(
    "expression",
    [
        "H H * * *",
        "h(0-29) 3 * * *",
        "0,H * * * *",
        "0 0 * * H",
        "0 0 29 H/2 *",
        "H H H * * *",
        "0 0 H H H",
        "H/100 * * * *",
    ],
)
def test_a_line_with_h_is_let_in_as_it_is_written(expression: str) -> None:
    assert check_cron(expression, "Europe/Berlin", "cron", T0) == expression


_term = st.one_of(
    st.just("H"),
    st.integers(1, 30).map("H/{}".format),
    st.tuples(st.integers(1, 6), st.integers(0, 5)).map(lambda pair: f"H({pair[0]}-{min(6, sum(pair))})"),
    st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda pair: f"H({pair[0]}-6)/{pair[1]}"),
    st.just("*"),
)


@settings(max_examples=150)
@given(st.lists(_term, min_size=5, max_size=6).map(" ".join), seeds, st.sampled_from(["UTC", "Europe/Berlin"]))
def test_a_line_that_is_let_in_fires_for_every_job(expression: str, seed: int, zone: str) -> None:
    try:
        check_cron(expression, zone, "cron", T0)
    except InvalidInput as refused:
        assert refused.code == "cron_never_fires"
        return
    schedule = Schedule(kind=ScheduleKind.CRON, cron=expression, timezone=zone, seed=seed)
    assert next_fire(schedule, T0) is not None
    assert explain(schedule) and explain(msgspec.structs.replace(schedule, seed=None))


def _seed(job_id: str) -> int:
    seed = for_job(Schedule(kind=ScheduleKind.CRON, cron="H * * * *"), 1, job_id, T0).seed
    assert seed is not None
    return seed
