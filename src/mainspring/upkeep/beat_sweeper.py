"""Empties the beat table that nobody writes to, and forgets workers that ended long ago."""

from __future__ import annotations

import asyncpg

from mainspring.store import workers
from mainspring.store.pool import Store


class BeatSweeper:
    name = "beat_sweeper"
    interval = 15.0

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> int:
        """Truncate what has been quiet; returns how many of the two tables were emptied."""
        emptied = 0
        async with self._store.reads.acquire() as connection:
            for table in (0, 1):
                try:
                    emptied += await workers.truncate_beats(connection, table)
                except asyncpg.LockNotAvailableError:
                    continue  # somebody reads it; next time
            await workers.prune(connection)
        return emptied
