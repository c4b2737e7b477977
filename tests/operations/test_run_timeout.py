"""run_timeout: the time of the whole run, from its first claim, over all attempts and waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.job import Delivery, Spec
from mainspring.operations.lifecycle.rescue import rescue
from mainspring.operations.signals import Signals
from mainspring.store import runs
from mainspring.store.pool import Store
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from tests.api.bookkeeping import rows
from tests.operations.firing import let_backoff_pass
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_outcomes import claimed, run
from tests.store.rows import a_lane, a_worker, claim, ended, live, now_of, queued

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
OVER = "timed out after 1h in all (run_timeout)"


async def deadline(connection: asyncpg.Connection) -> Any:
    return await connection.fetchval("select deadline from mainspring.runs")


async def let_time_pass(connection: asyncpg.Connection, span: timedelta) -> None:
    await connection.execute("update mainspring.runs set deadline = deadline - $1::interval", span)


async def test_the_first_claim_starts_the_clock_and_no_later_one_does(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop", "run_timeout": "1h", "timeout": "2h"})
    assert await deadline(connection) is None
    worker = HandWorker(api)
    before = await now_of(connection)
    [order] = await worker.claim()
    first = await deadline(connection)
    assert before + HOUR <= first <= await now_of(connection) + HOUR
    assert 3590 < order.timeout <= 3600
    await worker.report(outcome(order, "FAILED", error="x"))
    await let_backoff_pass(connection)
    [order] = await worker.claim()
    assert (order.attempt, await deadline(connection)) == (2, first)
    await worker.report(outcome(order, "RETURNED"))
    [order] = await worker.claim()
    assert (order.attempt, await deadline(connection)) == (2, first)


async def test_an_attempt_gets_its_own_timeout_or_what_is_left_of_the_whole(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, run_timeout="1h", timeout="10m")
    assert order.timeout == 600.0
    await worker.report(outcome(order, "FAILED", error="x"))
    await let_backoff_pass(connection)
    await let_time_pass(connection, timedelta(minutes=55))
    [order] = await worker.claim()
    assert 290 < order.timeout <= 300
    await let_time_pass(connection, timedelta(minutes=6))
    [again] = (await worker.exchange(recover=True, inventory=[])).runs
    assert again.timeout == 0.001


async def test_runs_without_a_run_timeout_have_no_deadline(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    await api.post("/v1/jobs", json={"task": "noop", "timeout": "5m", "priority": "high"})
    worker = HandWorker(api)
    orders = await worker.claim(2)
    assert sorted(order.timeout for order in orders) == [300.0, 3600.0]
    assert await connection.fetchval("select count(deadline) from mainspring.runs") == 0


async def test_a_failure_after_the_time_is_over_is_the_end(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, run_timeout="1h")
    await let_time_pass(connection, HOUR)
    await worker.report(outcome(order, "FAILED", error="timed out after 59m"))
    over = await run(api, order)
    assert (over["status"], over["reason"], over["error_message"]) == ("FAILED", OVER, "timed out after 59m")
    assert (await rows(connection))["dead_letters"] == 1


async def test_a_success_after_the_time_is_over_is_a_success(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, run_timeout="1h")
    await let_time_pass(connection, 2 * HOUR)
    await worker.report(outcome(order))
    assert (await run(api, order))["status"] == "SUCCESS"


async def test_no_wait_is_begun_that_would_pass_the_deadline(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, run_timeout="1h", retry={"base": "50m", "backoff": "constant", "cap": "50m"})
    await worker.report(outcome(order, "FAILED", error="x"))
    assert (await run(api, order))["status"] == "SCHEDULED"
    await let_backoff_pass(connection)
    await let_time_pass(connection, timedelta(minutes=20))
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="y"))
    over = await run(api, order)
    assert (over["status"], over["reason"]) == ("FAILED", f"{OVER}: the next attempt would begin later than that")


async def test_one_that_waits_beyond_its_deadline_is_ended_by_the_sweep_with_no_worker_about(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store
) -> None:
    worker, order = await claimed(api, run_timeout="1h", retry={"base": "10m"}, payload={"a": 1})
    await worker.report(outcome(order, "FAILED", error="the last error"))
    sweeper = DeadlineSweeper(store, Signals(store))
    assert await sweeper.run_once() == 0
    await let_time_pass(connection, HOUR)
    assert await sweeper.run_once() == 1
    over = await run(api, order)
    assert (over["status"], over["reason"], over["error_message"]) == ("FAILED", OVER, "the last error")
    [letter] = (await api.get("/v1/dead-letters")).json()["dead_letters"]
    assert (letter["payload"], letter["reason"]) == ({"a": 1}, OVER)
    assert await sweeper.run_once() == 0


async def test_one_that_is_overdue_is_not_handed_out_before_the_sweep_comes(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker, order = await claimed(api, run_timeout="1h")
    await worker.report(outcome(order, "RETURNED"))
    await let_time_pass(connection, HOUR)
    await api.post("/v1/jobs", json={"task": "noop", "priority": "high"})
    for free in (5, 5):  # first from several lanes, then from one
        orders = (await worker.exchange(free=free)).runs
        assert order.run_id not in [one.run_id for one in orders]
    assert (await run(api, order))["status"] == "QUEUED"


async def test_the_sweep_leaves_what_runs_to_its_worker_and_what_was_cancelled_to_its_cancel(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store
) -> None:
    worker, order = await claimed(api, run_timeout="1h")
    await let_time_pass(connection, HOUR)
    assert await DeadlineSweeper(store, Signals(store)).run_once() == 0
    await api.post(f"/v1/runs/{order.run_id}:cancel")
    await worker.report(outcome(order, "FAILED", error="killed"))
    assert (await run(api, order))["status"] == "CANCELLED"


async def test_many_overdue_runs_are_ended_in_one_sweep(connection: asyncpg.Connection, store: Store) -> None:
    lane_id, worker_id = await a_lane(connection), await a_worker(connection)
    await queued(connection, lane_id, 1100, spec=Spec(run_timeout=60.0))
    claimed_rows = await claim(connection, [lane_id], 1100, worker_id)
    await runs.requeue(connection, [runs.Requeue(row.run_id, row.fence, 0.0) for row in claimed_rows])
    await let_time_pass(connection, HOUR)
    assert await DeadlineSweeper(store, Signals(store)).run_once() == 1100
    assert await live(connection) == []


@pytest.mark.parametrize(
    ("spec", "left", "expected"),
    [
        (Spec(run_timeout=3600.0), timedelta(0), ("FAILED", OVER)),
        (Spec(run_timeout=3600.0), HOUR, ("QUEUED", None)),
        (
            Spec(run_timeout=3600.0, delivery=Delivery.AT_MOST_ONCE),
            HOUR,
            ("FAILED", "worker lost, and the job is at most once"),
        ),
        (
            Spec(run_timeout=3600.0, delivery=Delivery.AT_MOST_ONCE),
            timedelta(0),
            ("FAILED", "worker lost, and the job is at most once"),
        ),
    ],
    ids=["over", "time left", "at most once", "at most once and over"],
)
async def test_a_lost_workers_run_goes_on_only_within_its_time(
    connection: asyncpg.Connection, spec: Spec, left: timedelta, expected: tuple[str, str | None]
) -> None:
    lane_id, worker_id = await a_lane(connection), await a_worker(connection)
    await queued(connection, lane_id, spec=spec)
    await claim(connection, [lane_id], 1, worker_id)
    await let_time_pass(connection, HOUR - left)
    async with connection.transaction():
        await rescue(connection, await runs.held_by(connection, worker_id, 10), lambda: 0.5)
    if expected[0] == "QUEUED":
        [row] = await live(connection)
        assert (row["state"], row["worker_id"]) == (1, None)
        return
    assert await live(connection) == []
    [row] = await ended(connection)
    assert (row["state"], row["reason"]) == (11, expected[1])
    assert await claim(connection, [lane_id], 10, worker_id) == []


async def test_at_most_once_that_is_to_be_cancelled_ends_cancelled_and_never_runs_again(
    connection: asyncpg.Connection,
) -> None:
    lane_id, worker_id = await a_lane(connection), await a_worker(connection)
    await queued(connection, lane_id, spec=Spec(run_timeout=3600.0, delivery=Delivery.AT_MOST_ONCE))
    [row] = await claim(connection, [lane_id], 1, worker_id)
    await runs.request_cancels(connection, [(row.run_id, row.fence)])
    await let_time_pass(connection, HOUR)
    async with connection.transaction():
        await rescue(connection, await runs.held_by(connection, worker_id, 10), lambda: 0.5)
    [over] = await ended(connection)
    assert (over["state"], over["reason"]) == (12, "cancelled on request")
    assert await claim(connection, [lane_id], 10, worker_id) == []


async def test_why_tells_of_the_deadline(api: httpx.AsyncClient) -> None:
    worker, order = await claimed(api, run_timeout="1h", retry={"base": "10m"})
    said = (await api.get(f"/v1/runs/{order.run_id}/why")).json()["why"]
    assert said.startswith(f"It is running on worker {worker.worker_id}, attempt 1 of 4. It must be over by 20")
    assert said.endswith("Z (run_timeout).")
    await worker.report(outcome(order, "FAILED", error="x"))
    said = (await api.get(f"/v1/runs/{order.run_id}/why")).json()["why"]
    assert "backing off after attempt 1 of 4" in said and said.endswith("Z (run_timeout).")
