"""The event loop of a warm child: of its async tasks, and of the start hooks before them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class ChildLoop:
    """The loop is made when it is first needed. After a run that leaves something on it, it is replaced, unless start
    hooks have used it: a pool that they opened belongs to it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kept = False
        self._lasting: set[asyncio.Task[Any]] = set()

    def get(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = self._loop or uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        return loop

    def drive(self, steps: Generator[Any, Any, T]) -> T:
        """Execute the steps of hooks. What they yield is awaited on the loop."""
        try:
            awaited = next(steps)
            while True:
                try:
                    value = self.get().run_until_complete(_await(awaited))
                except Exception as error:  # noqa: BLE001 - passed on to the hook that raised it
                    awaited = steps.throw(error)
                else:
                    awaited = steps.send(value)
        except StopIteration as end:
            result: T = end.value
            return result

    def keep(self) -> None:
        """The start hooks are done. Their loop, if there is one, and the tasks on it stay."""
        self._kept = self._loop is not None
        self._lasting = set() if self._loop is None else asyncio.all_tasks(self._loop)

    def left(self) -> set[asyncio.Task[Any]]:
        """The tasks that a run has left on the loop."""
        return set() if self._loop is None else asyncio.all_tasks(self._loop) - self._lasting

    def clean(self, *, threads_left: bool) -> None:
        """Cancel the tasks that are left, and end the threads of `asyncio.to_thread`."""
        left = self.left()
        if self._loop is None or not (left or threads_left):
            return
        loop = self._loop
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        if self._kept:
            return
        self._loop = None
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _await(awaited: Any) -> Any:
    return await awaited
