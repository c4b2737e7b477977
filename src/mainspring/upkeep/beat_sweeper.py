"""Truncates the beat table that is not in use, and deletes workers that ended long ago."""

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
        """Truncate the beat table that is not written to. Returns how many of the two tables were truncated."""
        emptied = 0
        async with self._store.reads.acquire() as connection:
            for table in (0, 1):
                try:
                    emptied += await workers.truncate_beats(connection, table)
                except asyncpg.LockNotAvailableError:
                    continue  # a reader holds a lock; the next sweep repeats it
            await workers.prune(connection)
        return emptied
