"""FEATURES 2.10: POST /v1/schedules:preview says what a schedule does, and stores nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

pytestmark = pytest.mark.anyio

BERLIN = {"timezone": "Europe/Berlin"}


async def preview(api: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await api.post("/v1/schedules:preview", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_fires_are_shown_in_utc_and_in_the_zone(api: httpx.AsyncClient) -> None:
    shown = await preview(api, schedule="0 9 * * MON-FRI", **BERLIN, n=3, **{"from": "2027-01-01T00:00:00Z"})
    assert shown["fires"] == [
        {"at": "2027-01-01T08:00:00Z", "local": "2027-01-01T09:00:00+01:00", "weekday": "Friday"},
        {"at": "2027-01-04T08:00:00Z", "local": "2027-01-04T09:00:00+01:00", "weekday": "Monday"},
        {"at": "2027-01-05T08:00:00Z", "local": "2027-01-05T09:00:00+01:00", "weekday": "Tuesday"},
    ]
    assert (shown["schedule_type"], shown["timezone"]) == ("CRON", "Europe/Berlin")
    assert shown["fires_per_day"] == 0.7143
    assert (shown["spread"]["cron"], shown["spread"]["jitter"]) == ("H 9 * * MON-FRI", "10m")


async def test_the_list_begins_with_a_fire_at_from_itself(api: httpx.AsyncClient) -> None:
    shown = await preview(api, cron="0 9 * * *", n=1, **{"from": "2027-01-01T09:00:00Z"})
    assert [fire["at"] for fire in shown["fires"]] == ["2027-01-01T09:00:00Z"]


@pytest.mark.parametrize(
    ("line", "begin", "note"),
    [
        ("30 2 * * *", "2027-03-27", "02:30 does not exist on 2027-03-28: fires at 03:00"),
        ("30 2 * * *", "2027-10-30", "02:30 occurs twice on 2027-10-31: fires the first time"),
        ("*/30 * * * *", "2027-03-28", "02:00 and 02:30 do not exist on 2027-03-28: does not fire"),
        ("*/30 * * * *", "2027-10-31", "02:00 and 02:30 occur twice on 2027-10-31: fires both times"),
        ("*/5 * * * *", "2027-03-28", "12 times from 02:00 until 03:00 do not exist on 2027-03-28: does not fire"),
        ("0 9 * * *", "2027-03-27", None),
        ("30 2 * * *", "2027-04-01", None),
    ],
)
async def test_changes_of_the_clocks_within_the_list_are_noted(
    api: httpx.AsyncClient, line: str, begin: str, note: str | None
) -> None:
    shown = await preview(api, schedule={"cron": line, **BERLIN}, n=100, **{"from": f"{begin}T00:00:00Z"})
    assert shown["notes"] == ([] if note is None else [note])


@pytest.mark.parametrize(
    ("schedule", "begin", "note"),
    [
        ({"rrule": "FREQ=DAILY;BYHOUR=2;BYMINUTE=30"}, "2027-03-27", "does not exist on 2027-03-28: fires at 03:00"),
        ({"rrule": "FREQ=DAILY", "start": "2027-01-01T02:30:00"}, "2027-03-27", "02:30 does not exist on 2027-03-28"),
        ({"rrule": "DTSTART:20270101T023000\nRRULE:FREQ=DAILY", "dst": {"overlap": "both"}}, "2027-10-30",
         "02:30 occurs twice on 2027-10-31: fires both times"),
        ({"rrule": "FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "exdates": ["2027-10-31T02:30:00"]}, "2027-10-30", None),
        ({"rrule": "FREQ=DAILY", "start": "2027-01-01T03:30:00", "jitter": "1m"}, "2027-03-27", None),
    ],
)  # fmt: skip
async def test_changes_of_the_clocks_are_noted_for_a_rule(
    api: httpx.AsyncClient, schedule: dict[str, Any], begin: str, note: str | None
) -> None:
    shown = await preview(api, schedule=schedule | BERLIN, n=3, job_id="a", **{"from": f"{begin}T00:00:00Z"})
    assert (shown["notes"] == []) if note is None else (note in shown["notes"][0])


async def test_max_runs_end_the_list(api: httpx.AsyncClient) -> None:
    daily = {"rrule": "FREQ=DAILY;BYHOUR=9", "max_runs": 3, "jitter": "1h"}
    shown = await preview(api, schedule=daily, job_id="a")
    assert len(shown["fires"]) == 3 and shown["notes"] == ["there are no more fires"]
    assert 0.9 < shown["fires_per_day"] < 3.1
    second = shown["fires"][1]["at"]
    assert (await preview(api, schedule=daily, job_id="a", **{"from": second}))["fires"] == shown["fires"][1:]
    late = await preview(api, schedule=daily, **{"from": "2040-01-01T00:00:00Z"})
    assert (late["fires"], late["fires_per_day"]) == ([], 0.0)


async def test_every_form_of_a_schedule_is_accepted(api: httpx.AsyncClient) -> None:
    start = {"from": "2030-01-01T00:00:00Z"}
    for body, fires, note in (
        ({"schedule": "@daily"}, 10, None),
        ({"cron_expression": "0 9 * * *", "schedule_type": "CRON"}, 10, None),
        ({"schedule": {"every": "90m", "anchor": "2030-01-01T00:00:00Z"}}, 10, None),
        ({"schedule_time": "2031-01-01T00:00:00Z"}, 1, None),
        ({"schedule": {"at": "2020-01-01T00:00:00Z"}}, 0, "the time has passed: a job with it runs at once"),
        ({"schedule": "manual"}, 0, "a job with it runs only when somebody runs it"),
        ({"schedule": "now"}, 1, "a job with it runs at once"),
    ):
        shown = await preview(api, **body, **start)
        assert (len(shown["fires"]), shown["notes"]) == (fires, [] if note is None else [note]), body


async def test_a_line_that_is_not_on_the_hour_needs_no_proposal(api: httpx.AsyncClient) -> None:
    for line, proposal in (
        ("17 * * * *", None),
        ("0 * * * *", "H * * * *"),
        ("*/15 * * * *", "H/15 * * * *"),
        ("0 0 4 * * *", "H 4 * * *"),
    ):
        spread = (await preview(api, cron=line))["spread"]
        assert (None if spread is None else spread["cron"]) == proposal, line


async def test_what_a_job_may_not_have_is_refused_in_the_same_words(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for when in (
        {"schedule": "61 * * * *"},
        {"schedule": "0 0 30 2 *"},
        {"schedule": "0 9 * * *", "timezone": "Europe/Berln"},
        {"schedule": {"every": "0.1s"}},
        {"schedule": {"every": "5m", "cron": "* * * * *"}},
        {"schedule": {"at": "2030-01-01T00:00:00"}},
        {"schedule": "0 9 * * *", "cron": "0 9 * * *"},
        {"schedule": {"evry": "5m"}},
        {"schedule_type": "CRON"},
    ):
        job = await api.post("/v1/jobs", json={"task": "noop", **when})
        answer = await api.post("/v1/schedules:preview", json=when)
        assert job.status_code == answer.status_code == 422
        same = ("code", "detail", "field", "hint", "expected")
        assert {name: answer.json().get(name) for name in same} == {name: job.json().get(name) for name in same}
    for body, field in (
        ({"schedule": "@daily", "n": 0}, "n"),
        ({"schedule": "@daily", "n": 1001}, "n"),
        ({"schedule": "@daily", "from": "soon"}, "from"),
        ({"schedule": "@daily", "from": "2030-01-01T00:00:00"}, "from"),
        ({"schedule": "@daily", "tasks": 1}, "tasks"),
        ({"schedule": "@daily", "job_id": "a/b"}, "job_id"),
    ):
        answer = await api.post("/v1/schedules:preview", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert await connection.fetchval("select count(*) from mainspring.jobs") == 0


async def test_a_thousand_fires_at_most_and_those_that_exist(api: httpx.AsyncClient) -> None:
    assert len((await preview(api, cron="* * * * * *", n=1000))["fires"]) == 1000
    shown = await preview(api, cron="0 0 29 2 *", n=3, **{"from": "9990-01-01T00:00:00Z"})
    assert [fire["at"][:4] for fire in shown["fires"]] == ["9992", "9996"]
    assert shown["notes"] == ["there are no more fires"]


async def test_the_first_and_the_last_times_are_answered(api: httpx.AsyncClient) -> None:
    for start in ("1900-01-01T00:00:00Z", "9998-12-31T23:59:59Z"):
        for zone in ("UTC", "Europe/Berlin", "Pacific/Apia", "America/New_York"):
            for line in ("* * * * *", "30 2 * * *", "0 0 29 2 *", "H H * * *"):
                shown = await preview(api, cron=line, timezone=zone, n=100, **{"from": start})
                assert all(fire["at"] >= start[:19] for fire in shown["fires"])
        await preview(api, schedule={"every": "36000d"}, n=5, **{"from": start})


async def test_a_calendar_counts_and_one_that_does_not_exist_is_refused(api: httpx.AsyncClient) -> None:
    rules = {"timezone": "UTC", "weekdays": ["MON", "TUE"]}
    assert (await api.put("/v1/calendars/first-days", json=rules)).status_code in (200, 201)
    schedule = {"cron": "0 9 * * *", "calendar": "first-days"}
    shown = await preview(api, schedule=schedule, n=3, **{"from": "2027-01-01T00:00:00Z"})
    assert [fire["at"][:10] for fire in shown["fires"]] == ["2027-01-04", "2027-01-05", "2027-01-11"]
    await api.post("/v1/jobs", json={"task": "noop", "schedule": schedule})
    later = datetime.now(UTC) + timedelta(hours=1)  # in the first hour of a map, some of its fires have passed
    week = (await api.get(f"/v1/insights/heatmap?range=week&from={later:%Y-%m-%dT%H:%M:%SZ}")).json()
    assert (week["fires"], week["estimated"]) == (2, False)
    fires = (await api.get("/v1/insights/upcoming?limit=2")).json()["fires"]
    assert len(fires) == 2
    for when in ({"schedule": schedule | {"calendar": "other"}}, {"schedule": {"every": "1h", "outside": "next"}}):
        job = await api.post("/v1/jobs", json={"task": "noop", **when})
        answer = await api.post("/v1/schedules:preview", json=when)
        assert job.status_code == answer.status_code == 422
        assert answer.json()["detail"] == job.json()["detail"]
