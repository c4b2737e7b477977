"""Checks four times a second, on a separate connection, whether PostgreSQL answers. If it does not, requests get `503`
within two seconds instead of hanging, and dead connections are closed.

A refused write ("cannot execute INSERT in a read-only transaction") says that connections may lead to an old primary,
also if this one does not: it closes all of them, so that the next ones find the primary.

A new connection may take longer than a check on an overloaded machine. It is not given up with the check: the next
one waits for it, too. Otherwise no check would ever succeed there, and the outage would never end.
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
from mainspring.store.pool import AWAY, connect
from mainspring.store.running_versions import PULSE, question

log = get_logger("pulse")

_PATIENCE = 1.5  # together with the interval less than the two seconds that are documented
_SLICES = 6  # see `_answered`
_OPENING = 5.0  # seconds for a new connection
_SAY_AGAIN = 5.0
_CUT_AGAIN = 10.0  # see `on_outage`
_REFUSALS_APART = 5.0  # a primary may be read-only itself, and new connections then change nothing


class Pulse:
    name = "pulse"
    interval = 0.25

    def __init__(self, where: str | Database, outage: Outage | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._database = database_at(where)
        self._outage = outage or Outage()
        self._clock = clock
        self._away_since = self._said_at = 0.0
        self._connection: asyncpg.Connection | None = None
        self._opening: asyncio.Task[asyncpg.Connection] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._on_outage: list[Callable[[], None]] = []
        self._outage_told_at = 0.0
        self._refused_at = -_REFUSALS_APART
        self._on_refusal: list[Callable[[], None]] = []
        self._outage.on_refusal(self._refused)

    @property
    def away(self) -> bool:
        return self._outage.away

    def on_away(self, listener: Callable[[], None]) -> None:
        """Register a callback. It is called after each check without an answer."""
        self._listeners.append(listener)

    def on_outage(self, listener: Callable[[], None]) -> None:
        """Register a callback. It is called when PostgreSQL is away, and again every few seconds while it is: called
        more often, it would end what a slow machine has just begun."""
        self._on_outage.append(listener)

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
            begins = not self.away
            self._say_away(error)
            for listener in self._listeners:
                listener()
            self._tell_outage(begins=begins)
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

    def _tell_outage(self, *, begins: bool) -> None:
        now = self._clock.monotonic()
        if begins or now - self._outage_told_at >= _CUT_AGAIN:
            self._outage_told_at = now
            for listener in self._on_outage:
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
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._opened()
        if await self._connection.fetchval(question()):
            raise asyncpg.ReadOnlySQLTransactionError("it is a standby now")

    async def _opened(self) -> asyncpg.Connection:
        """A new connection, or the one that an earlier check has begun to open."""
        opening = self._opening
        if opening is None:
            opening = asyncio.create_task(connect(self._database, application=PULSE, timeout=_OPENING))
            self._opening = opening
        try:
            return await asyncio.shield(opening)
        finally:
            if opening.done():
                self._opening = None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
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
