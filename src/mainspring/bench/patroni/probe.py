"""Watches from outside, without Mainspring, when another node becomes the primary, and when it takes a write."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import asyncpg

_EVERY = 0.05
_WRITE = "select pg_logical_emit_message(true, 'mainspring bench', '')"  # it waits for a synchronous standby


class PromotionProbe:
    """`promoted_at`: when one of these nodes was a primary. `writable_at`: when it had acknowledged a write."""

    def __init__(self, urls: list[str]) -> None:
        self.promoted_at: float | None = None
        self.writable_at: float | None = None
        self._tasks = [asyncio.create_task(self._watch(url)) for url in urls]

    def watch(self, url: str) -> None:
        """One more node."""
        self._tasks.append(asyncio.create_task(self._watch(url)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _watch(self, url: str) -> None:
        while self.writable_at is None:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
                await self._ask(url)
            await asyncio.sleep(_EVERY)

    async def _ask(self, url: str) -> None:
        connection = await asyncpg.connect(url, timeout=5)
        try:
            if await connection.fetchval("select pg_is_in_recovery()", timeout=5):
                return
            self.promoted_at = self.promoted_at or time.monotonic()
            await connection.execute(_WRITE, timeout=60)
            self.writable_at = self.writable_at or time.monotonic()
        finally:
            connection.terminate()
