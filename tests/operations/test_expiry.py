"""expires_in: a run that has not started by then ends SKIPPED with the reason `expired`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from tests.operations.firing import let_backoff_pass
from tests.operations.hand_worker import HandWorker, outcome
from tests.store.rows import now_of

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
JOB = {"task": "noop", "expires_in": "1h"}


async def submit(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={**JOB, **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def let_expire(connection: asyncpg.Connection) -> None:
    await connection.execute("update mainspring.runs set expires_at = expires_at - interval '1 hour'")


async def sweep(assembly: Assembly) -> int:
    return await DeadlineSweeper(assembly.store, assembly.signals).run_once()


async def the_run(api: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    [run] = (await api.get(f"/v1/jobs/{job_id}/runs")).json()
    assert isinstance(run, dict)
    return run


async def test_a_run_that_no_worker_takes_in_time_is_skipped(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    before = await now_of(connection)
    job_id = await submit(api)
    expires_at = await connection.fetchval("select expires_at from mainspring.runs")
    assert before + HOUR <= expires_at <= await now_of(connection) + HOUR
    assert await sweep(assembly) == 0
    await let_expire(connection)
    worker = HandWorker(api)
    assert (await worker.exchange(free=1, hello=worker.card)).runs == [], "no worker may start it any more"
    assert await sweep(assembly) == 1
    run = await the_run(api, job_id)
    assert (run["status"], run["reason"], run["attempt_number"]) == ("SKIPPED", "expired", 0)
    assert (await api.get("/v1/dead-letters")).json()["dead_letters"] == []
    assert await sweep(assembly) == 0


async def test_a_run_that_has_started_does_not_expire(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id, worker = await submit(api), HandWorker(api)
    [order] = await worker.claim()
    await let_expire(connection)
    assert await sweep(assembly) == 0
    await worker.report(outcome(order, "FAILED", error="x"))
    await let_backoff_pass(connection)
    assert await sweep(assembly) == 0, "its first attempt started in time"
    [order] = await worker.claim()
    await worker.report(outcome(order, "SUCCESS"))
    assert (await the_run(api, job_id))["status"] == "SUCCESS"


async def test_a_run_that_is_handed_back_unstarted_expires_at_the_same_moment(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id, worker = await submit(api), HandWorker(api)
    expires_at = await connection.fetchval("select expires_at from mainspring.runs")
    [order] = await worker.claim()
    await worker.report(outcome(order, "RETURNED"))
    assert await connection.fetchval("select expires_at from mainspring.runs") == expires_at
    await let_expire(connection)
    assert (await worker.exchange(free=5)).runs == []
    assert await sweep(assembly) == 1
    assert (await the_run(api, job_id))["reason"] == "expired"


async def test_both_times_of_a_job_count_by_themselves(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    job_id, worker = await submit(api, run_timeout="10m"), HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="x"))
    await let_backoff_pass(connection)
    await let_expire(connection)
    assert await sweep(assembly) == 0
    await connection.execute("update mainspring.runs set deadline = deadline - interval '10 minutes'")
    assert await sweep(assembly) == 1
    run = await the_run(api, job_id)
    assert (run["status"], run["reason"]) == ("FAILED", "timed out after 10m in all (run_timeout)")


async def test_each_way_to_a_run_sets_its_expiry(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """By hand, as a replay of a skipped run, and from SQL."""
    await submit(api, job_id="daily", schedule={"cron": "0 3 * * *"})
    await api.post("/v1/jobs/daily:runNow")
    await connection.execute("select mainspring.submit($1)", msgspec.json.encode({**JOB, "job_id": "sql"}).decode())
    assert await connection.fetchval("select count(expires_at) from mainspring.runs") == 2
    await let_expire(connection)
    assert await sweep(assembly) == 2
    skipped = await the_run(api, "sql")
    again = await api.post(f"/v1/runs/{skipped['run_id']}:retry")
    assert again.status_code == 202, again.text
    assert await connection.fetchval("select expires_at from mainspring.runs") > await now_of(connection)


async def test_runs_without_it_have_no_expiry(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    await api.post("/v1/jobs", json={"task": "noop", "timeout": "5m"})
    assert await connection.fetchval("select count(expires_at) from mainspring.runs") == 0


async def test_it_is_shown_changed_and_checked(api: httpx.AsyncClient) -> None:
    job_id = await submit(api, schedule="manual")
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["expires_in"] == 3600.0
    assert (await api.patch(f"/v1/jobs/{job_id}", json={"expires_in": "5m"})).json()["expires_in"] == 300.0
    assert (await api.patch(f"/v1/jobs/{job_id}", json={"expires_in": None})).json()["expires_in"] is None
    refused = (await api.post("/v1/jobs", json={**JOB, "expires_in": "soon"})).json()
    assert (refused["status"], refused["field"]) == (422, "expires_in")
