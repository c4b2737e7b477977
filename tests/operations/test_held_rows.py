"""Rows that another transaction holds, such as that of a server which is stopped in the middle of a change. They delay
nobody for long: a worker keeps its lease, and everything else that it reports is recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.domain.transitions import StoredState
from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import ExchangeReply, Progress, RunOrder
from tests.operations.hand_worker import HandWorker, held, outcome
from tests.operations.servers import another_server
from tests.operations.test_exchange import run_rows, submit
from tests.store.rows import ended, until_blocking

pytestmark = pytest.mark.anyio

WITHIN = 5.0  # seconds; 1 on a machine that is not busy. Without the timeouts it would be 10 or more.


@pytest.fixture
async def stopped(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The connection of a server that is stopped inside a transaction."""
    opened = await asyncpg.connect(database_url)
    await opened.execute("begin")
    yield opened
    await opened.close()


async def hold_run(stopped: asyncpg.Connection, order: RunOrder) -> None:
    """As a cancel does."""
    await stopped.execute("select from mainspring.runs where run_id = $1 for no key update", order.run_id)


async def soon(worker: HandWorker, **fields: Any) -> ExchangeReply:
    async with asyncio.timeout(WITHIN):
        return await worker.exchange(**fields)


async def within_a_second(worker: HandWorker, **fields: Any) -> ExchangeReply:
    """The machine may be busy, so the quickest of three exchanges counts."""
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        reply = await worker.exchange(**fields)
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 1.0, seconds
    return reply


async def beats_of(connection: asyncpg.Connection, worker: HandWorker) -> int:
    count: int = await connection.fetchval(
        """select count(*) from (select worker_ids from mainspring.worker_beats_0
                                 union all select worker_ids from mainspring.worker_beats_1) as b
           where $1 = any (worker_ids)""",
        worker.worker_id,
    )
    return count


@asynccontextmanager
async def all_in_use(*pools: asyncpg.Pool) -> AsyncIterator[None]:
    """As slow lists and many submissions do."""
    taken = [(pool, await pool.acquire()) for pool in pools for _ in range(pool.get_max_size())]
    try:
        yield
    finally:
        for pool, connection in taken:
            await pool.release(connection)


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED", "RETURNED"])
async def test_a_report_records_everything_but_the_runs_that_somebody_holds(
    api: httpx.AsyncClient, connection: asyncpg.Connection, stopped: asyncpg.Connection, status: str
) -> None:
    await submit(api, 3, max_retries=0)
    worker = HandWorker(api)
    orders = await worker.claim(3)
    await hold_run(stopped, orders[1])
    outcomes = [outcome(order, status) for order in orders]
    reply = await soon(worker, outcomes=outcomes)
    assert (reply.acked, reply.superseded, reply.fenced) == (2, True, []), "the worker keeps them all"
    running = [row["run_id"] for row in await run_rows(connection) if row["state"] == StoredState.RUNNING]
    assert running == [orders[1].run_id]
    await stopped.execute("rollback")
    reply = await soon(worker, outcomes=outcomes)
    assert (reply.acked, reply.superseded, reply.fenced) == (3, False, [])
    states = {"SUCCESS": [10] * 3, "FAILED": [11] * 3, "RETURNED": []}[status]
    assert [row["state"] for row in await ended(connection)] == states
    attempts = await connection.fetchval("select count(*) from mainspring.attempts")
    assert attempts == (3 if status == "RETURNED" else 0), "nothing is recorded twice"


async def test_a_report_that_waits_only_for_a_moment_is_one_transaction(
    api: httpx.AsyncClient, connection: asyncpg.Connection, stopped: asyncpg.Connection
) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    orders = await worker.claim(2)
    await hold_run(stopped, orders[0])
    reporting = asyncio.create_task(worker.exchange(outcomes=[outcome(order) for order in orders]))
    await until_blocking(connection, stopped.get_server_pid())
    await stopped.execute("rollback")
    assert (await reporting).acked == 2


async def test_a_report_with_held_runs_still_brings_new_ones(
    api: httpx.AsyncClient, stopped: asyncpg.Connection
) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await hold_run(stopped, order)
    reply = await soon(worker, outcomes=[outcome(order)], free=1)
    assert (reply.acked, reply.superseded, len(reply.runs)) == (0, True, 1)


async def test_a_worker_with_held_runs_is_not_stopped_before_they_are_reported(
    api: httpx.AsyncClient, connection: asyncpg.Connection, stopped: asyncpg.Connection
) -> None:
    """Otherwise its runs would be rescued, and run again although they have ended."""
    await submit(api, 1)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await hold_run(stopped, order)
    last = {"outcomes": [outcome(order)], "draining": True, "stopped": True}
    assert (await soon(worker, **last)).superseded
    assert await connection.fetchval("select state from mainspring.workers") == 2
    await stopped.execute("rollback")
    reply = await soon(worker, **last)
    assert (reply.acked, reply.superseded) == (1, False)
    assert await connection.fetchval("select state from mainspring.workers") == 4


@pytest.mark.parametrize("what", ["report", "recover", "claim"])
async def test_the_heartbeat_is_acknowledged_while_somebody_holds_the_workers_row(
    api: httpx.AsyncClient, connection: asyncpg.Connection, stopped: asyncpg.Connection, what: str
) -> None:
    """A server that is stopped inside an exchange of this worker holds it. The worker has gone to another server."""
    await submit(api, 2)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await connection.execute("truncate mainspring.worker_beats_0, mainspring.worker_beats_1")
    await stopped.execute("update mainspring.workers set last_seq = last_seq + 1")
    fields: dict[str, Any] = {
        "report": {"outcomes": [outcome(order)]},
        "recover": {"recover": True, "inventory": held(order)},
        "claim": {"free": 1, "wait_ms": 1000},
    }[what]
    reply = await soon(worker, **fields)
    assert (reply.superseded, reply.acked, reply.runs) == (True, 0, [])
    assert reply.retry_in is not None and 0.5 <= reply.retry_in <= 2.0
    await stopped.execute("rollback")
    reply = await soon(worker, **fields)
    assert not reply.superseded
    assert (reply.acked, len(reply.runs)) == {"report": (1, 0), "recover": (0, 0), "claim": (0, 1)}[what]


async def test_progress_of_a_held_run_does_not_delay_the_exchange(
    api: httpx.AsyncClient, connection: asyncpg.Connection, stopped: asyncpg.Connection
) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    orders = await worker.claim(2)
    await hold_run(stopped, orders[0])
    words = [Progress(orders[0].run_id, 1, 1, 0.5)]
    reply = await soon(worker, progress=words, outcomes=[outcome(orders[1])])
    assert (reply.acked, reply.fenced, reply.superseded) == (1, [], False)
    await stopped.execute("rollback")
    await soon(worker, progress=[Progress(orders[0].run_id, 1, 2, 0.75)])
    assert [row["progress"] for row in await run_rows(connection)] == [0.75]


async def test_a_claim_leaves_the_runs_that_somebody_holds(
    api: httpx.AsyncClient, connection: asyncpg.Connection, stopped: asyncpg.Connection
) -> None:
    made = await submit(api, 3)
    await stopped.execute("select from mainspring.runs where run_id::text = $1 for no key update", made[0])
    worker = HandWorker(api)
    await worker.hello()
    assert {order.job_id for order in (await soon(worker, free=3)).runs} == set(made[1:])
    await stopped.execute("rollback")
    assert [order.job_id for order in (await soon(worker, free=3)).runs] == made[:1]


async def test_heartbeats_are_recorded_while_many_changes_wait_for_one_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection, stopped: asyncpg.Connection
) -> None:
    """They use the same pool of connections."""
    made = await api.post("/v1/jobs", json={"job_id": "nightly", "task": "noop", "schedule": {"cron": "0 0 * * *"}})
    assert made.status_code == 201, made.text
    await submit(api, 1)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    await stopped.execute("select from mainspring.jobs for no key update")
    changes = [asyncio.create_task(api.patch("/v1/jobs/nightly", json={"name": f"n{n}"})) for n in range(12)]
    await until_blocking(connection, stopped.get_server_pid())
    assert (await soon(worker, outcomes=[outcome(order)])).acked == 1
    await stopped.execute("rollback")
    assert {answer.status_code for answer in await asyncio.gather(*changes)} == {200}


@pytest.mark.parametrize("held_row", ["workers", "task_signatures"])
async def test_a_hello_whose_rows_somebody_holds_keeps_the_lease_and_is_sent_again(
    api: httpx.AsyncClient, connection: asyncpg.Connection, stopped: asyncpg.Connection, held_row: str
) -> None:
    worker = HandWorker(api)
    strict = msgspec.Raw(b'{"type":"object","required":["n"]}')
    worker.card = msgspec.structs.replace(worker.card, signatures={"noop": strict})
    await worker.hello()
    await connection.execute("truncate mainspring.worker_beats_0, mainspring.worker_beats_1")
    await stopped.execute(f"select from mainspring.{held_row} for no key update")
    worker.card = msgspec.structs.replace(worker.card, slots=7, signatures={"noop": msgspec.Raw(b'{"type":"object"}')})
    reply = await within_a_second(worker, hello=worker.card)
    assert (reply.superseded, reply.runs) == (True, [])
    assert reply.retry_in is not None and 0.5 <= reply.retry_in <= 2.0
    await stopped.execute("rollback")
    assert not (await soon(worker, hello=worker.card)).superseded
    assert await connection.fetchval("select slots from mainspring.workers") == 7
    assert (await api.post("/v1/jobs", json={"task": "noop", "payload": {}})).status_code == 201, "it applies"


async def test_a_first_hello_that_cannot_be_recorded_in_time_is_tried_again(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    worker = HandWorker(api)
    async with all_in_use(assembly.store.reads):
        answer = await worker.ask(hello=worker.card)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert not (await worker.hello()).superseded


@pytest.mark.parametrize("what", ["report", "claim", "progress", "hello"])
async def test_the_heartbeat_is_recorded_and_acknowledged_while_all_connections_are_in_use(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, what: str
) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    assembly.services.exchanger._beats.forget(worker.worker_id)  # the next one is recorded, however soon it comes
    before = await beats_of(connection, worker)
    fields: dict[str, Any] = {
        "report": {"outcomes": [outcome(order)]},
        "claim": {"free": 1, "wait_ms": 1000},
        "progress": {"progress": [Progress(order.run_id, 1, 1, 0.5)], "recover": True, "inventory": held(order)},
        "hello": {"hello": worker.card},
    }[what]
    async with all_in_use(assembly.store.hot, assembly.store.reads):
        reply = await within_a_second(worker, **fields)
        assert (reply.superseded, reply.acked, reply.runs) == (True, 0, [])
    assert await beats_of(connection, worker) > before
    reply = await soon(worker, **fields)
    assert not reply.superseded
    assert (reply.acked, len(reply.runs)) == (what == "report", what == "claim")


async def test_a_server_that_knows_neither_token_nor_worker_answers_while_its_connections_are_in_use(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str
) -> None:
    async with another_server(database_url) as other:
        worker = HandWorker(other)
        await worker.hello()
    worker.api = api
    async with all_in_use(assembly.store.hot, assembly.store.reads):
        assert not (await within_a_second(worker)).superseded


async def test_all_that_an_exchange_waits_for_takes_less_than_a_second(
    api: httpx.AsyncClient, assembly: Assembly, stopped: asyncpg.Connection
) -> None:
    """Progress and outcomes of held runs, and a hello of a worker whose row is held."""
    await submit(api, 2)
    worker = HandWorker(api)
    orders = await worker.claim(2)
    for order in orders:
        await hold_run(stopped, order)
    fields: dict[str, Any] = {
        "progress": [Progress(orders[0].run_id, 1, 1, 0.5)],
        "outcomes": [outcome(order) for order in orders],
    }
    reply = await within_a_second(worker, **fields)
    assert (reply.superseded, reply.acked) == (True, 0)
    await stopped.execute("select from mainspring.workers for no key update")
    assert (await within_a_second(worker, hello=worker.card, **fields)).superseded
    await stopped.execute("rollback")
    assert (await soon(worker, **fields)).acked == 2
