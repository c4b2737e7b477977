"""Runs of a paused queue that a worker has not started come back."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.eventually import PATIENCE

from .gated import put, submit
from .hand_worker import HandWorker, held, outcome

pytestmark = pytest.mark.anyio


async def test_unstarted_runs_are_asked_back_and_started_ones_are_not(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    worker.card.protocol = 2  # tells which runs have started
    await submit(api, 3)
    await worker.hello()
    orders = await worker.claim(3)
    await worker.exchange(started=[(orders[0].run_id, orders[0].fence, 300.0)], unstarted=2)
    await api.post("/v1/queues/default:pause")
    reply = await worker.exchange(unstarted=2, wait_ms=10_000)
    assert sorted(reply.give_back) == sorted(order.run_id for order in orders[1:])
    await worker.report(*(outcome(order, "RETURNED") for order in orders[1:]), outcome(orders[0]))
    assert (await worker.exchange(free=5)).runs == []
    await api.post("/v1/queues/default:resume")
    assert len((await worker.exchange(free=5)).runs) == 2


async def test_a_waiting_worker_is_told_at_once(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = HandWorker(api, queues=["default", "other"])
    worker.card.protocol = 2
    await submit(api, 1)
    await submit(api, 1, "other")
    await worker.hello()
    orders = await worker.claim(2)
    poll = asyncio.create_task(worker.exchange(unstarted=2, wait_ms=10_000))
    async with asyncio.timeout(PATIENCE):
        while not assembly.long_polls._with_unstarted:
            await asyncio.sleep(0)
    await put(api, "other", paused=True)
    assert (await poll).give_back == [order.run_id for order in orders if order.queue == "other"]


async def test_a_claim_whose_reply_was_lost_is_not_started_in_a_paused_queue(api: httpx.AsyncClient) -> None:
    """The reply may still arrive, so the run is given again, with the word to hand it back."""
    worker = HandWorker(api)
    await submit(api, 2)
    await worker.hello()
    orders = await worker.claim(2)
    await api.post("/v1/pause")
    reply = await worker.exchange(recover=True, inventory=held(orders[0]))
    assert [order.run_id for order in reply.runs] == reply.give_back == [orders[1].run_id]
