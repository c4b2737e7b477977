"""Drain on request: the worker gets no more runs, and is told so in its next exchange."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.servers import another_server
from tests.operations.test_long_poll import PROMPTLY, start_waiting
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.test_queue_shares import submit

pytestmark = pytest.mark.anyio


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, problem(answer)["code"]) == (status, code)


async def drain(api: httpx.AsyncClient, worker_id: UUID) -> str:
    answer = await api.post(f"/v1/workers/{worker_id}:drain")
    assert answer.status_code == 202, answer.text
    return str(answer.json()["state"])


async def test_a_waiting_worker_is_told_at_once_and_gets_nothing_more(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    worker = HandWorker(api)
    waiting = await start_waiting(assembly, worker)
    assert await drain(api, worker.worker_id) == "DRAINING"
    async with asyncio.timeout(PROMPTLY):
        assert (await waiting).drain
    await submit(api)
    reply = await worker.exchange(free=3)
    assert reply.drain and reply.runs == [], "it is told again, because the reply may have been lost"
    assert not (await worker.exchange(draining=True)).drain, "it drains already"
    await worker.exchange(stopped=True)
    assert (await api.get(f"/v1/workers/{worker.worker_id}")).json()["state"] == "STOPPED"


async def test_a_worker_with_outcomes_to_report_is_told_as_well(api: httpx.AsyncClient) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await drain(api, worker.worker_id)
    reply = await worker.exchange(outcomes=[outcome(order)], free=1)
    assert (reply.acked, reply.drain, reply.runs) == (1, True, [])


async def test_another_server_and_a_repeated_hello_do_not_undo_it(api: httpx.AsyncClient, database_url: str) -> None:
    await submit(api)
    worker = HandWorker(api)
    await worker.hello()
    await drain(api, worker.worker_id)
    async with another_server(database_url) as other:
        worker.api = other
        reply = await worker.hello(free=1)
        assert reply.drain and reply.runs == []


async def test_asked_twice_is_once(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    await worker.hello()
    assert await drain(api, worker.worker_id) == await drain(api, worker.worker_id) == "DRAINING"


async def test_one_worker_can_be_looked_at(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    await submit(api)
    await worker.claim()
    view = (await api.get(f"/v1/workers/{worker.worker_id}")).json()
    assert (view["name"], view["state"], view["running"], view["slots"]) == ("by-hand", "LIVE", 1, 100)
    assert view["labels"] == {"zone": "a"} and view["last_beat_at"]


@pytest.mark.parametrize("worker_id", ["0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11", "nobody"])
async def test_an_unknown_worker_is_not_found(api: httpx.AsyncClient, worker_id: str) -> None:
    refused(await api.get(f"/v1/workers/{worker_id}"), 404, "not_found")
    refused(await api.post(f"/v1/workers/{worker_id}:drain"), 404, "not_found")
    refused(await api.post(f"/v1/workers/{worker_id}:fly"), 404, "no_such_route")


async def test_a_worker_that_is_gone_cannot_be_drained(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    worker = HandWorker(api)
    await worker.hello()
    await worker.exchange(stopped=True)
    refused(await api.post(f"/v1/workers/{worker.worker_id}:drain"), 409, "worker_gone")
    assert await connection.fetchval("select state from mainspring.workers") == 4
