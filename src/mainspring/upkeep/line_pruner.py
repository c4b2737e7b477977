"""Deletes lines and limits that have not been used for an hour. A limit may have as many lines as there are accounts,
and a job whose runs go one after another has a limit of its own."""

from __future__ import annotations

from mainspring.store import limits
from mainspring.store.pool import Store

_UNUSED = 3600.0  # seconds
_BATCH = 1000


class LinePruner:
    name = "line_pruner"
    interval = 60.0

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> int:
        """Return how many were deleted."""
        deleted = 0
        for prune in (limits.prune_lines, limits.prune_limits):
            some = _BATCH
            while some == _BATCH:
                async with self._store.reads.acquire() as connection:
                    some = await prune(connection, _UNUSED, _BATCH)
                deleted += some
        return deleted
