"""The pool of threads: each call has its answer."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from mainspring.worker.executors.python.threads import ThreadPool
from tests.eventually import PATIENCE


@pytest.mark.parametrize("error", [ValueError, SystemExit, StopIteration])
def test_a_call_that_raises_costs_its_caller_and_no_thread(error: type[BaseException]) -> None:
    async def test() -> None:
        pool: ThreadPool[str] = ThreadPool(1)

        def fails() -> str:
            raise error

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(RuntimeError, match=error.__name__):
                await pool.run(fails)
            assert await pool.run(lambda: threading.current_thread().name) == "mainspring-1"

    uvloop.run(test())


def test_a_thread_that_could_not_be_had_is_started_for_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        pool: ThreadPool[int] = ThreadPool(1)

        def none_left(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as machine:
            machine.setattr(threading.Thread, "start", none_left)
            with pytest.raises(RuntimeError, match="new thread"):
                pool.run(lambda: 1)
        async with asyncio.timeout(PATIENCE):
            assert await pool.run(lambda: 2) == 2

    uvloop.run(test())
