"""The queue of a connection pool: in order of arrival, workers before clients, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from mainspring.kernel.can_wait import can_wait
from mainspring.store.fair_queue import FairQueue, queue_of
from mainspring.store.pool import Store

pytestmark = pytest.mark.anyio


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Line:
    """Those who wait at a queue; `served` are their names in the order in which they were served."""

    def __init__(self) -> None:
        self.queue = FairQueue()
        self.served: list[str] = []

    def join(self, name: str, *, patient: bool = False) -> asyncio.Task[None]:
        context = contextvars.copy_context()
        context.run(can_wait.set, patient)
        return asyncio.get_running_loop().create_task(self._wait(name), context=context)

    async def _wait(self, name: str) -> None:
        await self.queue.get()
        self.served.append(name)


async def test_one_who_comes_later_does_not_overtake_one_who_was_woken() -> None:
    line = Line()
    first = line.join("first")
    await settle()
    line.queue.put_nowait("connection")
    late = line.join("late")  # the item is on its way to the first
    await settle()
    assert line.served == ["first"] and first.done() and not late.done()
    line.queue.put_nowait("connection")
    await late


async def test_the_newest_item_is_given_out_when_nobody_waits() -> None:
    queue = FairQueue()
    queue.put_nowait(1)
    queue.put_nowait(2)
    assert [await queue.get(), await queue.get()] == [2, 1]


async def test_workers_come_before_clients_which_still_get_one_turn_in_four() -> None:
    line = Line()
    tasks = [line.join(f"client {number}", patient=True) for number in range(3)]
    await settle()
    tasks += [line.join(f"worker {number}") for number in range(6)]
    await settle()
    for _ in tasks:
        line.queue.put_nowait("connection")
        await settle()
    assert line.served[:3] == ["worker 0", "worker 1", "worker 2"]
    assert line.served.index("client 0") == 3 and line.served.index("client 1") == 7
    assert [name for name in line.served if name.startswith("worker")] == [f"worker {n}" for n in range(6)]


@pytest.mark.parametrize("handed_over", [False, True])
async def test_one_who_gives_up_takes_nothing_away(handed_over: bool) -> None:
    line = Line()
    leaving, staying = line.join("leaving"), line.join("staying")
    await settle()
    if handed_over:
        line.queue.put_nowait("connection")
        leaving.cancel()
    else:
        leaving.cancel()
        await settle()
        line.queue.put_nowait("connection")
    await staying
    assert line.served == ["staying"] and line.queue.empty()


async def test_it_says_for_how_long_a_worker_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    line, now = Line(), [100.0]
    monkeypatch.setattr("mainspring.store.fair_queue.monotonic", lambda: now[0])
    client = line.join("client", patient=True)
    await settle()
    now[0] += 1
    assert line.queue.urgent_wait == 0.0
    first, second = line.join("first"), line.join("second")
    await settle()
    now[0] += 2
    assert line.queue.urgent_wait == 2.0
    first.cancel()
    second.cancel()
    await settle()
    assert line.queue.urgent_wait == 0.0
    client.cancel()


async def test_many_users_of_a_pool_are_served_in_the_order_in_which_they_came(store: Store) -> None:
    served: list[int] = []

    async def use(number: int) -> None:
        async with store.reads.acquire() as connection:
            served.append(number)
            await connection.fetchval("select 1")

    await asyncio.gather(*(use(number) for number in range(200)))  # now all connections are open
    served.clear()
    await asyncio.gather(*(use(number) for number in range(200)))
    assert served == list(range(200))
    assert queue_of(store.reads).qsize() == store.reads.get_max_size()
