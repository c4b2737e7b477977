"""`mainspring calendar list`, `calendar`, `calendar-set` and `calendar-delete`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.wire_samples import MOMENT

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


def calendar(**members: Any) -> dict[str, Any]:
    return {
        "name": "de", "version": 3, "created_at": MOMENT, "updated_at": MOMENT, "timezone": "Europe/Berlin",
        "holidays": [{"country": "DE", "subdivision": "BE"}], "weekdays": ["MON", "FRI"],
        "dates": ["2026-12-24", {"from": "2026-12-27", "to": "2026-12-31"}],
        "hours": {"MON": [{"from": "09:00", "to": "17:00"}]},
        "blackouts": [{"days": ["SUN"], "from": "02:00", "to": "04:00"}], **members,
    }  # fmt: skip


def sent_to(server: CannedServer) -> list[Any]:
    return [body for route, _, body in server.asked if route.startswith("PUT ")]


def test_calendars_are_listed_and_shown_in_words(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/calendars", {"calendars": [calendar()], "next": None})
    code, out, _ = call("calendars")
    assert code == 0 and "Europe/Berlin" in out
    server.says("GET /v1/calendars/de", calendar(jobs=1200, pending=200, recomputed=1000))
    code, out, _ = call("calendar", "de")
    assert code == 0
    for words in (
        "DE-BE",
        "MON, FRI",
        "2026-12-27 to 2026-12-31",
        "MON 09:00-17:00",
        "SUN 02:00-04:00",
        "1,200",
        "200",
    ):
        assert words in out


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (("--holidays", "DE-BE", "--holidays", "FR", "--weekdays", "MON-WED,SAT"),
         {"holidays": [{"country": "DE", "subdivision": "BE"}, {"country": "FR"}],
          "weekdays": ["MON", "TUE", "WED", "SAT"]}),
        (("--hours", "09:00-12:00", "--date", "2026-12-24", "--date", "2026-12-27..2026-12-31"),
         {"hours": [{"from": "09:00", "to": "12:00"}],
          "dates": ["2026-12-24", {"from": "2026-12-27", "to": "2026-12-31"}]}),
        (("--blackout", "SAT-SUN 02:00-04:00", "--blackout", "2026-12-20T00:00..2026-12-21T06:00", "--timezone", "UTC"),
         {"blackouts": [{"days": ["SAT", "SUN"], "from": "02:00", "to": "04:00"},
                        {"from": "2026-12-20T00:00", "to": "2026-12-21T06:00"}], "timezone": "UTC"}),
    ],
)  # fmt: skip
def test_a_calendar_is_set_by_options(
    server: CannedServer, call: Call, options: tuple[str, ...], sent: dict[str, Any]
) -> None:
    server.says("PUT /v1/calendars/de", calendar())
    code, _, err = call("calendar-set", "de", *options)
    assert code == 0, err
    assert sent_to(server) == [sent]


def test_a_calendar_is_set_by_a_file_and_deleted(server: CannedServer, call: Call, tmp_path: Path) -> None:
    server.says("PUT /v1/calendars/de", calendar())
    file = tmp_path / "calendar.json"
    file.write_text(json.dumps({"weekdays": ["MON"]}))
    assert call("calendar-set", "de", "--file", str(file))[0] == 0
    assert sent_to(server) == [{"weekdays": ["MON"]}]
    assert call("calendar-set", "de", "--file", str(file), "--timezone", "UTC")[0] == 2
    file.write_text("[")
    assert call("calendar-set", "de", "--file", str(file))[0] == 2
    server.says("DELETE /v1/calendars/de", calendar())
    assert "deleted" in call("calendar-delete", "de")[1]
