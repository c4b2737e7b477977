"""The queue of a connection pool: the task that has waited longest gets the next connection, workers before clients.

asyncio's queue wakes the waiting task and lets any task that comes meanwhile take the item. The woken task then waits
again behind all others: on a busy server one exchange in a hundred waited for 7 s, and the others for 0.03 s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Any

import asyncpg

from mainspring.kernel.can_wait import TURNS, can_wait

_Waiting = tuple[asyncio.Future[Any], float]  # and since when


class FairQueue(asyncio.LifoQueue[Any]):
    """Gives out the newest item, which is the connection that was used last."""

    def __init__(self) -> None:
        super().__init__()
        self._urgent: deque[_Waiting] = deque()
        self._others: deque[_Waiting] = deque()
        self._turn = 0

    @property
    def urgent_wait(self) -> float:
        """For how many seconds the exchange that is next has waited; 0 if none waits."""
        while self._urgent and self._urgent[0][0].done():  # it gave up
            self._urgent.popleft()
        return monotonic() - self._urgent[0][1] if self._urgent else 0.0

    async def get(self) -> Any:
        if not self.empty():  # then no task waits
            return self.get_nowait()
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        (self._others if can_wait.get() else self._urgent).append((waiting, monotonic()))
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():  # it was handed over at the same moment
                self.put_nowait(waiting.result())
            raise

    def put_nowait(self, item: Any) -> None:
        while (waiting := self._next()) is not None:
            if not waiting.done():
                waiting.set_result(item)
                return
        super().put_nowait(item)

    def _next(self) -> asyncio.Future[Any] | None:
        self._turn = (self._turn + 1) % TURNS
        first, second = (self._urgent, self._others) if self._turn else (self._others, self._urgent)
        if first:
            return first.popleft()[0]
        return second.popleft()[0] if second else None


def make_fair(pool: asyncpg.Pool) -> asyncpg.Pool:
    """asyncpg has no setting for its queue, so it is replaced before the pool is used."""
    queue, fair = pool._queue, FairQueue()
    while not queue.empty():
        fair.put_nowait(queue.get_nowait())
    pool._queue = fair
    return pool


def queue_of(pool: asyncpg.Pool) -> FairQueue:
    queue: FairQueue = pool._queue
    return queue
