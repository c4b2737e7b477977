"""How often runs of a queue or a tenant start: a token bucket at the claim, on the database's clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly

from .gated import check_counts, put, submit
from .hand_worker import HandWorker, held, outcome
from .test_gates import until_waiting

pytestmark = pytest.mark.anyio


async def time_passes(connection: asyncpg.Connection, seconds: float) -> None:
    """As if the buckets had been filled for so long."""
    await connection.execute("update mainspring.gates set tat = tat - $1::interval", timedelta(seconds=seconds))


async def test_a_burst_starts_at_once_and_then_one_for_each_token(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await submit(api, 10)
    await put(api, rate={"rate": "1/h", "burst": 3})
    worker = HandWorker(api)
    first = (await worker.hello(free=10)).runs
    assert len(first) == 3
    assert not any(order.exclusive for order in first)  # a rate counts starts, nothing is held
    assert all(order.start_within is not None and 0.25 <= order.start_within < 30 for order in first)
    assert (await worker.exchange(outcomes=[outcome(order) for order in first], free=10)).runs == []
    await time_passes(connection, 3600)
    assembly.services.exchanger.waker.freed({1: 1})  # the timer of the token
    assert len((await worker.exchange(free=10)).runs) == 1
    await time_passes(connection, 100 * 3600)
    assembly.services.exchanger.waker.freed({1: 1})
    assert len((await worker.exchange(free=10)).runs) == 3  # the bucket has no more room
    await check_counts(connection)


async def test_a_run_that_comes_back_spends_another_token(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, 1)
    await put(api, rate={"rate": "1/h", "burst": 2})
    worker = HandWorker(api)
    for _ in range(2):
        [order] = (await worker.exchange(free=1, hello=None if worker.seq else worker.card)).runs
        await worker.report(outcome(order, "RETURNED"))
    assert (await worker.exchange(free=1)).runs == []
    assert (await api.get("/v1/queues/default")).json()["limits"]["tokens"] == 0


async def test_only_slots_that_are_free_now_get_runs(api: httpx.AsyncClient) -> None:
    """Others would be started later, in a burst."""
    await submit(api, 10)
    await put(api, rate={"rate": "1/s", "burst": 10})
    worker = HandWorker(api)
    worker.card.slots = 4
    first = (await worker.hello(free=10)).runs
    assert len(first) == 4
    assert (await worker.exchange(free=6)).runs == []
    assert len((await worker.exchange(outcomes=[outcome(first[0])], free=7)).runs) == 1


async def test_a_waiting_worker_is_woken_by_the_next_token(api: httpx.AsyncClient) -> None:
    await submit(api, 3)
    await put(api, rate="50/s")
    worker = HandWorker(api)
    assert len((await worker.hello(free=1)).runs) <= 1
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert len((await worker.exchange(free=1, wait_ms=10_000)).runs) == 1
    assert loop.time() - began < 1.5  # and not at the end of the beat


async def test_queue_and_tenant_count_together(api: httpx.AsyncClient) -> None:
    await submit(api, 5, "a")
    await submit(api, 5, "b")
    await put(api, "a", rate={"rate": "1/h", "burst": 2})
    await put(api, None, rate={"rate": "1/h", "burst": 4}, concurrency=3)
    worker = HandWorker(api, queues=["a", "b"])
    orders = (await worker.hello(free=20)).runs
    assert len(orders) == 3
    assert sum(order.queue == "a" for order in orders) <= 2
    assert all(order.exclusive for order in orders)
    assert len((await worker.exchange(outcomes=[outcome(order) for order in orders], free=20)).runs) == 1


async def test_a_reply_that_was_lost_is_given_again_only_to_be_handed_back(api: httpx.AsyncClient) -> None:
    """Its token was taken long before the run would start."""
    await submit(api, 2)
    await put(api, rate={"rate": "1/h", "burst": 2})
    worker = HandWorker(api)
    orders = (await worker.hello(free=2)).runs
    reply = await worker.exchange(recover=True, inventory=held(orders[0]))
    assert [order.run_id for order in reply.runs] == reply.give_back == [orders[1].run_id]


async def test_the_tokens_of_a_clock_that_was_set_back_come_again(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await submit(api, 5)
    await put(api, rate={"rate": "1/h", "burst": 1})
    worker = HandWorker(api)
    await worker.claim(1)
    await time_passes(connection, -(10**6))
    assembly.services.exchanger.waker.freed({1: 1})
    assert (await worker.exchange(free=5)).runs == []
    await time_passes(connection, 3600)
    assembly.services.exchanger.waker.freed({1: 1})
    assert len((await worker.exchange(free=5)).runs) == 1


async def test_why_says_when_the_next_start_is(api: httpx.AsyncClient, assembly: Assembly) -> None:
    job_ids = await submit(api, 2)
    await put(api, rate={"rate": "1/h", "burst": 1})
    worker = HandWorker(api)
    [order] = (await worker.hello(free=2)).runs
    [waiting] = [job_id for job_id in job_ids if job_id != str(order.run_id)]
    why = (await api.get(f"/v1/runs/{waiting}/why")).json()["why"]
    assert "queue default starts 1/h (burst 1), and its next start is in " in why
    await put(api, rate=None, concurrency=1)
    why = (await api.get(f"/v1/runs/{waiting}/why")).json()["why"]
    assert "queue default runs 1 at once, and its concurrency is 1" in why


async def test_a_token_wakes_the_waiting_worker_even_if_no_signal_came(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    await submit(api, 2)
    await put(api, rate="20/s")
    worker = HandWorker(api)
    await worker.hello(free=1)
    poll = asyncio.create_task(worker.exchange(free=1, wait_ms=10_000))
    await until_waiting(assembly, 1)
    assert len((await poll).runs) == 1
