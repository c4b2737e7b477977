"""Sizes are parsed, refused with the name of the field, and formatted so that they parse to the same value."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput
from mainspring.domain.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512MB", 512_000_000),
        ("1GiB", 2**30),
        ("64k", 64_000),
        ("64kB", 64_000),
        ("64KiB", 65536),
        ("64Ki", 65536),
        ("1.5GB", 1_500_000_000),
        ("0.1k", 100),
        (" 10 mb ", 10_000_000),
        ("2TiB", 2**41),
        ("100", 100),
        ("100B", 100),
        (100, 100),
    ],
)
def test_a_size_is_read_as_written(written: str | int, size: int) -> None:
    assert parse_size(written, "limits.memory") == size


@given(st.integers(1, 2**60))
@example(1_000_000)
@example(2**20)
@example(1_024_000)
@example(2**60)
def test_what_is_printed_reads_back(size: int) -> None:
    text = format_size(size)
    assert parse_size(text, "limits.memory") == size
    assert len(text) <= len(str(size)) + 2


def test_zero_is_printed_too() -> None:
    assert parse_size(format_size(0), "limits.output", least=0) == 0


@given(st.integers(1, 999), st.sampled_from(["", "k", "M", "G", "T"]), st.sampled_from(["", "i"]), st.booleans())
def test_units_are_what_they_say(number: int, unit: str, binary: str, small: bool) -> None:
    written = f"{number}{unit}{binary if unit else ''}B"
    base = 1024 if unit and binary else 1000
    expected = number * base ** ["", "k", "M", "G", "T"].index(unit)
    assert parse_size(written.lower() if small else written, "limits.memory") == expected


@pytest.mark.parametrize(
    "written",
    ["", "B", "much", "-1", "1e9", "1,5MB", "5iB", "5 i", "5PB", "1MBs", "٣MB", "1.MB", ".5MB", "9" * 30, 0, -1, 2**61],
)
def test_anything_else_is_refused_by_the_name_of_its_field(written: str | int) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_size(written, "limits.memory")
    assert (refused.value.code, refused.value.field) == ("invalid_size", "limits.memory")
    assert "512MB" in (refused.value.hint or "") and len(refused.value.detail) < 120


@given(st.text(max_size=20))
def test_no_text_is_an_accident(text: str) -> None:
    try:
        assert 1 <= parse_size(text, "limits.memory") <= 2**60
    except InvalidInput as error:
        assert error.field == "limits.memory"
