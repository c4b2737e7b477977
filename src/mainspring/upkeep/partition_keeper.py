"""Keeps a week of history partitions ahead, and drops those past the retention."""

from __future__ import annotations

from mainspring.kernel.logs import get_logger
from mainspring.store import jobs, partitions
from mainspring.store.pool import Store

log = get_logger("partition_keeper")


class PartitionKeeper:
    name = "partition_keeper"
    interval = 3600.0

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> list[str]:
        """Create what is missing; returns the names."""
        async with self._store.reads.acquire() as connection:
            made = await partitions.ensure_ahead(connection)
        if made:
            log.info("partitions made", names=made)
        return made


class HistoryPruner:
    name = "history_pruner"
    interval = 3600.0

    def __init__(self, store: Store, retention_days: int) -> None:
        self._store = store
        self._days = retention_days

    async def run_once(self) -> list[str]:
        """Drop partitions older than the retention, and the keys and ids that point there; returns the partitions."""
        async with self._store.reads.acquire() as connection:
            dropped = await partitions.drop_older(connection, self._days)
            await jobs.prune(connection, self._days)
        if dropped:
            log.info("history dropped", names=dropped)
        return dropped
