"""A line of another cron is refused with what to write here."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.cron import check_cron
from tests.effort import calls_of

NOW = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("@every 5m", 'use "every": "5m" instead of cron'),
        ("TZ=Europe/Berlin 0 9 * * *", 'leave it out, and give "timezone"'),
        ("CRON_TZ=UTC 0 9 * * *", 'leave it out, and give "timezone"'),
        ("0 0 9 ? * MON 2027", "leave out the year; schedule.start and schedule.end are bounds"),
        ("0 9 ? * MON", "write * for ?"),
        ("0 9 L-3 * *", "of the days of the month, L (the last) and LW (the last from Monday to Friday) are known"),
        ("0 9 15W * *", "of the days of the month, L (the last) and LW (the last from Monday to Friday) are known"),
    ],
)
def test_the_hint_says_what_to_write(line: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_cron(line, "UTC", "schedule.cron", NOW)
    assert (refused.value.code, refused.value.field, refused.value.hint) == ("invalid_cron", "schedule.cron", hint)


@pytest.mark.parametrize("line", ["H H */31 H H", "H H H H H", "H H 29 2 H", "H H * H 0L"])
@pytest.mark.parametrize("timezone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca"])
def test_a_line_with_many_values_of_h_is_checked_with_little_effort(line: str, timezone: str) -> None:
    check_cron("H H 1 H H", timezone, "schedule.cron", NOW)  # the changes of the zone are known
    later = NOW.replace(year=2027)
    assert calls_of(lambda: check_cron(line, timezone, "schedule.cron", later)) < 200_000


def test_a_line_that_h_moves_into_a_skipped_hour_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_cron("H H(0-5) * 3 0L", "Europe/Berlin", "schedule.cron", NOW, "skip")
    assert refused.value.code == "cron_never_fires"
