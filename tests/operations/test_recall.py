"""Recall: unstarted runs of a busy worker go to an idle one."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.test_long_poll import LONG_POLL, PROMPTLY, LongPoll, start_waiting
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.test_queue_shares import submit

pytestmark = pytest.mark.anyio


async def let_go(assembly: Assembly, *waiting: LongPoll) -> None:
    """End these long polls, all of which must still wait."""
    assert not any(task.done() for task in waiting)
    assembly.long_polls.close()
    await asyncio.gather(*waiting)


async def test_an_idle_worker_gets_what_a_busy_one_has_not_started(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    made = await submit(api, 20)
    busy, idle = HandWorker(api), HandWorker(api)
    orders = await busy.claim(20)
    waiting_busy = await start_waiting(assembly, busy, free=0, unstarted=19)
    waiting_idle = await start_waiting(assembly, idle, free=5)
    async with asyncio.timeout(PROMPTLY):
        assert (await waiting_busy).recall == 5, "as many as the idle one can take"
        await busy.report(*(outcome(order, "RETURNED") for order in orders[-5:]))
        taken = [order.job_id for order in (await waiting_idle).runs]
    assert sorted(taken) == sorted(made[-5:])
    rows = await connection.fetch("select attempt from mainspring.runs")
    assert {row["attempt"] for row in rows} == {1}, "it spends no attempt"


async def test_one_that_becomes_overfull_while_another_is_idle_is_told_at_once(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    await submit(api, 4)
    busy, idle = HandWorker(api), HandWorker(api)
    await busy.claim(4)
    waiting = await start_waiting(assembly, idle, free=50)
    async with asyncio.timeout(PROMPTLY):
        assert (await busy.exchange(free=0, unstarted=3, wait_ms=LONG_POLL)).recall == 3, (
            "no more than it holds unstarted"
        )
    await let_go(assembly, waiting)


async def test_an_idle_worker_is_not_counted_twice(
    api: httpx.AsyncClient, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.operations.exchange.recall._PAUSE", 60.0)  # how long a reservation holds
    await submit(api, 20)
    first, second, idle = HandWorker(api), HandWorker(api), HandWorker(api)
    await first.claim(10)
    await second.claim(10)
    waiting = await start_waiting(assembly, idle, free=6)
    async with asyncio.timeout(PROMPTLY):
        assert (await first.exchange(free=0, unstarted=4, wait_ms=LONG_POLL)).recall == 4
        assert (await second.exchange(free=0, unstarted=9, wait_ms=LONG_POLL)).recall == 2
    await let_go(assembly, waiting)


async def test_nobody_is_asked_for_what_the_idle_one_cannot_run(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await submit(api, 3)
    busy, idle, full = HandWorker(api), HandWorker(api, tasks=["other"]), HandWorker(api)
    await busy.claim(3)
    waiting = [await start_waiting(assembly, idle, free=5), await start_waiting(assembly, full, free=0)]
    waiting.append(await start_waiting(assembly, busy, free=0, unstarted=2))
    await api.get("/v1/workers")
    await let_go(assembly, *waiting)


async def test_one_that_keeps_them_is_asked_again_a_moment_later(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await submit(api, 3)
    busy, idle = HandWorker(api), HandWorker(api)
    await busy.claim(3)
    waiting = await start_waiting(assembly, idle, free=2)
    async with asyncio.timeout(PROMPTLY):
        for _ in range(3):
            assert (await busy.exchange(free=0, unstarted=2, wait_ms=LONG_POLL)).recall == 2
    await let_go(assembly, waiting)
