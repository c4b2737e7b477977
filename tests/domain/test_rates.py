"""Rates: their texts, and the token bucket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.rates import Bucket, Rate, parse_rate

START = datetime(2026, 7, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/m", Rate(100, "m")),
        (" 5 / Second ", Rate(5, "s")),
        ("1/min", Rate(1, "m")),
        ("7/hour", Rate(7, "h")),
        ("20000/d", Rate(20000, "d")),
    ],
)
def test_a_rate_is_a_number_per_unit(text: str, rate: Rate) -> None:
    assert parse_rate(text, "rate") == rate
    assert parse_rate(str(rate), "rate") == rate


@pytest.mark.parametrize(
    "text",
    [
        "", "100", "/m", "m/100", "100 per fortnight", "100/w", "-1/s", "1.5/s", "1e3/s", "0/s", "00/m", "100001/s",
        "9999999999999/d", "100/m/s", "١/s", "100/m\n5/s",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_field_and_an_example(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_rate(text, "limits.rate")
    assert refused.value.field == "limits.rate"
    assert refused.value.code == "invalid_rate"
    assert refused.value.hint


@given(st.text("0123456789/smhd minute\n\x00-.é", max_size=12))
def test_every_text_is_a_rate_or_is_refused(text: str) -> None:
    try:
        rate = parse_rate(text, "rate")
    except InvalidInput:
        return
    assert rate.every > 0
    assert rate.usual_burst >= 1


@given(
    count=st.integers(1, 5000),
    unit=st.sampled_from("smhd"),
    burst=st.integers(1, 50),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 60)), max_size=60),
)
def test_no_window_has_more_starts_than_the_rate_and_one_burst(
    count: int, unit: str, burst: int, steps: list[tuple[float, int]]
) -> None:
    rate = Rate(count, unit)
    now, tat = START, None
    starts: list[datetime] = []
    for gap, wanted in steps:
        now += timedelta(seconds=gap * min(rate.every * 10, 3600))
        bucket = Bucket(rate.every, burst, tat)
        taken = min(wanted, bucket.tokens(now))
        if taken:
            tat = bucket.take(taken, now)
        elif wanted:
            assert bucket.wait(now) > 0
            later = now + timedelta(seconds=bucket.wait(now), microseconds=2)
            assert bucket.tokens(later) >= 1
        starts += [now] * taken
    for first, moment in enumerate(starts):
        for last in range(first, len(starts)):
            window = (starts[last] - moment).total_seconds()
            assert last - first + 1 <= window / rate.every + burst + 1e-3


def test_a_clock_that_is_set_back_empties_the_bucket_at_most() -> None:
    bucket = Bucket(1.0, 5, START + timedelta(days=1))
    assert bucket.tokens(START) == 0
    assert bucket.wait(START) == 1.0
    assert bucket.ahead(START)  # so a claim writes the time again
    written = Bucket(1.0, 5, bucket.take(0, START))
    assert not written.ahead(START)
    assert written.tokens(START + timedelta(seconds=1)) == 1
