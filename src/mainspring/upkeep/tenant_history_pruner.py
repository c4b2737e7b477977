"""Deletes the history of tenants that keep it for a shorter time than others (quota `history_days`).

Partitions belong to all tenants, so their rows are deleted: a day at a time, in small transactions that note how far
they have come, by one process at a time. It works in minutes with less load than usual, and takes a tenth of the time.
When a second day is due it does not wait for such minutes any longer. Days on which runs may still end are not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from mainspring.domain.rollups import floor_to
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.store import rollups, tenant_history
from mainspring.store.log_files import folder_of
from mainspring.store.log_stores import LogStores
from mainspring.store.pool import Connection, Store
from mainspring.store.tenant_history import DueDay

log = get_logger("tenant_history_pruner")

_BUDGET = 1.0  # seconds of each interval
_LOOKED_AT = 5000  # runs of all tenants in a transaction
_AT_ONCE = 1000  # runs that a transaction deletes, with their output
_OBJECTS_AT_ONCE = 100  # the same, if each has objects that are deleted one by one
_LATE = 2  # days that are due: from then on it works at any time
_MINUTE = timedelta(minutes=1)


class TenantHistoryPruner:
    name = "tenant_history_pruner"
    interval = 10.0

    def __init__(self, store: Store, history_days: int, log_stores: LogStores) -> None:
        self._store = store
        self._days = history_days
        self._log_stores = log_stores

    async def run_once(self) -> int:
        """Returns how many runs were deleted."""
        budget, deleted = TimeSlices(_BUDGET), 0
        while not budget.over:
            some = await self._batch()
            if some is None:
                break
            deleted += some
        if deleted:
            log.info("history of tenants with a quota deleted", runs=deleted)
        return deleted

    async def _batch(self) -> int | None:
        """Delete some runs. None if there is nothing to do now."""
        async with self._store.reads.acquire() as connection:
            if await tenant_history.due(connection, self._days) is None:
                return None
            async with connection.transaction():
                if not await tenant_history.turn(connection):
                    return None
                due = await tenant_history.due(connection, self._days)
                if due is None or not await _may_begin(connection, due):
                    return None
                most = _OBJECTS_AT_ONCE if self._log_stores.files else _AT_ONCE
                runs = await tenant_history.some_runs(connection, due, _LOOKED_AT, most)
                if runs.run_ids:
                    await self._delete_objects(connection, runs.run_ids)
                await tenant_history.delete(connection, due, runs)
                return len(runs.run_ids)

    async def _delete_objects(self, connection: Connection, run_ids: Sequence[UUID]) -> None:
        """Before their rows. After a crash the remaining rows still lead to the objects."""
        if not self._log_stores.files:
            return
        for row in await tenant_history.logs_of(connection, run_ids):
            for files in self._log_stores.files:
                await files.delete(folder_of(row.tenant_id, row.run_id, row.attempt, row.fence))


async def _may_begin(connection: Connection, due: DueDay) -> bool:
    """Whether all that ended on the day is in the rollups, and this is a quiet minute or the day is late."""
    until = await rollups.watermark(connection)
    if until is None or until < due.end:
        return False
    return due.days >= _LATE or await tenant_history.is_quiet(connection, floor_to(until, _MINUTE) - _MINUTE)
