"""Checks four times a second, on a separate connection, whether PostgreSQL answers. If it does not, requests get `503`
within two seconds instead of hanging, and dead connections are closed.

A refused write ("cannot execute INSERT in a read-only transaction") says that connections may lead to an old primary,
also if this one does not: it closes all of them, so that the next ones find the primary.

While PostgreSQL is away, it looks through the pool of the hot statements: the connection that finds the primary is then
open for what has waited for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import asyncpg

from mainspring.kernel.clock import SYSTEM_CLOCK, Clock
from mainspring.kernel.lifecycle import Outage
from mainspring.kernel.logs import get_logger
from mainspring.store.database import Database, database_at
from mainspring.store.pool import AWAY, Connection, connect, has_room
from mainspring.store.running_versions import PULSE, question

log = get_logger("pulse")

_PATIENCE = 1.5  # together with the interval less than the two seconds that are documented
_SLICES = 6  # see `_answered`
_SAY_AGAIN = 5.0
_REFUSALS_APART = 5.0  # a primary may be read-only itself, and new connections then change nothing


class Pulse:
    name = "pulse"
    interval = 0.25

    def __init__(
        self, where: str | Database, outage: Outage | None = None, clock: Clock = SYSTEM_CLOCK,
        hot: asyncpg.Pool | None = None,
    ) -> None:  # fmt: skip
        self._database = database_at(where)
        self._hot = hot
        self._outage = outage or Outage()
        self._clock = clock
        self._away_since = self._said_at = 0.0
        self._connection: asyncpg.Connection | None = None
        self._listeners: list[Callable[[], None]] = []
        self._refused_at = -_REFUSALS_APART
        self._on_refusal: list[Callable[[], None]] = []
        self._outage.on_refusal(self._refused)

    @property
    def away(self) -> bool:
        return self._outage.away

    def on_away(self, listener: Callable[[], None]) -> None:
        """Register a callback. It is called after each check without an answer."""
        self._listeners.append(listener)

    def on_refusal(self, listener: Callable[[], None]) -> None:
        """Register a callback. It is called after a refused change."""
        self._on_refusal.append(listener)

    def note(self, error: BaseException) -> None:
        """An error that a request or a task has got."""
        self._outage.note(error)

    async def run_once(self) -> bool:
        """Check once. Returns whether PostgreSQL answered."""
        try:
            await self._answered(self._ask())
        except (*AWAY, asyncpg.PostgresError) as error:
            self._drop()
            self._say_away(error)
            for listener in self._listeners:
                listener()
            return False
        if self.away:
            log.info("PostgreSQL is back", away_for=round(self._clock.monotonic() - self._away_since, 1))
        self._outage.end()
        return True

    def _refused(self) -> None:
        now = self._clock.monotonic()
        if now - self._refused_at < _REFUSALS_APART:
            return
        self._refused_at = now
        log.warning("PostgreSQL has refused a change as read-only; looking for the primary")
        self._outage.suspected = True
        self._drop()
        for listener in self._on_refusal:
            listener()

    def _say_away(self, error: Exception) -> None:
        """One line at once, and then one every few seconds."""
        now = self._clock.monotonic()
        if not self.away:
            self._outage.away = True
            self._away_since = self._said_at = now
            log.warning("PostgreSQL is away; trying again", error=repr(error))
        elif now - self._said_at >= _SAY_AGAIN:
            self._said_at = now
            log.warning("PostgreSQL is still away", away_for=round(now - self._away_since, 1), error=repr(error))

    async def _ask(self) -> None:
        if self.away and self._hot is not None and has_room(self._hot):
            async with self._hot.acquire() as connection:
                await self._ask_on(connection)
            return
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._database, application=PULSE, timeout=60.0)
        await self._ask_on(self._connection)

    @staticmethod
    async def _ask_on(connection: Connection) -> None:
        if await connection.fetchval(question()):
            raise asyncpg.ReadOnlySQLTransactionError("it is a standby now")

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(*AWAY, asyncpg.PostgresError):
                await self._connection.close(timeout=1)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _answered(self, asking: Coroutine[Any, Any, None]) -> None:
        """Wait for the answer, or raise TimeoutError. The timeout is counted in several short waits: if this process
        was suspended for two seconds, only one of them has passed, and PostgreSQL is not reported as unavailable."""
        task = asyncio.create_task(asking)
        try:
            for _ in range(_SLICES):
                await asyncio.wait({task}, timeout=_PATIENCE / _SLICES)
                if task.done():
                    return task.result()
                self._outage.suspected = True
            raise TimeoutError
        finally:
            task.cancel()
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its result is not needed
