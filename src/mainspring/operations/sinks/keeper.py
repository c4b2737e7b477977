"""Keeps the log of changes small: deletes what was sent, and drops and counts what has waited for too long.

It also sees that the triggers which write changes exist while there are sinks, and only then: a database that was
restored may lack them, and the last sink leaves them behind.
"""

from __future__ import annotations

import asyncpg

from mainspring.kernel.logs import get_logger
from mainspring.store import sinks
from mainspring.store.pool import Store

log = get_logger("sinks")

_AT_ONCE = 5000
_MOST_ROUNDS = 200


class SinkKeeper:
    name = "sink_keeper"

    def __init__(self, store: Store, *, interval: float = 5.0) -> None:
        self.interval = interval
        self._store = store

    async def run_once(self) -> int:
        """Returns how many changes were dropped."""
        async with self._store.reads.acquire() as connection:
            there_are, anything = await sinks.exist(connection)
        if not anything:
            return 0
        dropped = await self._drop() if there_are else 0
        for _ in range(_MOST_ROUNDS):
            async with self._store.reads.acquire() as connection, connection.transaction():
                if not await sinks.lock_pruning(connection) or await sinks.delete_done(connection, _AT_ONCE) < _AT_ONCE:
                    break
        await self._watch(wanted=there_are)
        return dropped

    async def _drop(self) -> int:
        total = 0
        async with self._store.reads.acquire() as connection, connection.transaction():
            if not await sinks.lock_pruning(connection):
                return 0
            for row in await sinks.to_prune(connection):
                if row.last is not None and (number := await sinks.drop(connection, row)):
                    total += number
                    log.warning("changes were dropped", sink=row.name, tenant=row.tenant_id, number=number)
        return total

    async def _watch(self, *, wanted: bool) -> None:
        try:
            async with self._store.reads.acquire() as connection:
                if await sinks.watch(connection, wanted=wanted):
                    log.info("changes are written" if wanted else "changes are not written any more")
        except asyncpg.LockNotAvailableError:
            pass  # a transaction holds one of the tables; the next round tries again
