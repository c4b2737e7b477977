"""Rates are read exactly, and refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.rates import FASTEST, SLOWEST, format_rate, parse_rate


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
