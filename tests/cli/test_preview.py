"""`mainspring schedule preview` and `mainspring schedule heatmap`: words, pictures and proposals, at several widths."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.cli.heatmap_picture import picture

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
LINE = ("preview", "0 9 * * MON-FRI", "--tz", "Europe/Berlin", "--from", "2027-03-26T00:00:00Z", "-n", "3")


@pytest.mark.parametrize("width", [120, 80, 40])
def test_a_preview_needs_no_server_and_fits_the_width(call: Call, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("MAINSPRING_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, err = call(*LINE)
    assert code == 0
    assert "At 09:00, Monday to Friday" in " ".join(out.split())
    assert "Fri 2027-03-26 09:00+01:00" in out and "Mon 2027-03-29 09:00+02:00" in out
    assert "'H 9 * * MON-FRI'" in " ".join(err.split()) and "--jitter 10m" in " ".join(err.split())
    assert max(map(len, (out + err).splitlines())) <= width
    rows = {line[:6]: line for line in out.splitlines() if "·" in line}
    assert "█" in rows["Fri 26"] and "█" not in rows["Sat 27"] and "█" in rows["Mon 29"]


def test_a_change_of_the_clocks_is_noted_and_drawn(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    _, out, err = call("preview", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2027-03-27T00:00:00Z", "-n", "2")
    assert "note: 02:30 does not exist on" in err and "fires at 03:00" in " ".join(err.split())
    rows = {line[:6]: line.index("█") for line in out.splitlines() if "█" in line}
    assert rows["Sun 28"] == rows["Sat 27"] + 1 == rows["Mon 29"] + 1


def test_a_year_is_drawn_where_a_week_is_empty(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call("preview", "0 0 1 * *", "--from", "2027-01-03T00:00:00Z", "-n", "1")
    assert out.splitlines()[-1].count("█") == 12
    assert "Feb" in out.splitlines()[-2]


def test_a_terminal_without_utf8_gets_ascii(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    (line,) = picture([("x ", [0, 1, 8, None, 4])])
    assert line.plain == "x .:@ +"


def test_colours_are_left_out_on_request(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, out, _ = call(*LINE)
    assert "\x1b[" not in out


def test_json_is_what_the_server_would_answer(call: Call) -> None:
    code, out, err = call(*LINE, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["fires"][0]["at"] == "2027-03-26T08:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("61 * * * *",), "is not a cron expression"),
        (("0 9 * * *", "--tz", "Europe/Berln"), "--tz: 'Europe/Berln' is not a known time zone"),
        (("--every", "5x"), "--every: '5x' is not a duration"),
        (("0 9 * * *", "--every", "5m"), "exactly one way to say when"),
        ((), "exactly one way to say when"),
        (("0 9 * * *", "--from", "soon"), "'soon' is not a time"),
        (("0 9 * * *", "-n", "1001"), "1001"),
        (("0 9 * * *", "--job-id", "a/b"), "--job-id"),
    ],
)
def test_bad_input_is_refused_in_the_words_of_the_server(call: Call, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = call("preview", *arguments)
    assert (code, out) == (2, "")
    assert words in err


def heat_map(span: str = "week") -> dict[str, Any]:
    start, size = datetime(2027, 3, 1, 7, tzinfo=UTC), timedelta(hours=1) if span == "week" else timedelta(minutes=5)
    cells = [
        {"at": f"{moment:%Y-%m-%dT%H:%M:%SZ}", "local": moment.isoformat(), "fires": 2000 if moment.hour == 9 else 1}
        for moment in (start + size * number for number in range(168 if span == "week" else 288))
    ]
    spread = {"reason": "1,990 jobs have this schedule", "cron": "H 9 * * *", "jitter": "10m"}
    parts = [
        {"schedule": "0 9 * * * (Europe/Berlin)", "timezone": "Europe/Berlin", "jobs": 1990, "fires": 1990,
         "job_ids": ["a", "b"], "spread": spread},
        {"schedule": "every 1h", "timezone": None, "jobs": 10, "fires": 10, "job_ids": ["c"],
         "spread": spread | {"cron": None}},
        {"schedule": "one-time jobs", "timezone": None, "jobs": 1, "fires": 1, "job_ids": ["d"], "spread": None},
    ]  # fmt: skip
    pile_up = {"at": "2027-03-01T09:00:00Z", "local": "2027-03-01T09:00:00+00:00", "fires": 2001, "by": parts}
    return {
        "range": span, "timezone": "UTC", "from": "2027-03-01T07:00:00Z", "to": "2027-03-08T07:00:00Z",
        "cell_seconds": int(size.total_seconds()), "as_of": "2027-03-01T07:00:00Z", "estimated": True, "jobs": 2001,
        "fires": 14161, "cells": cells, "pile_ups": [pile_up, pile_up],
    }  # fmt: skip


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("span", ["week", "day"])
def test_a_heat_map_points_at_pile_ups_and_at_the_command_that_spreads_them(
    server: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch, span: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    server.says("GET /v1/insights/heatmap", heat_map(span))
    code, out, err = call("heatmap", *(["--week"] if span == "week" else []), "--tz", "UTC")
    assert code == 0
    assert server.asked == [("GET /v1/insights/heatmap", f"range={span}&timezone=UTC", None)]
    assert "about 14,161 fires of 2,001 jobs" in " ".join(out.split())
    assert max(map(len, (out + err).splitlines())) <= width
    assert out.count("█") == (7 if span == "week" else 12)
    told = " ".join(err.split())
    assert told.count("mainspring job edit a --cron 'H 9 * * *' --timezone Europe/Berlin") == 1
    assert "mainspring job edit c --jitter 10m" in told
    assert "pile-up: 2,001 fires in the minute 2027-03-01 09:00" in told


def test_the_map_of_a_week_has_all_its_hours(server: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins and ends within a day: the first and the last row have only the hours of the week."""
    monkeypatch.setenv("COLUMNS", "80")
    server.says("GET /v1/insights/heatmap", heat_map())
    rows = [line[7:] for line in call("heatmap", "--week")[1].splitlines() if line[:6] in ("Mon 01", "Mon 08")]
    assert [(len(row), len(row.strip())) for row in rows] == [(24, 17), (7, 7)]


def test_the_picture_of_a_week_ends_with_the_week_when_clocks_are_moved(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last hour of a week with 25 hours on its Sunday nothing was counted, but it was drawn as empty."""
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = call("preview", "0 * * * *", "--tz", "Europe/Berlin", "--from", "2026-10-23T00:30:00Z", "-n", "1")
    last = next(line for line in out.splitlines() if line.startswith("Fri 30"))
    assert last[7:] == "▄▄"  # the hour that occurs twice has two fires


def next_fires(**fields: Any) -> dict[str, Any]:
    fires = [
        {"at": "2030-01-01T00:00:00Z", "job_id": "report", "name": "Report", "schedule": "@daily", "queue": "default"},
        {"at": "2030-01-01T06:00:00Z", "job_id": "sync", "name": "sync", "schedule": "every 6h", "queue": "heavy"},
    ]
    span = {"from": "2030-01-01T00:00:00Z", "until": "2030-01-01T06:00:00Z"}
    return span | {"fires": fires, "more": False, "next": None} | fields


def test_the_next_fires_of_all_jobs_are_listed(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/insights/upcoming", next_fires(more=True, next="abc"))
    code, out, err = call("upcoming", "--from", "2030-01-01T00:00:00Z", "--limit", "2", "--utc")
    assert code == 0
    assert server.asked == [("GET /v1/insights/upcoming", "from=2030-01-01T00%3A00%3A00Z&limit=2", None)]
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["FIRES", "JOB", "NAME", "SCHEDULE", "QUEUE"]
    assert rows[1] == ["2030-01-01T00:00:00Z", "report", "Report", "@daily", "default"]
    assert rows[2] == ["2030-01-01T06:00:00Z", "sync", "every", "6h", "heavy"]
    assert "--cursor abc" in err


def test_where_the_list_of_next_fires_ends_and_why(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/insights/upcoming", next_fires(more=True))
    told = " ".join(call("upcoming")[2].split())
    assert "too many jobs fire after 2030-01-01T06:00:00Z" in told and "mainspring schedule heatmap" in told
    server.says("GET /v1/insights/upcoming", next_fires(fires=[]))
    code, out, err = call("upcoming")
    assert code == 0 and "no job fires in this time" in out + err


def test_the_json_of_a_heat_map_is_that_of_the_server(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/insights/heatmap", heat_map())
    assert json.loads(call("heatmap", "--json")[1])["pile_ups"][0]["fires"] == 2001
