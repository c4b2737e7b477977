"""POST /v1/schedules:explain: what a schedule does, or what is wrong with it, field by field, while it is written."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

pytestmark = pytest.mark.anyio

BERLIN = "Europe/Berlin"


async def explain(api: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await api.post("/v1/schedules:explain", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(
    ("schedule", "kind", "words"),
    [
        ({"cron": "0 9 * * MON-FRI", "timezone": BERLIN}, "CRON", "At 09:00"),
        ({"every": "90m"}, "INTERVAL", "Every 1 hour 30 minutes"),
        ({"at": "2031-05-01T09:00:00", "timezone": BERLIN}, "FUTURE", "Once, at 2031-05-01 07:00:00 UTC"),
        ({"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18", "timezone": BERLIN}, "RRULE", "By the rule"),
        ({"cron": "H 9 * * *", "jitter": "5m"}, "CRON", "each up to 5 minutes later"),
        ({"cron": "30 2 * * *", "timezone": BERLIN, "dst": {"gap": "skip"}}, "CRON", "a skipped time does not run"),
        ("now", "IMMEDIATE", "Once, as soon as possible"),
        ("manual", "MANUAL", "Only when somebody runs it"),
        ("@daily", "CRON", "At 00:00"),
    ],
)
async def test_every_form_is_explained(api: httpx.AsyncClient, schedule: Any, kind: str, words: str) -> None:
    shown = await explain(api, schedule=schedule)
    assert (shown["valid"], shown["problems"], shown["schedule_type"]) == (True, [], kind)
    assert words in shown["words"]
    count = {"IMMEDIATE": 1, "FUTURE": 1, "MANUAL": 0}.get(kind, 10)
    assert len(shown["fires"]) == count


async def test_a_calendar_is_followed(api: httpx.AsyncClient) -> None:
    await api.put("/v1/calendars/weekdays", json={"weekdays": ["MON", "TUE", "WED", "THU", "FRI"]})
    shown = await explain(api, schedule={"cron": "0 9 * * *", "calendar": "weekdays"}, n=20)
    assert {fire["weekday"] for fire in shown["fires"]} == {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"}
    assert "calendar weekdays" in shown["words"]


@pytest.mark.parametrize(
    ("schedule", "fields"),
    [
        ({"cron": "61 9 * * *", "timezone": "Europe/Berln"}, ["schedule.timezone", "schedule.cron"]),
        ({"cron": "0 9 * *"}, ["schedule.cron"]),
        ({"every": "soon", "jitter": "5m"}, ["schedule.every"]),
        ({"every": "1h", "jitter": "soon", "calendar": "none"}, ["schedule.jitter", "schedule.calendar"]),
        ({"rrule": "FREQ=NEVER"}, ["schedule.rrule"]),
        ({"at": "tomorrow"}, ["schedule.at"]),
        ({"cron": "0 9 * * *", "every": "1h"}, ["schedule"]),
        ({"cron": "0 9 * * *", "start": "x", "end": "y", "max_runs": 0},
         ["schedule.start", "schedule.end", "schedule.max_runs"]),
        ({"cron": "0 9 * * *", "outside": "next"}, ["schedule.outside"]),
        ("99 * * * *", ["schedule"]),
    ],
)  # fmt: skip
async def test_each_wrong_field_is_named(api: httpx.AsyncClient, schedule: Any, fields: list[str]) -> None:
    shown = await explain(api, schedule=schedule)
    assert not shown["valid"]
    assert [problem["field"] for problem in shown["problems"]] == fields
    assert all(problem["detail"] and problem["code"] for problem in shown["problems"])
    assert (shown["words"], shown["fires"], shown["warnings"]) == (None, [], [])


async def test_a_problem_is_the_one_that_a_creation_meets(api: httpx.AsyncClient) -> None:
    schedule = {"cron": "61 9 * * *"}
    refused = (await api.post("/v1/jobs", json={"task": "t", "schedule": schedule})).json()
    (problem,) = (await explain(api, schedule=schedule))["problems"]
    assert (problem["field"], problem["code"], problem["detail"]) == (
        refused["field"], refused["code"], refused["detail"],
    )  # fmt: skip


async def test_what_cannot_be_decoded_is_refused(api: httpx.AsyncClient) -> None:
    for body, field in (({"schedule": {"cron": 7}}, "schedule.cron"), ({"n": 0}, "n"), ({"crn": "* * * * *"}, "crn")):
        answer = await api.post("/v1/schedules:explain", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_the_changes_of_the_clocks_of_a_year_are_warned_of(api: httpx.AsyncClient) -> None:
    shown = await explain(
        api, schedule={"cron": "30 2 * * *", "timezone": BERLIN}, n=3, **{"from": "2027-01-01T00:00:00Z"}
    )
    assert [(one["kind"], one["text"]) for one in shown["warnings"]] == [
        ("clock_change", "02:30 does not exist on 2027-03-28: fires at 03:00"),
        ("clock_change", "02:30 occurs twice on 2027-10-31: fires the first time"),
    ]
    assert len(shown["fires"]) == 3


async def test_a_schedule_that_ends_is_not_warned_of_later_changes(api: httpx.AsyncClient) -> None:
    schedule = {"cron": "30 2 * * *", "timezone": BERLIN, "max_runs": 3}
    warnings = (await explain(api, schedule=schedule, **{"from": "2027-01-01T00:00:00Z"}))["warnings"]
    assert {one["kind"] for one in warnings} <= {"note"}


async def test_minutes_in_which_many_jobs_fire_are_warned_of(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    jobs = [{"task": "t", "schedule": "17 4 * * *"} for _ in range(30)]
    assert (await api.post("/v1/jobs:batch", json={"jobs": jobs})).status_code == 201
    shown = await explain(api, schedule={"cron": "17 4 * * *"}, n=2)
    (warning,) = [one for one in shown["warnings"] if one["kind"] == "pile_up"]
    assert warning["at"] == shown["fires"][0]["at"]
    assert "2 of these 2 fires" in warning["text"] and "30 fires of jobs" in warning["text"]
    assert shown["spread"]["cron"] == "H 4 * * *"
    calm = await explain(api, schedule={"cron": "18 4 * * *"})
    assert [one for one in calm["warnings"] if one["kind"] == "pile_up"] == []
    before = await connection.fetchval("select count(*) from mainspring.jobs")
    assert before == 30, "nothing is stored"
