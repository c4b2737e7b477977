"""What a restore from a backup changes before the first server starts."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mainspring.store.fires import DueJob
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.runs import LockedRun

_SQL = load("restores")
# More than any run, or any shard, gets in the life of an installation.
FENCE_GAP = 1_000_000
EPOCH_GAP = 1_000_000_000
RESTORED = "restored from a backup"


class Counted(msgspec.Struct, frozen=True):
    """How many rows there are."""

    jobs: int
    live_runs: int
    ended_runs: int


_lock_unsure = RowQuery(LockedRun, _SQL["lock_unsure"])
_due_unsure = RowQuery(DueJob, _SQL["due_unsure"])
_counted = RowQuery(Counted, _SQL["counted"])


async def end_owners(connection: Connection) -> int:
    """No shard, worker or session of the time before is valid, and fences and epochs are above all that were granted
    since. Call it in a transaction. Returns how many workers were alive."""
    await connection.execute(_SQL["end_leases"], EPOCH_GAP)
    await connection.execute(_SQL["forget_nodes"])
    ended = await connection.fetch(_SQL["end_workers"], RESTORED)
    await connection.execute(_SQL["raise_fences"], FENCE_GAP)
    await connection.execute(_SQL["end_sessions"])
    await connection.execute(_SQL["end_links"])
    return len(ended)


async def workers_with_runs(connection: Connection) -> list[UUID]:
    return [row["worker_id"] for row in await connection.fetch(_SQL["workers_with_runs"])]


async def lock_unsure(connection: Connection, limit: int) -> list[LockedRun]:
    """Runs that may have begun since the backup, and must not begin twice. They are locked."""
    return await _lock_unsure.fetch(connection, limit)


async def due_unsure(connection: Connection, limit: int) -> list[DueJob]:
    """Due jobs that must not run twice for one time."""
    return await _due_unsure.fetch(connection, limit)


async def counted(connection: Connection) -> Counted:
    [found] = await _counted.fetch(connection)
    return found
