"""Exchanges that arrive after a newer one of their worker. They never end the newer one, whatever they say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_exchange import submit
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio


async def late(worker: HandWorker, seq: int, **fields: Any) -> httpx.Response:
    """Send an exchange with an older number."""
    copy = HandWorker(worker.api)
    copy.worker_id, copy.seq = worker.worker_id, seq - 1
    return await copy.ask(**fields)


@pytest.fixture
async def waiting(api: httpx.AsyncClient, assembly: Assembly) -> AsyncIterator[tuple[HandWorker, asyncio.Task[Any]]]:
    """A worker whose fifth exchange is a long poll."""
    worker = HandWorker(api)
    await worker.hello()
    await worker.exchange(recover=True)
    worker.seq = 4
    polling = asyncio.create_task(worker.exchange(free=1, wait_ms=10_000))
    await until_waiting(assembly)
    yield worker, polling
    polling.cancel()


async def until_waiting(assembly: Assembly) -> None:
    async def somebody_waits() -> bool:
        return any(waiter.demand.free for waiter in assembly.long_polls._waiters.values())

    await until(somebody_waits)


@pytest.mark.parametrize(
    ("seq", "fields"),
    [
        *((seq, fields) for seq in (1, 3) for fields in ({"free": 1, "wait_ms": 1000}, {"free": 1}, {})),
        *((1, fields) for fields in ({"draining": True}, {"recover": True})),
        (3, {"recover": True}),
    ],
)  # fmt: skip
async def test_a_late_exchange_does_not_end_the_newer_one_that_waits(
    waiting: tuple[HandWorker, asyncio.Task[Any]], seq: int, fields: dict[str, Any]
) -> None:
    """Number 1 is a copy, because this server has seen it. Number 3 has been on its way for long."""
    worker, polling = waiting
    answer = await late(worker, seq, **fields)
    if answer.status_code == 409:
        assert problem(answer)["code"] == "stale_exchange"
    else:
        assert "runs" not in answer.json()
    assert not polling.done()
    [job_id] = await submit(worker.api)
    reply = await polling
    assert ([order.job_id for order in reply.runs], reply.superseded) == ([job_id], False)


async def test_a_poll_that_comes_after_the_next_report_is_superseded_and_not_refused(api: httpx.AsyncClient) -> None:
    """They take different connections. After a refusal the worker would assume that a reply was lost."""
    await submit(api, 2)
    worker = HandWorker(api)
    [order] = await worker.claim(1)
    worker.seq += 1
    await worker.report(outcome(order))
    answer = await late(worker, worker.seq - 1, free=1, wait_ms=1000)
    assert (answer.status_code, answer.json()["superseded"]) == (200, True)
    assert len((await worker.exchange(free=5)).runs) == 1, "it has claimed nothing"


async def test_a_copy_of_an_exchange_that_was_answered_is_refused_so_that_its_worker_recovers(
    api: httpx.AsyncClient,
) -> None:
    await submit(api)
    worker = HandWorker(api)
    await worker.hello(free=1)
    await worker.exchange()
    refused = problem(await late(worker, 1, free=1))
    assert (refused["status"], refused["code"]) == (409, "stale_exchange")
