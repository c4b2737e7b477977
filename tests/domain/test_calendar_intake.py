"""Wrong rules of a calendar are refused with the member and the fix."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.calendar import read_calendar
from mainspring.wire.calendars import CalendarRequest

NOW = datetime(2026, 3, 20, tzinfo=UTC)

WRONG = [
    ({"holidays": {"country": "Germany"}}, "holidays.country", "unknown_country", "'DE'"),
    ({"holidays": [{"country": "DE"}, {"country": "XX"}]}, "holidays[1].country", "unknown_country", ""),
    ({"holidays": {"country": "DE", "subdivision": "XX"}}, "holidays.subdivision", "unknown_country", ""),
    ({"timezone": "Berlin"}, "timezone", "unknown_timezone", ""),
    ({"dates": ["24.12.2026"]}, "dates[0]", "invalid_input", "2026-12-24"),
    ({"dates": [{"from": "2026-12-31", "to": "2026-12-24"}]}, "dates[0].from", "invalid_input", "Exchange"),
    ({"dates": ["2026-01-01"] * 1001}, "dates", "invalid_input", ""),
    ({"weekdays": ["MO"]}, "weekdays[0]", "invalid_input", ""),
    ({"weekdays": []}, "weekdays", "invalid_input", ""),
    ({"hours": {"from": "17:00", "to": "09:00"}}, "hours.from", "invalid_input", "midnight"),
    ({"hours": {"from": "9"}}, "hours.to", "invalid_input", ""),
    ({"hours": {"from": "9:00", "to": "17:00"}}, "hours.from", "invalid_input", "09:00"),
    ({"hours": {"from": "09:00", "to": "17:00", "MON": []}}, "hours.MON", "invalid_input", ""),
    ({"hours": {}}, "hours", "invalid_input", ""),
    ({"blackouts": [{"days": ["SUN"], "from": f"{n // 4:02}:{n % 4 * 15:02}", "to": f"{n // 4:02}:{n % 4 * 15 + 7:02}"}
                    for n in range(49)]}, "blackouts", "invalid_input", "48 open parts"),
    ({"blackouts": [{"from": "02:00", "to": "04:00"}]}, "blackouts[0].from", "invalid_input", "days"),
    ({"blackouts": [{"from": "2026-01-01T00Z", "to": "2026-01-02"}]}, "blackouts[0].from", "invalid_input", "offset"),
    ({"blackouts": [{"days": ["SUN"], "from": "04:00", "to": "02:00"}]}, "blackouts[0].from", "invalid_input", ""),
    ({"blackouts": [{"days": ["MON"], "from": "00:00", "to": "24:00"}], "weekdays": ["MON"]},
     "weekdays", "calendar_allows_nothing", ""),
    ({"dates": [{"from": "2000-01-01", "to": "9998-12-31"}]}, "dates", "calendar_allows_nothing", ""),
    ({"blackouts": [{"from": "2000-01-01T00:00", "to": "9998-01-01T00:00"}]}, "blackouts",
     "calendar_allows_nothing", ""),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "field", "code", "hint"), WRONG, ids=lambda value: str(value)[:50])
def test_wrong_rules_are_refused_by_name(rules: dict[str, Any], field: str, code: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_calendar(msgspec.convert(rules, CalendarRequest), NOW)
    assert (refused.value.field, refused.value.code) == (field, code)
    assert hint in refused.value.in_sentences()


def test_what_is_stored_can_be_given_again() -> None:
    given = {
        "holidays": {"country": "de", "subdivision": "DE-BE"},
        "weekdays": ["fri", "MON"],
        "hours": [{"from": "09:00", "to": "12:00"}],
        "blackouts": [
            {"from": "2026-12-20", "to": "2026-12-21T12:00"},
            {"days": ["sun"], "from": "02:00", "to": "04:00"},
        ],
        "dates": ["2026-12-24"],
    }
    stored = read_calendar(msgspec.convert(given, CalendarRequest), NOW)
    assert read_calendar(stored, NOW) == stored
