"""A claim is not a start: what is shown of a run before and after its worker tells that it has started."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.wire.exchange import RunOrder
from mainspring.wire.protocol import TELLS_STARTS
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


def a_telling_worker(api: httpx.AsyncClient) -> HandWorker:
    worker = HandWorker(api)
    worker.card = msgspec.structs.replace(worker.card, protocol=TELLS_STARTS)
    return worker


async def told(worker: HandWorker, *orders: RunOrder, ago: float = 260.0) -> None:
    await worker.exchange(started=[(order.run_id, order.fence, ago) for order in orders])


async def seen(api: httpx.AsyncClient, order: RunOrder) -> dict[str, Any]:
    """Every place in which the state of the run is shown. They agree with each other."""
    run: dict[str, Any] = (await api.get(f"/v1/runs/{order.run_id}")).json()
    assert (await api.get(f"/v1/jobs/{order.job_id}/status")).json()["latest_run"]["status"] == run["status"]
    assert (await api.get(f"/v1/runs/{order.run_id}/why")).json()["status"] == run["status"]
    states = ("QUEUED", "RUNNING", "SCHEDULED", "SUCCESS")
    listed = {state: (await api.get(f"/v1/runs?status={state}")).json()["runs"] for state in states}
    assert {state for state, runs in listed.items() if runs} == {run["status"]}
    [queue] = (await api.get("/v1/queues")).json()["queues"]
    counted = {"QUEUED": (1, 0), "RUNNING": (0, 1)}.get(run["status"], (0, 0))
    assert (queue["depth"], queue["running"]) == counted
    timeline = (await api.get(f"/v1/runs/{order.run_id}/timeline")).json()
    running = [entry["at"] for entry in timeline if entry["state"] == "RUNNING"]
    assert running == ([run["start_time"]] if run["start_time"] else [])
    return run


async def test_a_claimed_run_is_queued_and_runs_when_its_worker_says_so(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "task": "noop"})
    worker = a_telling_worker(api)
    [order] = await worker.claim()
    run = await seen(api, order)
    assert (run["status"], run["start_time"], run["duration"]) == ("QUEUED", None, None)
    assert (run["executor_id"], run["reason"]) == (str(worker.worker_id), "assigned to a worker, not started yet")
    why = (await api.get(f"/v1/runs/{order.run_id}/why")).json()["why"]
    assert why == f"It is queued: assigned to worker {worker.worker_id}, not started yet."
    [shown] = (await api.get("/v1/workers")).json()["workers"]
    assert (shown["running"], shown["holding"]) == (0, 1)
    await told(worker, order)
    run = await seen(api, order)
    assert (run["status"], run["reason"]) == ("RUNNING", None)
    assert run["start_time"] is not None and run["duration"] > 0
    began = await connection.fetchrow("select started_at, claimed_at from mainspring.runs")
    assert began["started_at"] >= began["claimed_at"]
    await told(worker, order, ago=100_000.0)  # a repeated start changes nothing
    assert (await seen(api, order))["start_time"] == run["start_time"]
    [shown] = (await api.get("/v1/workers")).json()["workers"]
    assert (shown["running"], shown["holding"]) == (1, 1)
    await worker.report(outcome(order, held_ms=3.0, ran_ms=400.0))
    assert (await seen(api, order))["status"] == "SUCCESS"


async def test_progress_shows_that_a_run_has_started(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker = a_telling_worker(api)
    [order] = await worker.claim()
    await worker.exchange(progress=[{"run_id": order.run_id, "fence": order.fence, "number": 1, "fraction": 0.5}])
    assert (await seen(api, order))["status"] == "RUNNING"


async def test_a_start_counts_only_for_the_holder_and_its_fence(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker, other = a_telling_worker(api), a_telling_worker(api)
    [order] = await worker.claim()
    await other.hello()
    row = await connection.fetchrow("select xmin, * from mainspring.runs")
    await other.exchange(started=[(order.run_id, order.fence, 1.0)])
    await worker.exchange(started=[(order.run_id, order.fence + 1, 1.0)])
    assert await connection.fetchrow("select xmin, * from mainspring.runs") == row


async def test_the_next_attempt_has_not_started_because_the_last_one_had(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "retry": {"base": "1ms", "backoff": "constant"}})
    worker = a_telling_worker(api)
    [order] = await worker.claim()
    await told(worker, order)
    before = await connection.fetchval("select started_at from mainspring.runs")
    await worker.report(outcome(order, "FAILED", error="no"))
    await connection.execute("update mainspring.runs set ready_at = clock_timestamp()")
    [order] = await worker.claim()
    # A server of 0.2.0 requeues without a reset of the column.
    await connection.execute("update mainspring.runs set started_at = $1", before)
    run = (await api.get(f"/v1/runs/{order.run_id}")).json()
    assert (run["status"], run["start_time"]) == ("QUEUED", None)
    assert (await api.get("/v1/runs?status=running")).json()["runs"] == []
    await told(worker, order, ago=0.0)
    assert (await api.get(f"/v1/runs/{order.run_id}")).json()["status"] == "RUNNING"


async def test_a_worker_that_does_not_tell_starts_runs_what_it_claims(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker = HandWorker(api)
    [order] = await worker.claim()
    run = await seen(api, order)
    assert run["status"] == "RUNNING" and run["start_time"] is not None


async def test_what_the_first_hello_left_out_is_made_good_by_the_second(api: httpx.AsyncClient) -> None:
    """A worker does not send its protocol to a server that it does not know."""
    await api.post("/v1/jobs", json={"task": "noop"})
    worker = HandWorker(api)
    [order] = await worker.claim()
    worker.card = msgspec.structs.replace(worker.card, protocol=TELLS_STARTS)
    await worker.hello()
    assert (await seen(api, order))["status"] == "QUEUED"


async def test_a_run_that_never_began_has_no_start_in_its_history(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    worker = a_telling_worker(api)
    [order] = await worker.claim()
    await api.post(f"/v1/runs/{order.run_id}:cancel")
    await worker.report(outcome(order, "CANCELLED", held_ms=5.0, unstarted=True))
    run = (await api.get(f"/v1/runs/{order.run_id}")).json()
    assert (run["status"], run["start_time"], run["duration"]) == ("CANCELLED", None, None)


async def test_a_claim_and_a_report_write_the_row_once_each(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """A short run costs nothing more than before: its row is written by the claim only."""
    await api.post("/v1/jobs", json={"task": "noop"})
    worker = a_telling_worker(api)
    await worker.hello()
    [order] = await worker.claim()
    xmin = await connection.fetchval("select xmin from mainspring.runs")
    await worker.exchange()
    assert await connection.fetchval("select xmin from mainspring.runs") == xmin
    await worker.report(outcome(order))
    assert (await api.get(f"/v1/runs/{order.run_id}")).json()["start_time"] is not None
