"""Changes of a job whose schedule ends: max_runs counts across changes and pauses, and a later end goes on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest

pytestmark = pytest.mark.anyio

JOBS = "/v1/jobs"
DUE = "update mainspring.jobs set next_fire_at = clock_timestamp(), runs_left = $2 where job_id = $1"


async def created(api: httpx.AsyncClient, **schedule: Any) -> str:
    answer = await api.post(JOBS, json={"task": "noop", "overlap": "allow", "schedule": schedule})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def patched(api: httpx.AsyncClient, job_id: str, **schedule: Any) -> httpx.Response:
    return await api.patch(f"{JOBS}/{job_id}", json={"schedule": schedule})


async def test_what_a_change_fires_counts(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    job_id = await created(api, every="1h", max_runs=5)
    await connection.execute(DUE, job_id, 3)
    job = (await patched(api, job_id, max_runs=10)).json()
    assert (job["max_runs"], job["runs_left"]) == (10, 7)  # two before, and one that was due


async def test_the_last_run_by_a_change_completes_the_job_and_more_runs_go_on(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await created(api, every="1h", max_runs=5)
    await connection.execute(DUE, job_id, 1)
    assert (await api.patch(f"{JOBS}/{job_id}", json={"name": "other"})).status_code == 200
    job = (await api.get(f"{JOBS}/{job_id}")).json()
    assert (job["status"], job["runs_left"], job["next_fire_at"]) == ("COMPLETED", 0, None)
    refused = await patched(api, job_id, jitter="1m")
    assert (refused.status_code, refused.json()["field"]) == (422, "schedule.max_runs")
    job = (await patched(api, job_id, max_runs=6)).json()
    assert (job["status"], job["runs_left"]) == ("SCHEDULED", 1)
    assert job["next_fire_at"] is not None


async def test_a_job_whose_end_came_goes_on_with_a_later_end(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    now = await connection.fetchval("select clock_timestamp()")
    job_id = await created(api, every="1h", end=(now + timedelta(hours=2)).isoformat())
    await connection.execute(
        "update mainspring.jobs set status = 4, next_fire_at = null, last_fired_for = $2 where job_id = $1", job_id, now
    )
    assert (await api.get(f"{JOBS}/{job_id}")).json()["status"] == "COMPLETED"
    job = (await patched(api, job_id, end=(now + timedelta(days=2)).isoformat())).json()
    assert job["status"] == "SCHEDULED" and job["next_fire_at"] is not None


async def test_a_pause_keeps_the_runs_and_a_job_that_ended_meanwhile_is_completed_by_resume(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    now = await connection.fetchval("select clock_timestamp()")
    job_id = await created(api, every="1h", end=(now + timedelta(hours=2)).isoformat(), max_runs=4)
    await api.post(f"{JOBS}/{job_id}:pause")
    past = now - timedelta(days=1)
    await connection.execute(
        """update mainspring.jobs set paused_from = $2, schedule = jsonb_set(jsonb_set(schedule::jsonb, '{end}',
           to_jsonb($3::text)), '{anchor}', to_jsonb($4::text))::json where job_id = $1""",
        job_id, past, (past + timedelta(hours=1)).isoformat(), past.isoformat(),
    )  # fmt: skip
    assert (await api.post(f"{JOBS}/{job_id}:resume")).status_code == 200
    job = (await api.get(f"{JOBS}/{job_id}")).json()
    assert (job["status"], job["next_fire_at"], job["runs_left"]) == ("COMPLETED", None, 4)
    missed = (await api.get(f"{JOBS}/{job_id}/missed")).json()
    assert [one["count"] for one in missed] == [2]


async def test_a_deleted_job_without_runs_left_is_completed_when_it_is_resumed(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    job_id = await created(api, every="1h", max_runs=5)
    await connection.execute(DUE, job_id, 1)
    await api.patch(f"{JOBS}/{job_id}", json={"name": "other"})
    await api.delete(f"{JOBS}/{job_id}")
    await api.post(f"{JOBS}/{job_id}:resume")
    job = (await api.get(f"{JOBS}/{job_id}")).json()
    assert (job["status"], job["next_fire_at"]) == ("COMPLETED", None)
