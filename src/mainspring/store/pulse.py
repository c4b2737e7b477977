"""Whether PostgreSQL answers: asked four times a second on a connection of its own, so that a request that would hang
can be answered `503` within two seconds instead, and connections that have died without a word are given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import asyncpg

from mainspring.kernel.logs import get_logger
from mainspring.store.pool import AWAY, connect

log = get_logger("pulse")

_PATIENCE = 1.5  # with the interval it stays below the two seconds that are promised
_SLICES = 6  # see `_answered`


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
            await _answered(self._ask())
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

    async def _ask(self) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._url, application="pulse", timeout=60.0)
        await self._connection.fetchval("select 1")

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(*AWAY, asyncpg.PostgresError):
                await self._connection.close(timeout=1)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


async def _answered(asking: Coroutine[Any, Any, None]) -> None:
    """Wait for it, or raise TimeoutError after a patience that is counted in slices of our own waking time: a machine
    that stood still for two seconds has heard nothing from PostgreSQL, and that says nothing about PostgreSQL."""
    task = asyncio.create_task(asking)
    try:
        for _ in range(_SLICES):
            await asyncio.wait({task}, timeout=_PATIENCE / _SLICES)
            if task.done():
                return task.result()
        raise TimeoutError
    finally:
        task.cancel()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # we have heard enough
