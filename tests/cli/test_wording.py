"""Formatting of times and texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring.cli.wording import relative, span

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


def test_moments_are_told_from_now() -> None:
    assert relative(NOW + timedelta(minutes=3, seconds=20), NOW) == "in 3m20s"
    assert relative(NOW - timedelta(hours=2), NOW) == "2h ago"
    assert relative(NOW, NOW) == "now"
    assert relative(None, NOW) == "-"
