"""Why a job did or did not run at a time: `GET /v1/jobs/{id}/why`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def make(api: httpx.AsyncClient, job_id: str = "nightly", **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", "job_id": job_id, **fields})
    assert answer.status_code == 201, answer.text
    return job_id


async def why(api: httpx.AsyncClient, job_id: str = "nightly", at: str | None = None) -> dict[str, Any]:
    answer = await api.get(f"/v1/jobs/{job_id}/why", params={} if at is None else {"at": at})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def is_old(connection: asyncpg.Connection, job_id: str = "nightly") -> None:
    """Let the job be a year old and unchanged since then."""
    await connection.execute(
        """update mainspring.jobs set created_at = '2026-01-01Z', updated_at = '2026-01-01Z' where job_id = $1""",
        job_id,
    )


async def fired_for(connection: asyncpg.Connection, at: datetime, job_id: str = "nightly") -> None:
    await connection.execute("update mainspring.jobs set next_fire_at = $2 where job_id = $1", job_id, at)


def last_night() -> datetime:
    """The last time that it was 03:00."""
    today = datetime.now(UTC).replace(hour=3, minute=0, second=0, microsecond=0)
    return today if today < datetime.now(UTC) else today - timedelta(days=1)


async def test_the_run_of_that_time_is_explained(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, schedule="0 3 * * *")
    await is_old(connection)
    night = last_night()
    await fired_for(connection, night)
    await fire_due(assembly, connection)
    waits = await why(api, at=night.isoformat())
    assert (waits["reason"], waits["run_status"]) == ("waits", "QUEUED") and "no worker" in waits["why"]
    assert waits["fire"] == f"{night:%Y-%m-%dT%H:%M:%SZ}"
    worker = HandWorker(api)
    [order] = await worker.claim()
    assert (await why(api, at=night.isoformat()))["reason"] == "runs"
    await worker.report(outcome(order))
    ran = await why(api, at=night.isoformat())
    assert (ran["reason"], ran["run_id"]) == ("ran", str(order.run_id))
    assert "succeeded" in ran["why"] and "late" in ran["why"]
    assert (await why(api, at=f"{night:%Y-%m-%dT%H:%M}"))["run_id"] == str(order.run_id), "in the zone of the schedule"


async def test_without_a_time_the_last_fire_is_explained(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, schedule="0 3 * * *")
    first = await why(api)
    assert first["reason"] == "not_yet"
    await is_old(connection)
    await connection.execute("update mainspring.jobs set created_at = clock_timestamp() - interval '3 days'")
    due = last_night()
    await fired_for(connection, due)
    assert (await why(api))["reason"] == "not_fired"
    await fire_due(assembly, connection)
    found = await why(api)
    assert found["reason"] == "waits" and found["fire"] == f"{due:%Y-%m-%dT%H:%M:%SZ}"


async def test_a_skip_by_overlap_names_the_run_that_was_alive(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, schedule="* * * * * *", overlap="skip")
    alive = (await api.post("/v1/jobs/nightly:runNow")).json()["run_id"]
    await make_due(connection, "nightly")
    await fire_due(assembly, connection)
    skipped = next(run for run in (await api.get("/v1/jobs/nightly/runs")).json() if run["status"] == "SKIPPED")
    found = await why(api, at=skipped["scheduled_for"])
    assert found["reason"] == "skipped" and alive in found["why"] and "overlap" in found["why"]


async def test_a_limit_holds_it(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
    limit = {"limit": 1, "per": "task"}
    await api.post("/v1/jobs", json={"task": "noop", "concurrency": limit})
    await make(api, schedule="0 3 * * *", concurrency=limit)
    await is_old(connection)
    await fired_for(connection, last_night())
    await fire_due(assembly, connection)
    found = await why(api, at=last_night().isoformat())
    assert (found["reason"], found["run_status"]) == ("waits", "HELD") and "limit" in found["why"]


async def test_a_pause_is_the_reason_while_it_lasts_and_after_it(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await make(api, schedule="0 3 * * *")
    await is_old(connection)
    await fired_for(connection, last_night())
    await connection.execute(
        "update mainspring.jobs set status = 2, paused_from = next_fire_at, next_fire_at = null"
    )  # paused the day before
    night = last_night().isoformat()
    now = await why(api, at=night)
    assert now["reason"] == "paused" and "resume" in now["why"]
    assert (await why(api))["reason"] == "paused"
    await api.post("/v1/jobs/nightly:resume")
    later = await why(api, at=night)
    assert later["reason"] == "paused" and later["missed"]["reason"] == "paused"


@pytest.mark.parametrize(
    ("misfire", "fires", "expected"),
    [
        ({"policy": "skip"}, 1, "skip"),
        ({"policy": "once"}, 2, "once"),
        ({"policy": "once", "grace": "1m"}, 1, "grace"),
        ({"policy": "all", "cap": 1}, 2, "cap"),
    ],
)
async def test_a_misfire_policy_is_the_reason(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, misfire: Any, fires: int, expected: str
) -> None:
    await make(api, schedule={"cron": "0 3 * * *"}, misfire=misfire)
    await is_old(connection)
    first = last_night() - timedelta(days=fires - 1)
    await fired_for(connection, first)
    await fire_due(assembly, connection)
    found = await why(api, at=first.isoformat())
    assert found["reason"] == "misfire" and expected in found["why"], found
    assert found["missed"]["first"] == f"{first:%Y-%m-%dT%H:%M:%SZ}"


async def test_a_calendar_is_the_reason(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    night = last_night()
    await api.put("/v1/calendars/office", json={"dates": [f"{night:%Y-%m-%d}"], "timezone": "UTC"})
    for outside in ("skip", "next"):
        await make(api, outside, schedule={"cron": "0 3 * * *", "calendar": "office", "outside": outside})
        await is_old(connection, outside)
        found = await why(api, outside, night.isoformat())
        assert found["reason"] == "calendar" and "office" in found["why"], found
        assert ("moved to" in found["why"]) == (outside == "next")
        assert found["fire_before"] and found["fire_after"]


async def test_a_change_of_the_clocks_is_the_reason(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await make(api, schedule={"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}})
    await is_old(connection)
    for at in ("2026-03-29T02:30", "2026-03-29T02:30:00+01:00", "2026-03-29T03:30:00+02:00"):
        found = await why(api, at=at)
        assert found["reason"] == "clock_change" and "02:30 does not exist on 2026-03-29" in found["why"], at


async def test_a_time_at_which_it_is_not_due_names_the_nearest_fires(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await make(api, schedule={"cron": "0 3 * * *", "timezone": "Europe/Berlin"})
    await is_old(connection)
    found = await why(api, at="2026-11-17T04:00")
    assert found["reason"] == "not_due" and "2026-11-17 03:00 (Europe/Berlin)" in found["why"]
    assert (found["fire_before"], found["fire_after"]) == ("2026-11-17T02:00:00Z", "2026-11-18T02:00:00Z")
    ahead = await why(api, at="2099-11-17T03:00")
    assert ahead["reason"] == "not_yet"


async def test_exdates_bounds_and_ends_are_reasons(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    rule = {"rrule": "FREQ=DAILY", "start": "2026-01-01T03:00:00Z", "exdates": ["2026-11-10T03:00:00Z"]}
    await make(api, "left-out", schedule=rule)
    await is_old(connection, "left-out")
    assert (await why(api, "left-out", "2026-11-10T03:00Z"))["reason"] == "left_out"
    await make(api, "bounded", schedule={"cron": "0 3 * * *", "start": "2098-01-01T00:00:00Z"})
    await is_old(connection, "bounded")
    early = await why(api, "bounded", "2026-11-10T03:00Z")
    assert early["reason"] == "not_due" and "begins" in early["why"]
    await make(api, "twice", schedule={"every": "1s", "max_runs": 1})
    await make_due(connection, "twice")
    await fire_due(assembly, connection)
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    over = await why(api, "twice", later)
    assert over["reason"] == "ended" and "max_runs" in over["why"]
    await make(api, "gone", schedule="* * * * * *")
    await api.delete("/v1/jobs/gone")
    cancelled = await why(api, "gone", later)
    assert cancelled["reason"] == "cancelled"


async def test_what_was_before_the_job_or_its_last_change_is_said(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await make(api, schedule="0 3 * * *")
    night = last_night().isoformat()
    assert (await why(api, at=night))["reason"] == "created_later"
    await is_old(connection)
    assert (await why(api, at=night))["reason"] == "unknown"
    await api.patch("/v1/jobs/nightly", json={"schedule": "30 2 * * *"})
    changed = await why(api, at=last_night().replace(hour=2, minute=30).isoformat())
    assert changed["reason"] == "changed_later"
    before = await why(api, at=night)
    assert before["reason"] == "not_due" and "last change" in before["why"]


async def test_a_job_without_times_says_so(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await make(api, "by-hand", schedule="manual")
    await make(api, "later", schedule={"after": ["by-hand"]})
    for job_id in ("by-hand", "later"):
        await is_old(connection, job_id)
        assert (await why(api, job_id, last_night().isoformat()))["reason"] == "no_schedule"
        assert (await why(api, job_id))["reason"] == "no_schedule"


async def test_a_one_time_job_is_explained_before_and_after_its_fire(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, "once", schedule={"at": "2099-01-01T03:00:00Z"})
    assert (await why(api, "once"))["reason"] == "not_yet"
    assert (await why(api, "once", "2098-01-01T03:00:00Z"))["reason"] == "not_due"
    await api.put("/v1/jobs/once", json={"schedule_time": "2020-01-01T00:00:00Z"})
    await fire_due(assembly, connection)
    for at in (None, "2020-01-01T00:00:00Z"):
        found = await why(api, "once", at)
        assert (found["reason"], found["run_status"]) == ("waits", "QUEUED")
    assert (await why(api, "once", "2019-01-01T00:00:00Z"))["reason"] == "not_due"


async def test_bad_requests(api: httpx.AsyncClient) -> None:
    await make(api, schedule="0 3 * * *")
    refused = problem(await api.get("/v1/jobs/nightly/why?at=yesterday"))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "invalid_time", "at")
    forms = refused["hint"].removeprefix("such as ").partition(";")[0].replace(" or", "").split(", ")
    assert len(forms) == 4
    for form in forms:
        assert (await api.get("/v1/jobs/nightly/why", params={"at": form})).status_code == 200, form
    assert (await api.get("/v1/jobs/nope/why")).status_code == 404
    assert (await api.get("/jobs/nightly/why")).status_code == 200
