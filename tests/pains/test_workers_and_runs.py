"""Runs that are delivered twice, run forever, end twice, block the next run, or stay behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.signals import Signals
from mainspring.roles.assembly import Assembly
from mainspring.store.pool import Store
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from tests.api.bookkeeping import rows
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.store.rows import all_fall_silent, beat, live, now_of
from tests.upkeep.test_run_rescuer import Watch

pytestmark = pytest.mark.anyio


async def make(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def states(api: httpx.AsyncClient, job_id: str) -> list[str]:
    """The states of the job's runs, newest first."""
    return [run["status"] for run in (await api.get(f"/v1/jobs/{job_id}/runs")).json()]


async def test_a_job_delayed_for_days_is_delivered_once_and_not_before(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, watch: Watch
) -> None:
    """No worker gets it before it is due. Its worker keeps it as long as it sends beats."""
    due = await now_of(connection) + timedelta(days=3)
    job_id = await make(api, schedule={"at": due.isoformat()})
    first, second = HandWorker(api), HandWorker(api)
    for worker in (first, second):
        assert (await worker.hello(free=10)).runs == []
    assert await fire_due(assembly, connection) == 0
    assert await live(connection) == []
    await make_due(connection, job_id)
    assert [await fire_due(assembly, connection) for _ in range(3)] == [1, 0, 0]
    [order] = await first.claim()
    await connection.execute("update mainspring.runs set claimed_at = claimed_at - interval '3 days'")
    await all_fall_silent(connection)
    await beat(connection, first.worker_id, ago=0.0)
    await beat(connection, second.worker_id, ago=0.0)
    assert await watch.sweep() == 0
    assert (await second.exchange(free=10)).runs == []
    await first.report(outcome(order))
    assert await states(api, job_id) == ["SUCCESS"]


async def test_a_dead_worker_leaves_no_run_running_and_no_slot_taken(
    api: httpx.AsyncClient, connection: asyncpg.Connection, watch: Watch
) -> None:
    """Its run goes to the next worker: at once, and from the second loss on after a while. All slots of that worker are
    free. Losses spend no retry."""
    job_id = await make(api, retries=0)
    for after in ("QUEUED", "SCHEDULED", "SCHEDULED"):
        await HandWorker(api).claim()
        assert await states(api, job_id) == ["RUNNING"]
        await all_fall_silent(connection)
        assert await watch.sweep() == 1
        assert await states(api, job_id) == [after]
        await connection.execute("update mainspring.runs set ready_at = least(ready_at, clock_timestamp())")
    last = HandWorker(api)
    [order] = await last.claim()
    await last.report(outcome(order))
    assert await states(api, job_id) == ["SUCCESS"]
    held = {worker["worker_id"]: worker["running"] for worker in (await api.get("/v1/workers")).json()["workers"]}
    assert set(held.values()) == {0}


async def test_a_completed_run_is_not_flipped_when_its_worker_is_lost(
    api: httpx.AsyncClient, connection: asyncpg.Connection, watch: Watch
) -> None:
    job_id = await make(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order, result="done"))
    before = (await api.get(f"/v1/runs/{order.run_id}")).json()
    await all_fall_silent(connection)
    assert await watch.sweep() == 0
    assert (await worker.ask(outcomes=[outcome(order, "FAILED", error="crashed")])).status_code == 409
    assert (await api.get(f"/v1/runs/{order.run_id}")).json() == before
    assert await states(api, job_id) == ["SUCCESS"]


@pytest.mark.parametrize("end", ["cancelled while queued", "cancelled while running", "timed out", "worker lost"])
async def test_a_run_that_was_ended_from_outside_does_not_block_the_next_fire(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, store: Store, watch: Watch, end: str
) -> None:
    """Overlap skip is decided by the live runs. There is no flag that could stay behind."""
    job_id = await make(api, schedule={"every": "1h"}, overlap="skip", retries=0, max_losses=0, run_timeout="1h")
    await make_due(connection, job_id)
    assert await fire_due(assembly, connection) == 1
    await make_due(connection, job_id)
    assert await fire_due(assembly, connection) == 0, "the first is alive"
    [run_id] = [row["run_id"] for row in await live(connection)]
    worker = HandWorker(api)
    if end == "cancelled while queued":
        await api.post(f"/v1/runs/{run_id}:cancel")
    else:
        [order] = await worker.claim()
    if end == "cancelled while running":
        await api.post(f"/v1/runs/{run_id}:cancel")
        await worker.report(outcome(order, "CANCELLED"))
    if end == "timed out":
        await worker.report(outcome(order, "RETURNED"))
        await connection.execute("update mainspring.runs set deadline = deadline - interval '1 hour'")
        assert await DeadlineSweeper(store, Signals(store)).run_once() == 1
    if end == "worker lost":
        await all_fall_silent(connection)
        assert await watch.sweep() == 1
    ended = "CANCELLED" if end.startswith("cancelled") else "FAILED"
    assert sorted(await states(api, job_id)) == sorted([ended, "SKIPPED"])
    await make_due(connection, job_id)
    assert await fire_due(assembly, connection) == 1


async def test_what_has_ended_is_gone_from_the_hot_tables(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """Also the jobs: a one-time job that has run is only a row of the history."""
    past = (await now_of(connection) - timedelta(seconds=1)).isoformat()
    for schedule in ("now", {"at": past}):
        batch = [{"task": "noop", "schedule": schedule}] * 20
        assert (await api.post("/v1/jobs:batch", json=batch)).status_code == 201
    assert await fire_due(assembly, connection) == 20
    worker = HandWorker(api)
    await worker.report(*(outcome(order) for order in await worker.claim(40)))
    assert {table: count for table, count in (await rows(connection)).items() if count} == {
        "run_history": 40, "lanes": 1, "workers": 1,
    }  # fmt: skip
