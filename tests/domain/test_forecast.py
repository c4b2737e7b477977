"""How many jobs fire in each minute: the same figures as if every schedule were stepped through."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.forecast import Census, Forecast, Forecaster
from mainspring.domain.schedules.minutes import minutes_of
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

NOW = datetime(2027, 3, 27, 20, 17, 33, tzinfo=UTC)
START = NOW.replace(second=0)
MINUTES = 18 * 60  # with the change of the clocks in Europe
LINES = (
    "* * * * *", "*/7 3-9 * * *", "30 2 * * *", "0 0 * * MON-FRI", "*/20 * * * * *", "15,45 5 9 28 3 *",
    "0 12 29 2 *", "* * 10 27 * *", "59 23 L * *", "5 4 * * SUN#4",
)  # fmt: skip
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca")


def cron(line: str, timezone: str = "UTC", **more: Any) -> Schedule:
    return Schedule(kind=ScheduleKind.CRON, cron=line, timezone=timezone, **more)


def every(seconds: float, anchor: datetime) -> Schedule:
    return Schedule(kind=ScheduleKind.EVERY, every=seconds, anchor=anchor)


def stepped(schedule: Schedule, minutes: int = MINUTES) -> dict[int, int]:
    end = START + timedelta(minutes=minutes)
    found = takewhile(lambda moment: moment < end, fires(schedule, START - timedelta(microseconds=1)))
    return Counter(int((moment - START).total_seconds() // 60) for moment in found)


def forecast(*jobs: tuple[Schedule, int], effort: int = 10**9, minutes: int = MINUTES) -> Forecast:
    census = Census(NOW)
    for number, (schedule, count) in enumerate(jobs):
        census.add(schedule, count, [f"j{number}"])
    forecaster = Forecaster(census, minutes, effort)
    for _ in forecaster.work():
        pass
    return forecaster.forecast()


@pytest.mark.parametrize("timezone", ZONES)
@pytest.mark.parametrize("line", LINES)
def test_the_minutes_of_a_cron_line_are_those_of_its_fires(line: str, timezone: str) -> None:
    schedule = cron(line, timezone)
    assert dict(minutes_of(schedule, START, MINUTES)) == stepped(schedule)


@given(
    st.one_of(
        st.integers(1, 200), st.integers(1, 3000).map(lambda n: n * 60), st.sampled_from([1.5, 0.75 + 60, 86400])
    ),
    st.integers(-400_000, 400_000),
)
def test_the_minutes_of_an_interval_are_those_of_its_fires(seconds: float, ahead: int) -> None:
    schedule = every(float(max(1, seconds)), NOW.replace(microsecond=0) + timedelta(seconds=ahead))
    minutes = dict(minutes_of(schedule, START, 200))
    assert minutes == stepped(schedule, 200)
    shown = forecast((schedule, 3), minutes=200)
    assert [shown.counts[minute] for minute in sorted(minutes)] == [3 * minutes[minute] for minute in sorted(minutes)]
    assert sum(shown.counts) == 3 * sum(minutes.values())


def test_jobs_with_equal_fires_are_one_group() -> None:
    census = Census(NOW)
    anchor = NOW - timedelta(days=3)
    for number in range(60):
        census.add(every(300, anchor + timedelta(seconds=300 * number + number)), 1, [f"e{number}"])
        census.add(cron("0 9 * * *"), 2, [f"c{number}"])
        census.add(cron("H * * * *", seed=number), 1, [f"h{number}"])
    assert census.jobs == 240
    assert len([key for key in census.groups if key.kind is ScheduleKind.EVERY]) <= 2  # the minutes in which they fire
    assert census.groups[cron("0 9 * * *")].part.jobs == 120
    assert all(key.seed is None for key in census.groups)


def test_figures_of_all_kinds_add_up_and_peaks_name_the_largest() -> None:
    jobs = [
        (cron("0 9 * * *"), 50), (cron("0 9 * * *", "Europe/Berlin"), 7), (cron("*/10 * * * *"), 3),
        (every(3600, datetime(2027, 1, 1, 0, 30, tzinfo=UTC)), 4),
    ]  # fmt: skip
    shown = forecast(*jobs)
    expected: Counter[int] = Counter()
    for schedule, count in jobs:
        for minute, number in stepped(schedule).items():
            expected[minute] += count * number
    assert shown.counts == [expected[minute] for minute in range(MINUTES)]
    assert (shown.jobs, shown.estimated) == (64, False)
    worst = max(shown.peaks, key=lambda peak: peak.fires)
    assert (worst.fires, START + timedelta(minutes=worst.minute)) == (53, datetime(2027, 3, 28, 9, tzinfo=UTC))
    assert [(shown.parts[place].jobs, count) for place, count in worst.parts] == [(50, 50), (3, 3)]
    text = msgspec.json.encode(shown)
    assert msgspec.json.decode(text, type=Forecast) == shown


def test_what_exceeds_the_effort_is_spread_evenly_and_said_to_be_estimated() -> None:
    jobs = [(cron(f"{number % 60} {number // 60} * * *"), 1) for number in range(1000)]
    shown = forecast((cron("0 9 * * *"), 500), *jobs, effort=2000, minutes=1440)
    assert shown.estimated
    assert shown.counts[(datetime(2027, 3, 28, 9, tzinfo=UTC) - START) // timedelta(minutes=1)] >= 500
    assert 1350 < sum(shown.counts) < 1650


def test_jobs_with_jitter_are_named_once_in_a_minute() -> None:
    jittered = [cron("0 * * * *", jitter=1.0, seed=seed) for seed in range(4)]
    made = forecast(*((one, 1) for one in jittered), (cron("0 * * * *"), 2))
    (peak, *_) = made.peaks
    assert peak.fires == 6
    assert [(made.parts[place].jobs, found) for place, found in peak.parts] == [(4, 4), (2, 2)]
