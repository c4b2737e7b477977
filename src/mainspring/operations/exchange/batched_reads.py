"""Reads that many exchanges make at the same moment, as one statement.

A thousand workers beat every two seconds, and each exchange reads the worker's row and the runs to stop. One
statement for each of them takes more of the database than all that the workers report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BatchedReads(Generic[K, V]):
    """`read` is called with all keys that were asked for since its last call began."""

    def __init__(self, read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read = read
        self._pending: dict[K, asyncio.Future[V | None]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def get(self, key: K) -> V | None:
        """What a read that begins from now on finds for this key."""
        future = self._pending.get(key)
        if future is None:
            future = self._pending[key] = asyncio.get_running_loop().create_future()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_pending())
        return await asyncio.shield(future)

    async def _read_pending(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, {}
            try:
                found = await self._read(list(batch))
            except Exception as error:  # noqa: BLE001 - handed on to every waiting exchange
                for future in batch.values():
                    if not future.done():
                        future.set_exception(error)
                        future.exception()  # asyncio logs nothing if the exchange has gone
                continue
            for key, future in batch.items():
                if not future.done():
                    future.set_result(found.get(key))
