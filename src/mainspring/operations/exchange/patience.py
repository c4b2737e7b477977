"""How long an exchange waits for what others hold: connections of a pool, and rows that are locked.

The reply acknowledges the worker's heartbeat, so it must be sent within a second. All steps of an exchange share one
time limit. Only the long poll, which waits for new runs, is not part of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from mainspring.kernel.clock import Clock
from mainspring.store.pool import Connection, has_room

_SECONDS = 0.75
_LEAST = 0.05  # seconds for a step after the others have used up the time


class Busy(Exception):
    """All connections of a pool stayed in use."""


# What is raised when the time is over. Nothing was written.
TOO_LONG = (Busy, asyncpg.LockNotAvailableError)


class RescuePatience:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.monotonic() + _SECONDS

    def renew(self) -> None:
        """Renew the patience for the next round of a long poll."""
        self._until = self._clock.monotonic() + _SECONDS

    def left(self, most: float = _SECONDS) -> float:
        return max(_LEAST, min(most, self._until - self._clock.monotonic()))

    def for_locks(self, most: float = _SECONDS) -> str:
        """The value of `lock_timeout` for the next statements."""
        return f"{round(self.left(most) * 1000)}ms"

    @asynccontextmanager
    async def connection(self, pool: asyncpg.Pool) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        """A connection of the pool. Raises Busy."""
        if has_room(pool):  # the usual case; a time limit takes a task of its own
            connection = await pool.acquire()
        else:
            try:
                connection = await pool.acquire(timeout=self.left())
            except TimeoutError:
                raise Busy from None
        try:
            yield connection
        finally:
            await pool.release(connection)

    @asynccontextmanager
    async def transaction(self, connection: Connection) -> AsyncIterator[None]:
        """A transaction whose statements wait for locks only so long."""
        async with connection.transaction():
            await connection.execute(f"set local lock_timeout = '{self.for_locks()}'")
            yield
