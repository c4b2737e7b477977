"""The pool of threads: each call has its answer."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from mainspring.worker.executors.threads import ThreadPool


@pytest.mark.parametrize("error", [ValueError, SystemExit, StopIteration])
def test_a_call_that_raises_costs_its_caller_and_no_thread(error: type[BaseException]) -> None:
    async def test() -> None:
        pool: ThreadPool[str] = ThreadPool(1)

        def fails() -> str:
            raise error

        async with asyncio.timeout(5):
            with pytest.raises(RuntimeError, match=error.__name__):
                await pool.run(fails)
            assert await pool.run(lambda: threading.current_thread().name) == "mainspring-1"

    uvloop.run(test())
