"""The slices of a backfill: together they are the fires of its range, each once, in the order that was asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.backfills import FireRange, backfill_of, count_in, cursor_after, first_cursor, next_slice
from mainspring.domain.errors import InvalidInput
from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind

START = datetime(2025, 3, 28, tzinfo=UTC)  # a change of the clocks is in the range
CRONS = ("*/7 * * * *", "30 2 * * *", "0 * * * *", "15 1-3 * * SUN", "0 0 29 2 *")
SCHEDULES = st.one_of(
    st.builds(
        lambda cron, zone: Schedule(kind=ScheduleKind.CRON, cron=cron, timezone=zone),
        st.sampled_from(CRONS),
        st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    ),
    st.builds(
        lambda every, offset: Schedule(kind=ScheduleKind.EVERY, every=every, anchor=START + timedelta(seconds=offset)),
        st.floats(min_value=60, max_value=90_000).map(lambda seconds: round(seconds, 6)),
        st.integers(min_value=-200_000, max_value=200_000),
    ),
)
MOMENTS = st.integers(min_value=0, max_value=4 * 86_400).map(lambda seconds: START + timedelta(seconds=seconds))


@given(SCHEDULES, MOMENTS, MOMENTS, st.booleans(), st.data())
def test_slices_are_the_fires_of_the_range_each_once(
    schedule: Schedule, one: datetime, other: datetime, newest_first: bool, data: st.DataObject
) -> None:
    """Also if somebody stops in the middle of a slice, and the next one begins at the cursor from there."""
    chosen = FireRange(min(one, other), max(one, other) + timedelta(seconds=1))
    before = chosen.start - timedelta(microseconds=1)
    expected = list(takewhile(lambda moment: moment < chosen.end, fires(schedule, before)))
    try:
        assert count_in(schedule, chosen) == len(expected)
    except InvalidInput as error:
        assert (error.code, expected) == ("no_fires", [])
    cursor, found = first_cursor(chosen, newest_first=newest_first), list[datetime]()
    while cursor > chosen.start if newest_first else cursor < chosen.end:
        count = data.draw(st.integers(min_value=1, max_value=400))
        taken = next_slice(schedule, chosen, cursor, newest_first=newest_first, count=count)
        assert len(taken.times) <= count
        dealt_with = data.draw(st.integers(min_value=min(1, len(taken.times)), max_value=len(taken.times)))
        found += taken.times[:dealt_with]
        over = dealt_with == len(taken.times)
        cursor = taken.end if over else cursor_after(found[-1], newest_first=newest_first)
    assert found == (expected[::-1] if newest_first else expected)


@pytest.mark.parametrize(
    ("trigger", "backfill_id"),
    [(None, None), ("at", None), ("manual:x", None), ("replay:backfill:x", None), ("backfill:x", "x")],
)
def test_a_trigger_names_its_backfill(trigger: str | None, backfill_id: str | None) -> None:
    assert backfill_of(trigger) == backfill_id


def test_a_range_of_a_century_is_counted_in_no_time() -> None:
    schedule = Schedule(kind=ScheduleKind.CRON, cron="* * * * * *", timezone="Europe/Berlin")
    with pytest.raises(InvalidInput, match=r"3,94\d,\d{3},\d{3} fires"):
        count_in(schedule, FireRange(datetime(1900, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)))
