"""Texts from outside become storable, and short enough."""

from __future__ import annotations

import pytest

from mainspring.kernel.texts import as_ranges, error_line, shorten_text, storable_text


@pytest.mark.parametrize(
    ("text", "storable"),
    [
        ("plain äöü \U0001f600", "plain äöü \U0001f600"),
        ("a\x00b", "a\ufffdb"),
        ("half \ud83d pair", "half ? pair"),
        ("", ""),
    ],
)
def test_nul_and_lone_surrogates_are_replaced(text: str, storable: str) -> None:
    assert storable_text(text) == storable


@pytest.mark.parametrize("text", ["", "x" * 100, "ä" * 50])
def test_a_text_that_fits_is_not_changed(text: str) -> None:
    assert shorten_text(text, 100) == text


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    short = shorten_text("BEGIN " + "x" * 1000 + " END", 100)

    assert short.startswith("BEGIN x") and " ... " in short and short.endswith("x END")
    assert len(short) == 100


def test_characters_are_not_cut_in_half() -> None:
    short = shorten_text("\U0001f600" * 1000, 101)

    assert set(short) == set("\U0001f600 .")
    assert 90 < len(short.encode()) <= 101


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([7], "7"), ([3, 1, 2, 0, 7, 9, 10, 9], "0-3,7,9-10"), (range(128), "0-127")]
)
def test_many_numbers_are_said_as_ranges(numbers: list[int], text: str) -> None:
    assert as_ranges(numbers) == text


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("", ""),
        ("exit code 3", "exit code 3"),
        ("memory limit of 64 MiB exceeded: reading\nout of memory\n", "memory limit of 64 MiB exceeded: out of memory"),
        ("limit of 8 processes exceeded: reading\nfork: no", "limit of 8 processes exceeded: fork: no"),
        ("exit code 3: no such file", "exit code 3: no such file"),
        ("exit code 3: reading\n12 rows\n\nno such region: eu-9\n", "exit code 3: no such region: eu-9"),
        ("killed by SIGKILL: reading\n12 rows", "killed by SIGKILL: 12 rows"),
        ("ValueError: no region\n  File 'a.py', line 3\n    raise ValueError('no region')", "ValueError: no region"),
        ("Traceback (most recent call last):\n  File\nValueError: no region", "ValueError: no region"),
    ],
)
def test_an_error_in_one_line_ends_with_the_reason(error: str, line: str) -> None:
    assert error_line(error) == line
