"""What a run shows of its worker: modified_time moves while the worker is heard, attempts count from 1 once they have
started, and the worker has a name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import workers
from tests.operations.hand_worker import HandWorker, held, outcome
from tests.operations.servers import another_server
from tests.operations.test_starts import a_telling_worker, told

pytestmark = pytest.mark.anyio


async def run(api: httpx.AsyncClient, run_id: Any) -> dict[str, Any]:
    """The run. The list and the job show the same."""
    found: dict[str, Any] = (await api.get(f"/v1/runs/{run_id}")).json()
    [listed] = [one for one in (await api.get("/v1/runs")).json()["runs"] if one["run_id"] == str(run_id)]
    for name in ("modified_time", "created_at", "executor", "executor_id", "attempt_number", "status"):
        assert listed[name] == found[name], name
    return found


async def now(connection: asyncpg.Connection) -> str:
    moment: datetime = await connection.fetchval("select clock_timestamp()")
    return moment.isoformat().replace("+00:00", "Z")


async def test_a_run_under_way_is_modified_when_its_worker_is_heard(
    connection: asyncpg.Connection, database_url: str
) -> None:
    clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
    async with another_server(database_url, clock=clock) as api:
        await _under_way(api, connection, clock)


async def _under_way(api: httpx.AsyncClient, connection: asyncpg.Connection, clock: ManualClock) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "retries": 1})
    worker, other = a_telling_worker(api), HandWorker(api)
    [order] = await worker.claim()
    claimed = await run(api, order.run_id)
    assert (claimed["status"], claimed["attempt_number"], claimed["log_url"]) == ("QUEUED", 0, None)
    assert (claimed["executor"], claimed["executor_id"]) == ("by-hand", str(worker.worker_id))
    await worker.exchange(inventory=held(order))
    assert (await run(api, order.run_id))["modified_time"] == claimed["modified_time"], "it is not under way yet"
    await told(worker, order)
    seen = []
    for _ in range(2):
        before = await now(connection)
        clock.advance(1.0)  # a heartbeat is recorded at most twice a second
        await worker.exchange(inventory=held(order))
        beaten = await run(api, order.run_id)
        assert before <= beaten["modified_time"] <= await now(connection)
        seen.append(beaten["modified_time"])
    assert (beaten["attempt_number"], seen) == (1, sorted(set(seen)))
    await other.hello()
    assert (await run(api, order.run_id))["modified_time"] == seen[-1], "another worker was heard"
    ages = await connection.fetch(
        "select 0 as table, max(at) from mainspring.worker_beats_0"
        " union all select 1, max(at) from mainspring.worker_beats_1 order by 2 nulls first"
    )
    for row in ages:  # the last heartbeat is kept when its table is truncated, the older table first
        await connection.execute(f"truncate mainspring.worker_beats_{row['table']}")
    assert (await run(api, order.run_id))["modified_time"] == seen[-1]

    await worker.report(outcome(order, "FAILED", error="no"))
    failed = await run(api, order.run_id)
    assert (failed["status"], failed["attempt_number"], failed["executor"]) == ("SCHEDULED", 1, None)
    assert seen[-1] <= failed["modified_time"] <= await now(connection)
    await worker.exchange()
    await other.exchange()
    assert (await run(api, order.run_id))["modified_time"] == failed["modified_time"], "it waits"


async def test_an_ended_run_is_not_modified_any_more(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    before = await now(connection)
    await api.post("/v1/jobs", json={"task": "noop"})
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order))
    ended = await run(api, order.run_id)
    assert (ended["executor"], ended["attempt_number"]) == ("by-hand", 1)
    assert before <= ended["created_at"] <= ended["start_time"] <= ended["end_time"] == ended["modified_time"]
    await worker.exchange()
    assert (await run(api, order.run_id))["modified_time"] == ended["end_time"]
    await connection.execute("delete from mainspring.workers")
    forgotten = await run(api, order.run_id)
    assert (forgotten["executor"], forgotten["executor_id"]) == (None, str(worker.worker_id))


async def test_a_run_that_was_cancelled_before_it_started_has_no_attempt(api: httpx.AsyncClient) -> None:
    made = (await api.post("/v1/jobs", json={"task": "noop"})).json()["job_id"]
    worker = a_telling_worker(api)
    [order] = await worker.claim()
    await api.delete(f"/v1/jobs/{made}")
    await worker.report(outcome(order, "CANCELLED", unstarted=True))
    assert (await run(api, order.run_id))["attempt_number"] == 0


async def test_old_heartbeats_are_found_too(connection: asyncpg.Connection, api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    await worker.hello()
    for table in (0, 1):
        await connection.execute(f"update mainspring.worker_beats_{table} set at = at - interval '20 seconds'")
    [shown] = await workers.list_workers(connection, DEFAULT_TENANT, 10)
    assert await workers.last_beats(connection, [worker.worker_id]) == {worker.worker_id: shown.last_beat_at}
