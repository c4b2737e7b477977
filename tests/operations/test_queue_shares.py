"""Queue shares, room for tasks, and labels: a worker gets exactly what it asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import ExchangeReply, QueueShare, RunOrder
from mainspring.worker.exchange.queue_weights import QueueWeights
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_long_poll import PROMPTLY, start_waiting
from tests.operations.test_long_poll import assembly as assembly

pytestmark = pytest.mark.anyio


async def submit(api: httpx.AsyncClient, count: int = 1, **fields: Any) -> list[str]:
    answer = await api.post("/v1/jobs:batch", json=[{"task": "noop", **fields}] * count)
    assert answer.status_code == 201, answer.text
    return list(answer.json()["job_ids"])


def queues(reply: ExchangeReply) -> dict[str, int]:
    return dict(Counter(order.queue for order in reply.runs))


def tasks(reply: ExchangeReply) -> dict[str, int]:
    return dict(Counter(order.task for order in reply.runs))


async def a_worker(api: httpx.AsyncClient, **fields: Any) -> HandWorker:
    worker = HandWorker(api, **{"queues": ["heavy", "light"], **fields})
    await worker.hello()
    return worker


async def test_shares_are_filled_in_order_and_nothing_else_is_given(api: httpx.AsyncClient) -> None:
    await submit(api, 20, queue="heavy")
    await submit(api, 20, queue="light")
    worker = await a_worker(api)
    reply = await worker.exchange(free=9, shares=[QueueShare(1, "heavy"), QueueShare(5, "light")])
    assert queues(reply) == {"heavy": 1, "light": 5}
    reply = await worker.exchange(free=4, shares=[QueueShare(3, "light"), QueueShare(3, "heavy")])
    assert queues(reply) == {"light": 3, "heavy": 1}
    assert (await worker.exchange(free=4, shares=[QueueShare(4, "other")])).runs == []


async def test_a_slot_is_left_for_each_named_queue_that_got_nothing(api: httpx.AsyncClient) -> None:
    await submit(api, 20, queue="heavy")
    worker = await a_worker(api)
    both = [QueueShare(8, "light", ["heavy"]), QueueShare(9, "heavy", ["light"])]
    assert queues(await worker.exchange(free=9, shares=both)) == {"heavy": 8}
    await submit(api, 2, queue="light")
    assert queues(await worker.exchange(free=9, shares=both)) == {"light": 2, "heavy": 7}


class Sharing:
    """A hand worker that divides its slots like a real one."""

    def __init__(self, worker: HandWorker, slots: int, weights: dict[str, int]) -> None:
        self.worker = worker
        self.slots = slots
        self.shares = QueueWeights(slots, weights)
        self.held: list[RunOrder] = []

    async def fetch(self, *done: RunOrder) -> dict[str, int]:
        """Report runs as done and claim more. Return how many are held then, by queue."""
        self.held = [order for order in self.held if order not in done]
        free = self.slots - len(self.held)
        division = self.shares.divide(free, Counter(order.queue for order in self.held))
        outcomes = [outcome(order) for order in done]
        reply = await self.worker.exchange(free=free, shares=division.shares, outcomes=outcomes)
        self.held += reply.runs
        return dict(Counter(order.queue for order in self.held))


async def test_nine_slots_run_nine_light_jobs_once_these_are_known_to_be_quick(api: httpx.AsyncClient) -> None:
    await submit(api, 30, queue="light")
    sharing = Sharing(await a_worker(api), 9, {"heavy": 1, "light": 8})
    assert await sharing.fetch() == {"light": 8}
    sharing.shares.ended("light", 0.2)
    assert await sharing.fetch(sharing.held[0]) == {"light": 9}
    await submit(api, 3, queue="heavy")
    assert await sharing.fetch(sharing.held[0]) == {"light": 8, "heavy": 1}, "the heavy job waited for one quick run"


async def test_heavy_jobs_leave_a_slot_for_light_ones(api: httpx.AsyncClient) -> None:
    await submit(api, 30, queue="heavy")
    sharing = Sharing(await a_worker(api), 9, {"heavy": 8, "light": 1})
    sharing.shares.ended("heavy", 60.0)
    sharing.shares.ended("light", 0.1)
    assert await sharing.fetch() == {"heavy": 8}
    await submit(api, 5, queue="light")
    assert await sharing.fetch() == {"heavy": 8, "light": 1}
    [light] = [order for order in sharing.held if order.queue == "light"]
    assert await sharing.fetch(light) == {"heavy": 8, "light": 1}


async def test_a_worker_that_divides_its_slots_takes_its_part_of_a_burst_only(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    sharing = await a_worker(api)
    shares = QueueWeights(10, {"heavy": 1, "light": 1}).divide(10, {}).shares
    waiting = [await start_waiting(assembly, sharing, free=10, shares=shares)]
    waiting.append(await start_waiting(assembly, await a_worker(api), free=10))
    await submit(api, 6, queue="heavy")
    assert [queues(await task) for task in waiting] == [{"heavy": 3}, {"heavy": 3}]


async def test_a_worker_with_room_for_few_of_a_task_is_woken_for_no_more(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    limited = [await start_waiting(assembly, HandWorker(api), free=90, room={"noop": 1}) for _ in range(2)]
    sharing = await start_waiting(
        assembly, await a_worker(api, queues=["default"]), free=90, shares=[QueueShare(2, "default")]
    )
    other = await start_waiting(assembly, HandWorker(api), free=4)
    await submit(api, 8)
    async with asyncio.timeout(PROMPTLY):
        assert [len((await task).runs) for task in (*limited, sharing, other)] == [1, 1, 2, 4]


async def test_a_waiting_worker_is_woken_only_for_what_it_asked_for(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = await a_worker(api)
    waiting = await start_waiting(assembly, worker, shares=[QueueShare(1, "light")])
    await submit(api, queue="heavy")
    assert not waiting.done()
    [job_id] = await submit(api, queue="light")
    assert [order.job_id for order in (await waiting).runs] == [job_id]


async def test_no_more_of_a_task_than_there_is_room_for(api: httpx.AsyncClient) -> None:
    worker = await a_worker(api, tasks=["noop", "slow", "other"], queues=["default"])
    await submit(api, 5, task="slow")
    await submit(api, 5, task="noop")
    reply = await worker.exchange(free=8, room={"slow": 2})
    assert tasks(reply) == {"slow": 2, "noop": 5}
    assert (await worker.exchange(free=8, room={"slow": 0})).runs == []
    assert tasks(await worker.exchange(free=8, room={"slow": 9})) == {"slow": 3}


async def test_room_holds_across_shares(api: httpx.AsyncClient) -> None:
    worker = await a_worker(api, tasks=["noop", "slow"])
    for queue in ("heavy", "light"):
        await submit(api, 5, task="slow", queue=queue)
        await submit(api, 1, task="noop", queue=queue)
    shares = [QueueShare(4, "light"), QueueShare(4, "heavy")]
    reply = await worker.exchange(free=8, shares=shares, room={"slow": 3})
    assert tasks(reply)["slow"] <= 3
    assert len(reply.runs) >= 4


async def test_a_full_task_wakes_nobody(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker = await a_worker(api, tasks=["noop", "slow"], queues=["default"])
    waiting = await start_waiting(assembly, worker, room={"slow": 0})
    await submit(api, task="slow")
    assert not waiting.done()
    [job_id] = await submit(api, task="noop")
    assert [order.job_id for order in (await waiting).runs] == [job_id]


async def test_a_job_that_requires_labels_goes_to_a_worker_that_has_them_all(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    plain, european = HandWorker(api), HandWorker(api)  # labels of a hand worker: zone=a
    european.card.labels = {"zone": "eu", "gpu": "a100", "more": "yes"}
    waiting = await start_waiting(assembly, plain)
    [job_id] = await submit(api, required_labels={"zone": "eu", "gpu": "a100"})
    assert not waiting.done()
    assert (await plain.exchange(free=5)).runs == []
    assert (await waiting).superseded
    run = (await api.get(f"/v1/jobs/{job_id}/status")).json()["latest_run"]
    assert run["status"] == "QUEUED"
    assert [order.job_id for order in (await european.hello(free=5)).runs] == [job_id]
    shown = {view["worker_id"]: view["labels"] for view in (await api.get("/v1/workers")).json()["workers"]}
    assert shown[str(european.worker_id)] == {"zone": "eu", "gpu": "a100", "more": "yes"}
