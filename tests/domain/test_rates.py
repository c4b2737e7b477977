"""Rates are read exactly, and refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.rates import FASTEST, SLOWEST, Bucket, Rate, format_rate, parse_rate

START = datetime(2026, 7, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("100/m", 0.6),
        ("5/s", 0.2),
        ("1/h", 3600),
        ("24/d", 3600),
        ("10/30s", 3),
        ("1/1h30m", 5400),
        ("1/2s", 2),
        ("6/minute", 10),
        (" 100 / M ", 0.6),
        ("1000000/s", 1e-6),
        ("1/30d", 30 * 86400),
    ],
)
def test_a_rate_is_seconds_per_token(text: str, every: float) -> None:
    assert parse_rate(text, "rate").every == pytest.approx(every, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["100 per fortnight", "", "100", "/m", "100/", "100/x", "-1/s", "1e3/s", "0.5/s", "100/m/m", "nan/s", "1/0s", "0/s",
     "1000001/s", "1/31d", "1/100w", "٣/s", "9" * 500 + "/s", "1/s\n1"],
)  # fmt: skip
def test_a_bad_rate_names_field_and_fix(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_rate(text, "rate_limit.rate")
    assert caught.value.field == "rate_limit.rate"
    assert caught.value.hint


@given(st.integers(1, 10**6), st.sampled_from(["s", "m", "h", "d", "30s", "7m", "250ms"]))
def test_what_is_shown_reads_back(count: int, unit: str) -> None:
    try:
        rate = parse_rate(f"{count}/{unit}", "rate")
    except InvalidInput:
        return
    assert str(rate) == f"{count}/{unit}"
    shown = format_rate(rate.every)
    assert ".000" not in shown
    assert parse_rate(shown, "rate").every == pytest.approx(rate.every, rel=1e-6)


@given(st.text(alphabet="0123456789./smhd -e\n٣", max_size=12))
def test_any_text_is_a_rate_or_refused(text: str) -> None:
    try:
        rate = parse_rate(text, "rate")
    except InvalidInput as error:
        assert error.field == "rate"
    else:
        assert FASTEST <= rate.every <= SLOWEST


@pytest.mark.parametrize(("text", "burst"), [("100/m", 1), ("1/h", 1), ("5/s", 1), ("1000/s", 100), ("25/s", 3)])
def test_the_usual_burst_is_a_tenth_of_a_second(text: str, burst: int) -> None:
    assert parse_rate(text, "rate").usual_burst == burst


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
