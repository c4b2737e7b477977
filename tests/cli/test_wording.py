"""Formatting of times and texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mainspring.cli.text_formats import TimeFormat, relative, span

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0004, "0ms"),
        (0.34, "340ms"),
        (1, "1s"),
        (12.54, "12.5s"),
        (59.99, "60s"),
        (60, "1m"),
        (200, "3m20s"),
        (3600, "1h"),
        (7384, "2h3m"),
        (86400 * 2 + 3600 * 4, "2d4h"),
        (86400 * 400, "1y35d"),
    ],
)
def test_a_span_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "1 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (200, "3 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (86400 * 2 - 1, "47 h"),
        (86400 * 2, "2 d"),
        (86400 * 729, "729 d"),
        (86400 * 800, "2 y"),
    ],
)
def test_a_moment_is_told_from_now_in_one_unit(seconds: float, words: str) -> None:
    assert relative(NOW + timedelta(seconds=seconds), NOW) == f"in {words}"
    assert relative(NOW - timedelta(seconds=seconds), NOW) == f"{words} ago"


def test_moments_without_a_distance() -> None:
    assert relative(NOW, NOW) == "now"
    assert relative(None, NOW) == "-"


def test_times_are_relative_or_in_utc() -> None:
    moment = datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=1)))
    assert TimeFormat(NOW).brief(moment) == "in 2 h"
    assert TimeFormat(NOW, utc=True).brief(moment) == "2026-01-01T02:00:00Z"
    assert TimeFormat(NOW, utc=True).full(moment) == "2026-01-01T02:00:00Z (in 2 h)"
    assert TimeFormat(NOW).full(moment).endswith(" (in 2 h)")
    assert TimeFormat(NOW, utc=True).brief(None) == "-"
