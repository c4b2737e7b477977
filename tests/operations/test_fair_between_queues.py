"""The backlog of one queue does not hold up the other queues of the same worker."""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from .gated import put, submit
from .hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("limited", [False, True], ids=["without limits", "behind a gate"])
async def test_a_new_run_passes_the_backlog_of_another_queue(
    api: httpx.AsyncClient, connection: asyncpg.Connection, limited: bool
) -> None:
    await submit(api, 300, "large")
    await connection.execute("update mainspring.runs set ready_at = ready_at - interval '1 hour'")
    if limited:
        await put(api, "small", concurrency=50)
    worker = HandWorker(api, queues=["large", "small"])
    [busy] = (await worker.hello(free=1)).runs
    for _ in range(5):
        await submit(api, 1, "small")
        taken = []
        for _ in range(2):
            reply = await worker.exchange(outcomes=[outcome(busy)], free=1)
            [busy] = reply.runs
            taken.append(busy.queue)
        assert "small" in taken


async def test_queues_with_a_backlog_take_turns(api: httpx.AsyncClient) -> None:
    for queue in ("a", "b", "c"):
        await submit(api, 30, queue)
    worker = HandWorker(api, queues=["a", "b", "c"])
    orders = (await worker.hello(free=30)).runs
    assert [sum(order.queue == queue for order in orders) for queue in "abc"] == [10, 10, 10]
    one_by_one = [(await worker.exchange(free=1)).runs[0].queue for _ in range(9)]
    assert sorted(one_by_one) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


@pytest.mark.parametrize(
    "limits", [{"concurrency": 2}, {"rate": {"rate": "1/d", "burst": 12}}], ids=["places", "tokens"]
)
async def test_queues_take_turns_for_the_room_of_their_tenant(
    api: httpx.AsyncClient, connection: asyncpg.Connection, limits: dict[str, object]
) -> None:
    for queue in ("a", "b", "c"):
        await submit(api, 30, queue)
    await connection.execute(
        """update mainspring.runs r set ready_at = ready_at - interval '1 hour'
           from mainspring.lanes l where l.lane_id = r.lane_id and l.queue = 'a'"""
    )
    await put(api, None, **limits)
    worker = HandWorker(api, queues=["a", "b", "c"])
    orders = (await worker.hello(free=2)).runs
    queues = [order.queue for order in orders]
    for _ in range(5):
        orders = (await worker.exchange(outcomes=[outcome(order) for order in orders], free=2)).runs
        queues += [order.queue for order in orders]
    assert [queues.count(queue) for queue in "abc"] == [4, 4, 4]


async def test_what_a_worker_holds_in_advance_does_not_hold_up_a_limited_queue(api: httpx.AsyncClient) -> None:
    await submit(api, 400, "free")
    await put(api, "limited", concurrency=5)
    worker = HandWorker(api, queues=["free", "limited"])  # 100 slots
    orders = (await worker.hello(free=120)).runs
    assert len(orders) == 120
    await submit(api, 3, "limited")
    reply = await worker.exchange(free=10)
    assert reply.runs == []  # all slots are busy: one more in advance would take the next that is free
    gone = orders[:30]
    reply = await worker.exchange(outcomes=[outcome(order) for order in gone], free=40)
    queues = [order.queue for order in reply.runs]
    assert queues.count("limited") == 3
    reply = await worker.exchange(free=20)
    assert len(reply.runs) == 20  # nothing waits behind the gate: in advance again


async def test_a_queue_that_was_idle_has_earned_nothing(api: httpx.AsyncClient) -> None:
    await submit(api, 60, "a")
    worker = HandWorker(api, queues=["a", "b"])
    await worker.hello(free=40)
    await submit(api, 20, "b")
    queues = [(await worker.exchange(free=1)).runs[0].queue for _ in range(8)]
    assert 3 <= queues.count("b") <= 5


async def test_critical_runs_come_first_in_every_queue(api: httpx.AsyncClient) -> None:
    await submit(api, 3, "a")
    await api.post("/v1/jobs", json={"task": "noop", "queue": "b", "priority": "critical"})
    await api.post("/v1/jobs", json={"task": "noop", "queue": "b", "priority": "critical"})
    worker = HandWorker(api, queues=["a", "b"])
    assert [order.queue for order in (await worker.hello(free=3)).runs] == ["b", "b", "a"]
