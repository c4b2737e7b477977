"""Creates partitions a week ahead, and drops those that are older than the retention, with their logs."""

from __future__ import annotations

from functools import partial

from mainspring.kernel.logs import get_logger
from mainspring.store import (
    backfills,
    dead_letters,
    events,
    failure_groups,
    gauges,
    idempotency_keys,
    jobs,
    log_usage,
    logs,
    operations,
    partitions,
    rollups,
    sources,
    tenant_history,
    unique,
    workflow_versions,
    workflows,
)
from mainspring.store.log_files import folder_of
from mainspring.store.log_stores import LogStores
from mainspring.store.log_table import keep_chunks
from mainspring.store.pool import Store

log = get_logger("partition_maintainer")

_LOGS_AT_ONCE = 200
_FLOWS_KEPT = 6  # times as long as the history: so long can parts of a workflow run be run again


class PartitionMaintainer:
    name = "partition_maintainer"
    interval = 60.0  # short, because a laptop can sleep for longer than the week of partitions ahead

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> list[str]:
        """Create the missing partitions and return their names."""
        async with self._store.reads.acquire() as connection:
            made = await partitions.ensure_ahead(connection)
        if made:
            log.detail("partitions created", names=made)
        return made


class HistoryPruner:
    name = "history_pruner"
    interval = 3600.0

    def __init__(self, store: Store, retention_days: int, log_stores: LogStores | None = None) -> None:
        """`log_stores`: None in a process that does not reach the logs. Then a server deletes them."""
        self._store = store
        self._days = retention_days
        self._log_stores = log_stores

    async def run_once(self) -> list[str]:
        """Drop partitions older than the retention, and the keys and ids that refer to them, unique keys whose
        time is over, backfills, operations and workflow runs that ended long ago, versions of workflows that no run
        needs, and old rollups. Returns the partitions."""
        async with self._store.reads.acquire() as connection:
            # With a longer history, the history itself says when a job ended.
            keep_keys = partial(idempotency_keys.keep, connection) if self._days < idempotency_keys.KEY_DAYS else None
            dropped = await partitions.drop_older(connection, self._days, keep_keys, partitions.HISTORY)
            await jobs.prune(connection, self._days)
            await dead_letters.prune(connection, self._days)
            await unique.prune(connection)
            await backfills.prune(connection, self._days)
            await operations.prune(connection, self._days)
            await workflows.prune(connection, self._days * _FLOWS_KEPT)
            for days, tenants in await tenant_history.tenants_by_days(connection, self._days):
                await workflows.prune(connection, days * _FLOWS_KEPT, tenants=tenants)
            await workflow_versions.prune(connection, self._days)
            for kept in (rollups, failure_groups, gauges):
                await kept.prune(connection)
        if dropped:
            log.info("history dropped", names=dropped)
        if self._log_stores is not None:
            dropped += await self._prune_logs(self._log_stores)
        return dropped

    async def _prune_logs(self, stores: LogStores) -> list[str]:
        """Forget the logs of runs that are no longer in the history, then drop the partitions of their output. Returns
        the partitions."""
        if expired := await self._forget_logs(stores):
            log.info("logs dropped", logs=expired)
        async with self._store.reads.acquire() as connection:
            dropped = await partitions.drop_older(
                connection, self._days, partial(keep_chunks, connection), partitions.LOGS
            )
            await log_usage.prune(connection)
        if dropped:
            log.info("output dropped", names=dropped)
        return dropped

    async def _forget_logs(self, stores: LogStores) -> int:
        """Delete the objects before their rows. After a crash the remaining rows still lead to the objects."""
        count = 0
        while True:
            async with self._store.reads.acquire() as connection:
                rows = await logs.expired(connection, self._days, _LOGS_AT_ONCE)
            for files in stores.files:
                for row in rows:
                    await files.delete(folder_of(row.tenant_id, row.run_id, row.attempt, row.fence))
            if rows:
                async with self._store.reads.acquire() as connection:
                    await logs.forget(connection, [(row.run_id, row.fence) for row in rows])
            count += len(rows)
            if len(rows) < _LOGS_AT_ONCE:
                return count


class AuditPruner:
    name = "audit_pruner"
    interval = 3600.0

    def __init__(self, store: Store, retention_days: int) -> None:
        self._store = store
        self._days = retention_days

    async def run_once(self) -> list[str]:
        """Drop the days of the audit that are older than the retention, and two days later their links. Returns the
        partitions. An entry is linked within a second, or when the oldest transaction has ended."""
        async with self._store.reads.acquire() as connection:
            dropped = await partitions.drop_older(connection, self._days, tables=partitions.AUDIT_ENTRIES)
            dropped += await partitions.drop_older(connection, self._days + 2, tables=partitions.AUDIT_LINKS)
        if dropped:
            log.info("audit dropped", names=dropped)
        return dropped


class EventPruner:
    name = "event_pruner"
    interval = 600.0

    def __init__(self, store: Store, retention_days: int) -> None:
        self._store = store
        self._days = retention_days

    async def run_once(self) -> int:
        """Delete events that are older than the retention, unless a run that they start is still to be made, and the
        ids of messages that their broker does not deliver again. Returns how many events."""
        async with self._store.reads.acquire() as connection:
            deleted = await events.prune(connection, self._days)
            await sources.prune_messages(connection, self._days)
        if deleted:
            log.info("events dropped", events=deleted)
        return deleted
