"""Progress: it is kept while the run is running, and accepted only from the worker that holds the run."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import Progress
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.test_long_poll import start_waiting
from tests.operations.test_queue_shares import submit
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio


async def progress(api: httpx.AsyncClient, job_id: str) -> Any:
    return (await api.get(f"/v1/jobs/{job_id}/status")).json()["latest_run"]["progress"]


async def test_it_is_seen_while_the_exchange_that_brought_it_waits(api: httpx.AsyncClient, assembly: Assembly) -> None:
    [job_id] = await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    assert await progress(api, job_id) is None
    said = Progress(order.run_id, order.fence, 1, 0.5, "page 50 of 100")
    waiting = await start_waiting(assembly, worker, progress=[said])

    async def seen() -> bool:
        return bool(await progress(api, job_id) == {"fraction": 0.5, "message": "page 50 of 100"})

    await until(seen)
    assert not waiting.done()
    reply = await worker.exchange(progress=[Progress(order.run_id, order.fence, 2, None, "nearly there")])
    assert reply.fenced == [] and (await waiting).superseded
    assert await progress(api, job_id) == {"fraction": None, "message": "nearly there"}


async def test_it_goes_along_with_outcomes_of_others(api: httpx.AsyncClient) -> None:
    await submit(api, 2)
    worker = HandWorker(api)
    first, second = await worker.claim(2)
    said = Progress(second.run_id, second.fence, 1, 0.25)
    reply = await worker.exchange(outcomes=[outcome(first)], progress=[said])
    assert (reply.acked, reply.fenced) == (1, [])
    assert await progress(api, second.job_id) == {"fraction": 0.25, "message": None}


async def test_a_new_attempt_begins_without_it(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await submit(api, retry={"base": 0})
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.exchange(progress=[Progress(order.run_id, order.fence, 1, 0.9, "almost")])
    await worker.report(outcome(order, "FAILED", error="no"))
    row = await connection.fetchrow("select progress, progress_text from mainspring.runs")
    assert tuple(row) == (None, None)


async def test_a_stale_one_is_fenced_and_changes_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    [job_id] = await submit(api)
    worker, other = HandWorker(api), HandWorker(api)
    [order] = await worker.claim()
    await other.hello()
    for sender, fence in ((worker, order.fence + 1), (worker, order.fence - 1), (other, order.fence)):
        reply = await sender.exchange(progress=[Progress(order.run_id, fence, 1, 0.9, "mine")])
        assert reply.fenced == [order.run_id]
    assert await progress(api, job_id) is None
    await worker.report(outcome(order))
    before = [tuple(row) for row in await connection.fetch("select * from mainspring.run_history")]
    reply = await worker.exchange(progress=[Progress(order.run_id, order.fence, 1, 0.9, "still")])
    assert reply.fenced == [order.run_id]
    assert [tuple(row) for row in await connection.fetch("select * from mainspring.run_history")] == before


async def test_an_earlier_word_that_comes_late_or_twice_is_acknowledged_and_changes_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    [job_id] = await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    early, late = (Progress(order.run_id, order.fence, number, number / 10, "said") for number in (1, 2))
    await worker.exchange(progress=[early, late])
    kept = await connection.fetchrow("select xmin, * from mainspring.runs")
    for again in ([early], [late], [late, early]):
        assert (await worker.exchange(progress=again)).fenced == []
    assert await connection.fetchrow("select xmin, * from mainspring.runs") == kept
    assert await progress(api, job_id) == {"fraction": pytest.approx(0.2), "message": "said"}


@pytest.mark.parametrize("fraction", [-0.1, 1.1])
async def test_a_share_is_from_0_to_1(api: httpx.AsyncClient, fraction: float) -> None:
    await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    assert (await worker.ask(progress=[Progress(order.run_id, order.fence, 1, fraction)])).status_code == 422


async def test_words_that_cannot_be_stored_do_not_cost_the_worker_its_exchange(api: httpx.AsyncClient) -> None:
    [job_id] = await submit(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    reply = await worker.exchange(progress=[Progress(order.run_id, order.fence, 1, 0.5, "a\0b")])
    assert reply.fenced == []
    assert await progress(api, job_id) == {"fraction": 0.5, "message": "a\ufffdb"}
