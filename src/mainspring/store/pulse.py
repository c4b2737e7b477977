"""Whether PostgreSQL answers: asked four times a second on a connection of its own, so that a request that would hang
can be answered `503` within two seconds instead, and connections that have died without a word are given up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import asyncpg

from mainspring.kernel.logs import get_logger
from mainspring.store.pool import AWAY, connect

log = get_logger("pulse")

_PATIENCE = 1.5  # with the interval it stays below the two seconds that are promised


class Pulse:
    name = "pulse"
    interval = 0.25

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection | None = None
        self._listeners: list[Callable[[], None]] = []
        self.away = False

    def on_away(self, listener: Callable[[], None]) -> None:
        """Called at each beat while PostgreSQL does not answer."""
        self._listeners.append(listener)

    async def run_once(self) -> bool:
        """Ask once; returns whether PostgreSQL answered."""
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(self._url, application="pulse", timeout=_PATIENCE)
            await self._connection.fetchval("select 1", timeout=_PATIENCE)
        except (*AWAY, asyncpg.PostgresError) as error:
            self._drop()
            if not self.away:
                log.warning("PostgreSQL is away", error=repr(error))
            self.away = True
            for listener in self._listeners:
                listener()
            return False
        if self.away:
            log.info("PostgreSQL is back")
        self.away = False
        return True

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(*AWAY, asyncpg.PostgresError):
                await self._connection.close(timeout=1)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
