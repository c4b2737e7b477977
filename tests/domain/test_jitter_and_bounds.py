"""Jitter, start and end change the fires of any rule. What `next`, `count` and `newest` say agrees with a list."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.schedules.bounds import Bounded
from mainspring.domain.schedules.fires import (
    count_fires,
    fires,
    newest_fires,
    next_fire,
)
from mainspring.domain.schedules.jitter import Jittered
from mainspring.domain.schedules.nominal_times import first_fire, first_fire_instead
from mainspring.domain.schedules.occurrences import Occurrences, each
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

T0 = datetime(2026, 11, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Listed:
    """The occurrences in a list."""

    def __init__(self, moments: list[datetime]) -> None:
        self._moments = moments

    def next(self, after: datetime) -> datetime | None:
        return next((moment for moment in self._moments if moment > after), None)

    def count(self, after: datetime, until: datetime) -> int:
        return sum(after < moment <= until for moment in self._moments)

    def newest(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        return [moment for moment in self._moments if after < moment <= until][-count:]


offsets = st.lists(st.integers(0, 5000), min_size=1, max_size=40, unique=True).map(sorted)


def at(second: float) -> datetime:
    return T0 + timedelta(seconds=second)


def check(occurrences: Occurrences, expected: list[datetime], after: datetime, span: timedelta) -> None:
    until = after + span
    inside = [moment for moment in expected if after < moment <= until]
    assert list(takewhile(lambda moment: moment <= until, each(occurrences, after))) == inside
    if span:
        assert occurrences.count(after, until) == len(inside)
        for count in (1, 2, len(inside) + 1):
            assert occurrences.newest(after, until, count) == inside[-count:]


@given(offsets, st.floats(0.001, 2000), st.integers(0, 2**32 - 1), st.integers(-100, 6000), st.integers(0, 6000))
def test_jitter_moves_each_fire_of_any_line_later_and_keeps_the_order(
    seconds: list[int], jitter: float, seed: int, after: int, span: int
) -> None:
    nominal = [at(second) for second in seconds]
    jittered = Jittered(Listed(nominal), jitter, seed)
    moved = list(each(jittered, at(-1)))
    assert len(moved) == len(nominal)
    for index, (early, late) in enumerate(zip(nominal, moved, strict=True)):
        assert early <= late < early + timedelta(seconds=jitter) + timedelta(milliseconds=1)
        assert index + 1 == len(nominal) or late < nominal[index + 1]
    check(jittered, moved, at(after), timedelta(seconds=span))
    for moment in moved:
        check(jittered, moved, moment, timedelta(seconds=span))


@given(
    offsets,
    st.none() | st.integers(0, 5000),
    st.none() | st.integers(0, 5000),
    st.integers(-9, 5500),
    st.integers(0, 5500),
)
def test_no_fire_is_before_the_start_or_after_the_end(
    seconds: list[int], start: int | None, end: int | None, after: int, span: int
) -> None:
    bounded = Bounded(
        Listed([at(second) for second in seconds]),
        None if start is None else at(start),
        None if end is None else at(end),
    )
    inside = [one for one in seconds if (start is None or one >= start) and (end is None or one <= end)]
    check(bounded, [at(second) for second in inside], at(after), timedelta(seconds=span))


def every(seconds: float, **more: object) -> Schedule:
    return msgspec.structs.replace(Schedule(kind=ScheduleKind.EVERY, every=seconds, anchor=T0), **more)


def cron(line: str, **more: object) -> Schedule:
    return msgspec.structs.replace(Schedule(kind=ScheduleKind.CRON, cron=line, timezone="Europe/Berlin"), **more)


def rrule(text: str, **more: object) -> Schedule:
    return msgspec.structs.replace(Schedule(kind=ScheduleKind.RRULE, rrule=text, anchor=T0), **more)


KINDS = [every(3600), cron("0 * * * *"), rrule("FREQ=HOURLY;BYMINUTE=0")]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 3600), st.integers(0, 2**32 - 1), st.integers(0, 200), st.integers(1, 50))
def test_every_kind_of_schedule_has_jitter_and_bounds(
    plain: Schedule, jitter: int, seed: int, after: int, hours: int
) -> None:
    schedule = msgspec.structs.replace(plain, jitter=float(jitter), seed=seed, start=at(9000), end=at(90 * 3600))
    moved = list(islice(fires(msgspec.structs.replace(schedule, start=None, end=None), T0), 120))
    expected = [moment for moment in moved if at(9000) <= moment <= at(90 * 3600)]
    begin, until = at(after * 1800), at(after * 1800) + hours * HOUR
    inside = [moment for moment in expected if begin < moment <= until]
    assert count_fires(schedule, begin, until) == len(inside)
    assert newest_fires(schedule, begin, until, 3) == inside[-3:]
    assert next_fire(schedule, begin) == next((moment for moment in expected if moment > begin), None)


def test_the_amount_is_stable_by_seed_and_time_and_spread_over_the_jitter() -> None:
    ten_minutes = 600.0
    one, same, other = (every(3600, jitter=ten_minutes, seed=seed) for seed in (1, 1, 2))
    assert list(islice(fires(one, T0), 50)) == list(islice(fires(same, T0), 50))
    assert list(islice(fires(one, T0), 50)) != list(islice(fires(other, T0), 50))
    amounts = []
    for seed in range(2000):
        fire = next_fire(every(3600, jitter=ten_minutes, seed=seed), T0 + HOUR - timedelta(seconds=1))
        assert fire is not None
        amounts.append((fire - T0 - HOUR).total_seconds())
    assert min(amounts) >= 0 and max(amounts) < ten_minutes
    tenths = Counter(int(amount // 60) for amount in amounts)
    assert len(tenths) == 10 and max(tenths.values()) < 300


def test_order_is_kept_where_a_change_of_clocks_leaves_less_room() -> None:
    schedule = cron("30 1,2 * * *", jitter=3600.0, seed=7)
    around = list(islice(fires(schedule, datetime(2026, 3, 27, tzinfo=UTC)), 12))
    assert all(early < late for early, late in pairwise(around))


def test_a_year_of_seconds_with_jitter_and_bounds_is_counted_fast() -> None:
    schedule = cron("* * * * * *", jitter=1.0, seed=3, start=T0, end=T0 + timedelta(days=400))
    used = time.process_time()
    assert abs(count_fires(schedule, T0, T0 + timedelta(days=365)) - 365 * 86400) <= 1
    newest_fires(schedule, T0, T0 + timedelta(days=365), 5)
    assert time.process_time() - used < 0.2


@given(
    changes=st.lists(
        st.tuples(st.integers(1, 9000), st.one_of(st.none(), st.floats(1, 3600))), min_size=1, max_size=12
    ),
    jitter=st.one_of(st.none(), st.floats(1, 3600)),
    seed=st.integers(0, 99),
)
@settings(max_examples=200, deadline=None)
def test_changes_of_the_jitter_neither_repeat_nor_lose_a_fire(
    changes: list[tuple[int, float | None]], jitter: float | None, seed: int
) -> None:
    """Each hour has one fire, whenever the jitter is changed."""
    schedule, now, fired = every(3600, jitter=jitter, seed=seed), T0, list[datetime]()
    due = first_fire(schedule, T0, T0)
    for seconds, other in [*changes, (36_000, None)]:
        now += timedelta(seconds=seconds)
        while due is not None and due <= now:
            fired.append(due)
            due = next_fire(schedule, due)
        changed = every(3600, jitter=other, seed=seed)
        due = first_fire_instead(changed, schedule, due, now, fired[-1] if fired else None)
        schedule = changed
    hours = [(moment - T0) // HOUR for moment in fired]
    assert hours == list(range(1, len(hours) + 1))
    assert len(hours) >= (now - T0) // HOUR - 1


def test_a_time_before_the_start_is_not_held_up_by_the_jitter() -> None:
    later = T0 + 10 * HOUR
    before = every(3600, jitter=1800.0, seed=1, start=later)
    now = T0 + HOUR + timedelta(minutes=1)
    following = next_fire(before, now)
    assert first_fire_instead(every(3600), before, following, now, None) == T0 + 2 * HOUR
