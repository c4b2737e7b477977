"""Durations are parsed, refused with the name of the field, and formatted so that they parse to the same value."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring.domain.durations import format_duration, parse_duration
from mainspring.domain.errors import InvalidInput

A_CENTURY = 100 * 366 * 86400.0


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90.0),
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("1w2d3h4m5s", 788645.0),
        ("1y", 31_536_000.0),
        ("1.5h", 5400.0),
        ("1.1h", 3960.0),
        ("9ms", 0.009),
        ("250ms", 0.25),
        (" 10M ", 600.0),
        ("3600", 3600.0),
        ("0.5", 0.5),
        (3600, 3600.0),
        (0.25, 0.25),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_read_as_written(written: str | float, seconds: float) -> None:
    assert parse_duration(written, "timeout") == seconds


@given(st.floats(min_value=0, max_value=A_CENTURY, allow_nan=False))
@example(1234567.5)
@example(0.009)
@example(1e-9)
@example(5e-324)
@example(A_CENTURY)
def test_a_printed_duration_reads_back_to_the_last_bit(seconds: float) -> None:
    assert parse_duration(format_duration(seconds), "timeout") == seconds


@given(st.integers(0, int(A_CENTURY)))
def test_whole_seconds_are_printed_in_whole_units(seconds: int) -> None:
    assert parse_duration(format_duration(seconds), "timeout") == seconds
    assert "." not in format_duration(seconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (90, "1m30s"),
        (3600, "1h"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (604800, "1w"),
        (31_536_000, "1y"),
        (-90, "-1m30s"),
    ],
)
def test_a_duration_is_printed_shortly(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    "bad",
    [
        "", " ", "soon", "10 minutes", "1h 30m", "h", "1x", "-5s", "-5", -5, -0.001, "1e3", "1_000", "٣s", "²s", "inf",
        "nan", float("inf"), float("nan"), "101y", A_CENTURY + 1, 10**400, -(10**400), "9" * 300 + "s", "9" * 5000,
        "1.s", "\ud800",
    ],
)  # fmt: skip
def test_a_bad_duration_is_refused_by_the_name_of_its_field(bad: str | float) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration(bad, "retry.base")
    assert (refused.value.field, refused.value.code) == ("retry.base", "invalid_duration")
    assert refused.value.hint and len(refused.value.detail) < 100


@pytest.mark.parametrize(
    ("value", "limits"), [(0, {"zero_ok": False}), ("5s", {"least": 10.0}), ("1m", {"most": 59.0})]
)
def test_a_duration_outside_its_bounds_is_refused_with_the_bounds(
    value: str | float, limits: dict[str, float | bool]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration(value, "timeout", **limits)  # type: ignore[arg-type]
    assert refused.value.expected and "at most" in refused.value.expected
