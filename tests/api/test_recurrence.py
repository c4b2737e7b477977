"""Rules, jitter, start, end and max_runs of a job over HTTP: as given, as shown, and after changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

JOBS = "/v1/jobs"
LATER = (datetime.now(UTC) + timedelta(days=400)).replace(microsecond=0)


async def created(api: httpx.AsyncClient, schedule: Any, **more: Any) -> dict[str, Any]:
    answer = await api.post(JOBS, json={"task": "noop", "schedule": schedule, **more})
    assert answer.status_code == 201, answer.text
    return await read(api, answer.json()["job_id"])


async def read(api: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = (await api.get(f"{JOBS}/{job_id}")).json()
    return job


async def fires(api: httpx.AsyncClient, job_id: str, count: int = 5) -> list[datetime]:
    answer = await api.get(f"{JOBS}/{job_id}/upcoming", params={"n": count})
    return [datetime.fromisoformat(moment) for moment in answer.json()["fires"]]


async def changed(api: httpx.AsyncClient, job_id: str, **body: Any) -> dict[str, Any]:
    answer = await api.patch(f"{JOBS}/{job_id}", json=body)
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def test_a_rule_with_its_lines_fires_in_its_zone_without_its_exdates(api: httpx.AsyncClient) -> None:
    text = (
        "DTSTART;TZID=Europe/Berlin:20300107T090000\r\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE\r\n"
        "EXDATE;TZID=Europe/Berlin:20300109T090000"
    )
    job = await created(api, {"rrule": text, "exdates": ["2030-01-14T08:00:00Z"]})
    assert (job["schedule_type"], job["timezone"]) == ("RRULE", "Europe/Berlin")
    assert job["rrule"] == "DTSTART;TZID=Europe/Berlin:20300107T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE"
    assert job["schedule"] == "FREQ=WEEKLY;BYDAY=MO,WE (Europe/Berlin)"
    assert job["exdates"] == ["2030-01-09T08:00:00Z", "2030-01-14T08:00:00Z"]
    assert [moment.day for moment in await fires(api, job["job_id"], 3)] == [7, 16, 21]
    plain = await created(api, {"rrule": text.partition("\r\nEXDATE")[0]})
    assert [moment.day for moment in await fires(api, plain["job_id"], 3)] == [7, 9, 14]


async def test_the_rule_alone_fires_at_the_hour_that_it_names(api: httpx.AsyncClient) -> None:
    job = await created(api, {"rrule": "FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9"}, timezone="Europe/Berlin")
    assert {moment.strftime("%M:%S") for moment in await fires(api, job["job_id"])} == {"00:00"}


async def test_start_is_the_first_fire_of_an_interval_and_of_a_rule(api: httpx.AsyncClient) -> None:
    start = LATER.isoformat()
    for schedule in ({"every": "1h"}, {"rrule": "FREQ=HOURLY"}):
        job = await created(api, {**schedule, "start": start})
        assert await fires(api, job["job_id"], 2) == [LATER, LATER + timedelta(hours=1)]
        assert (await fires(api, (await created(api, schedule))["job_id"], 1))[0] < LATER


async def test_two_jobs_with_the_same_line_and_jitter_fire_apart(api: httpx.AsyncClient) -> None:
    one, other, plain = [
        (await fires(api, (await created(api, schedule))["job_id"]))
        for schedule in [{"cron": "0 * * * *", "jitter": "30m"}] * 2 + [{"cron": "0 * * * *"}]
    ]
    assert one != other
    for late, early, nominal in zip(one, other, plain, strict=True):
        assert nominal <= min(late, early) and max(late, early) < nominal + timedelta(minutes=30)


async def test_a_new_jitter_does_not_repeat_the_fire_before_it(api: httpx.AsyncClient) -> None:
    job = await created(api, {"every": "1h"})
    plain = await fires(api, job["job_id"])
    await changed(api, job["job_id"], schedule={"jitter": "1h"})
    moved = await fires(api, job["job_id"])
    assert all(early <= late < early + timedelta(hours=1) for early, late in zip(plain, moved, strict=True))


async def test_upcoming_ends_with_the_end_and_with_max_runs(api: httpx.AsyncClient) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=3, minutes=30)).isoformat()
    assert len(await fires(api, (await created(api, {"every": "1h", "end": soon}))["job_id"])) == 3
    job = await created(api, {"every": "1h", "max_runs": 2})
    assert (job["max_runs"], job["runs_left"]) == (2, 2)
    assert len(await fires(api, job["job_id"])) == 2
    assert len(await fires(api, (await created(api, {"every": "1h"}))["job_id"])) == 5


async def test_a_patch_changes_the_members_that_it_names(api: httpx.AsyncClient) -> None:
    job = await created(api, {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "jitter": "10m", "max_runs": 5})
    before = await fires(api, job["job_id"])
    job = await changed(api, job["job_id"], schedule={"end": LATER.isoformat()})
    assert (job["end"], job["jitter"], job["max_runs"]) == (LATER.isoformat().replace("+00:00", "Z"), 600.0, 5)
    assert await fires(api, job["job_id"]) == before
    job = await changed(api, job["job_id"], timezone="Asia/Tokyo")
    assert (job["timezone"], job["jitter"], job["cron_expression"]) == ("Asia/Tokyo", 600.0, "0 9 * * *")
    job = await changed(api, job["job_id"], schedule="0 10 * * *")
    assert (job["timezone"], job["jitter"], job["cron_expression"]) == ("Asia/Tokyo", 600.0, "0 10 * * *")
    job = await changed(api, job["job_id"], schedule={"cron": "0 10 * * *"})
    assert (job["timezone"], job["jitter"], job["end"], job["max_runs"], job["runs_left"]) == ("UTC", *[None] * 4)


async def test_a_patch_of_a_rule_keeps_where_it_began(api: httpx.AsyncClient) -> None:
    job = await created(api, {"rrule": "FREQ=MINUTELY;INTERVAL=7;BYSECOND=0"})
    before = await fires(api, job["job_id"])
    job = await changed(api, job["job_id"], schedule={"max_runs": 3})
    assert await fires(api, job["job_id"]) == before[:3]
    interval = await created(api, {"every": "7h"})
    before = await fires(api, interval["job_id"])
    await changed(api, interval["job_id"], schedule={"max_runs": 3})
    assert await fires(api, interval["job_id"]) == before[:3]


async def test_a_batch_with_a_bad_rule_names_its_job(api: httpx.AsyncClient) -> None:
    bad = {"task": "noop", "schedule": {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}}
    answer = await api.post("/v1/jobs:batch", json={"jobs": [{"task": "noop"}, bad]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "jobs[1].schedule.rrule"
