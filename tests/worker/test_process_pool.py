"""The pool of warm children: the last used first, more only when it pays, and no more than needed for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.executors.process.child import ChildOrigin, WarmChild, start_child
from mainspring.worker.executors.process.pool import ProcessPool
from mainspring.worker.executors.process.warm.frames import Hello
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.eventually import PATIENCE

from .a_process_executor import APP, an_executor, stop
from .processes import ended_soon, written

ENVIRON = {"PATH": "/bin"}


class Starts:
    """Starts real children and counts them."""

    def __init__(self, watchdog: WatchdogClient) -> None:
        self.origin = ChildOrigin(watchdog, APP, ENVIRON, Hello("", ""), WorkFolders())
        self.count = 0

    async def __call__(self) -> WarmChild:
        self.count += 1
        return await start_child(self.origin)


def with_starts(test: Callable[[Starts], Awaitable[None]]) -> None:
    async def run() -> None:
        watchdog = WatchdogClient()
        watchdog.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await test(Starts(watchdog))
        finally:
            watchdog.stop()

    uvloop.run(run())


def test_the_last_used_is_the_next_used() -> None:
    async def test(start: Starts) -> None:
        pool = ProcessPool(start, most=2, warm=2)
        first, second = await asyncio.gather(pool.wait_for_one(), pool.wait_for_one())
        pool.give_back(first, fit=True)
        pool.give_back(second, fit=True)
        assert [pool.take_idle(), pool.take_idle(), pool.take_idle()] == [second, first, None]
        pool.close()

    with_starts(test)


def test_who_waits_gets_the_child_that_comes_free_before_another_is_started() -> None:
    async def test(start: Starts) -> None:
        pool = ProcessPool(start, most=4, warm=1)
        child = await pool.wait_for_one()
        waiting = [pool.wait_for_one() for _ in range(3)]
        waiting[1].cancel()
        for future in (waiting[0], waiting[2]):
            pool.give_back(child, fit=True)
            assert future.done()
            assert future.result() is child
        assert start.count == 1
        pool.close()

    with_starts(test)


def test_who_waits_too_long_gets_a_new_one() -> None:
    async def test(start: Starts) -> None:
        pool = ProcessPool(start, most=2, warm=1)
        child = await pool.wait_for_one()
        assert await pool.wait_for_one() is not child
        assert start.count == pool.size == 2
        pool.close()

    with_starts(test)


def test_idle_children_beyond_the_warm_ones_are_retired() -> None:
    async def test(start: Starts) -> None:
        pool = ProcessPool(start, most=3, warm=1, idle_seconds=0.1)
        children = [await pool.wait_for_one() for _ in range(3)]
        for child in children:
            pool.give_back(child, fit=True)
        assert await ended_soon(children[0].command.pid)
        assert await ended_soon(children[1].command.pid)
        assert pool.take_idle() is children[2]
        assert not children[2].lost
        pool.close()

    with_starts(test)


def test_a_worker_warms_up_before_the_first_run(tmp_path: Path) -> None:
    async def run() -> None:
        async with an_executor(slots=1) as executor:
            executor.warm_up()
            attempt, running = executor.begin("awaits", {"path": f"{tmp_path}/log"})
            await written(tmp_path / "log")
            assert executor.size == 1
            stop(attempt)
            await running

    uvloop.run(run())
