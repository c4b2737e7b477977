"""Backfills: their rows, their slices, and the runs that they create."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.backfills import FireRange, Slice
from mainspring.domain.tags import changed_meanwhile
from mainspring.kernel.ids import TenantId
from mainspring.store.fires import FiredRows
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.runs import LockedRun

_SQL = load("backfills")
FIRST = UUID(int=0)


class BackfillRow(msgspec.Struct, frozen=True):
    """A backfill as it is shown. `state`: paused also while its job is. `running`: its runs that had not ended when
    they were counted last. `job_status`: None if the job has no row any more. `waits_for`: an earlier backfill of the
    job that has fires left."""

    backfill_id: UUID
    job_id: str
    generation: int
    state: int
    from_at: datetime
    to_at: datetime
    newest_first: bool
    concurrency: int
    total: int
    created: int
    existing: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    reason: str | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    job_status: int | None
    waits_for: UUID | None


class AtWork(msgspec.Struct, frozen=True):
    """A backfill that has not ended."""

    backfill_id: UUID
    tenant_id: TenantId
    job_id: str


class LockedBackfill(msgspec.Struct, frozen=True):
    """A backfill whose row the transaction has locked, with the next fires of its slice. jittered_text: its schedule,
    if that has jitter."""

    backfill_id: UUID
    tenant_id: TenantId
    job_id: str
    generation: int
    state: int
    from_at: datetime
    to_at: datetime
    newest_first: bool
    concurrency: int
    total: int
    created: int
    existing: int
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    fire_cursor: datetime
    has_slice: bool
    next_fires: list[datetime] | None
    next_exist: list[bool] | None
    slice_length: int
    slice_done: int
    slice_end: datetime | None
    live: list[UUID]
    reason: str | None
    created_at: datetime
    jittered_text: str | None
    first_of_job: bool

    @property
    def has_fires_left(self) -> bool:
        """The fragment has_fires_left says the same in SQL."""
        ahead = self.fire_cursor > self.from_at if self.newest_first else self.fire_cursor < self.to_at
        return self.has_slice or ahead


class WantsSlice(msgspec.Struct, frozen=True):
    """What the next slice is computed from."""

    schedule_text: str
    from_at: datetime
    to_at: datetime
    fire_cursor: datetime
    newest_first: bool


class BackfilledRunEnd(msgspec.Struct, frozen=True):
    """Whether a run is alive, and else its last state. None if it is no longer in the history."""

    run_id: UUID
    alive: bool
    state: int | None


class Covered(msgspec.Struct, frozen=True):
    """The range of a backfill."""

    backfill_id: UUID
    generation: int
    from_at: datetime
    to_at: datetime


_get = RowQuery(BackfillRow, _SQL["get_backfill"])
_list = RowQuery(BackfillRow, _SQL["list_backfills"])
_at_work = RowQuery(AtWork, _SQL["backfills_at_work"])
_of_runs = RowQuery(AtWork, _SQL["backfills_of_runs"])
_lock = RowQuery(LockedBackfill, _SQL["lock_backfill"])
_wants_slice = RowQuery(WantsSlice, _SQL["wants_slice"])
_ends = RowQuery(BackfilledRunEnd, _SQL["ends_of_runs"])
_lock_runs = RowQuery(LockedRun, _SQL["lock_runs_of_backfill"])
_ranges = RowQuery(Covered, _SQL["ranges_of_job"])


class NewBackfill(msgspec.Struct, frozen=True):
    backfill_id: UUID
    job_id: str
    generation: int
    range: FireRange
    newest_first: bool
    concurrency: int
    total: int
    cursor: datetime
    schedule_text: str


async def insert(connection: Connection, tenant: TenantId, new: NewBackfill) -> None:
    """The caller has locked the job."""
    await connection.execute(
        _SQL["insert_backfill"],
        new.backfill_id,
        tenant,
        new.job_id,
        new.generation,
        new.range.start,
        new.range.end,
        new.newest_first,
        new.concurrency,
        new.total,
        new.cursor,
        new.schedule_text,
    )


async def get(connection: Connection, tenant: TenantId, backfill_id: UUID) -> BackfillRow | None:
    return await _get.first(connection, tenant, backfill_id)


async def page(
    connection: Connection,
    tenant: TenantId,
    before: UUID | None,
    job_id: str | None,
    states: Sequence[int] | None,
    limit: int,
) -> list[BackfillRow]:
    """Newest first."""
    return await _list.fetch(connection, tenant, before, job_id, states, limit)


async def unfinished(connection: Connection, tenant: TenantId, job_id: str) -> int:
    """How many backfills of the job have not ended."""
    return int(await connection.fetchval(_SQL["unfinished_of_job"], tenant, job_id))


async def at_work(connection: Connection, after: UUID, limit: int) -> list[AtWork]:
    """The backfills that may create runs, or have runs that had not ended."""
    return await _at_work.fetch(connection, after, limit)


async def of_runs(connection: Connection, run_ids: Sequence[UUID]) -> list[AtWork]:
    """The backfills of these runs, and others of the same jobs."""
    return await _of_runs.fetch(connection, run_ids)


async def lock(
    connection: Connection, tenant: TenantId, backfill_id: UUID, most_fires: int = 0
) -> LockedBackfill | None:
    """The caller has locked the job."""
    return await _lock.first(connection, tenant, backfill_id, most_fires)


async def lock_of_job(connection: Connection, tenant: TenantId, job_id: str) -> list[UUID]:
    """Lock the backfills of the job that have not ended."""
    return [found for (found,) in await connection.fetch(_SQL["lock_backfills_of_job"], tenant, job_id)]


async def wants_slice(connection: Connection, tenant: TenantId, backfill_id: UUID) -> WantsSlice | None:
    """What a backfill needs for a slice. None if it has a slice or is not running."""
    return await _wants_slice.first(connection, tenant, backfill_id)


async def job_is_past(connection: Connection, tenant: TenantId, backfill_id: UUID) -> bool:
    """Whether the scheduler has dealt with everything before the end of the backfill."""
    return bool(await connection.fetchval(_SQL["job_is_past"], tenant, backfill_id))


async def existing(
    connection: Connection, tenant: TenantId, job_id: str, generation: int, first: datetime, last: datetime
) -> set[datetime]:
    """The times from `first` to `last` for which the job has a run: fires, and their nominal times."""
    rows = await connection.fetch(_SQL["existing_fires"], tenant, job_id, generation, first, last)
    return {moment for row in rows for moment in row if moment is not None}


async def take_slice(
    connection: Connection, item: AtWork, cursor: datetime, taken: Slice, exist: Sequence[bool]
) -> bool:
    """Store the slice that was computed from `cursor`, and drop those of others. The caller has locked all backfills of
    the job."""
    await connection.execute(_SQL["drop_slices"], item.tenant_id, item.job_id, item.backfill_id)
    found = await connection.fetchval(
        _SQL["take_slice"], item.tenant_id, item.backfill_id, cursor, taken.times, exist, taken.end
    )
    return found is not None


async def ends(connection: Connection, run_ids: Sequence[UUID], since: datetime) -> list[BackfilledRunEnd]:
    """What became of these runs. None of them ended before `since`."""
    return await _ends.fetch(connection, run_ids, since)


async def create_runs(
    connection: Connection,
    backfill: LockedBackfill,
    new: Sequence[tuple[UUID, datetime]],
    trigger: str,
    *,
    nominal: Sequence[datetime] = (),
    own_spec: bool,
    spec: str | None,
) -> FiredRows:
    """Create runs for these times, with another spec than that of the job if `own_spec`. `nominal`: their nominal
    times, with jitter. The caller has locked the job and the backfill."""
    row = await connection.fetchrow(
        _SQL["create_backfill_runs"],
        backfill.tenant_id,
        backfill.job_id,
        backfill.generation,
        [run_id for run_id, _ in new],
        [moment for _, moment in new],
        trigger,
        own_spec,
        spec,
        nominal,
    )
    if row["created"] != len(new):
        raise changed_meanwhile(f"job {backfill.job_id!r}")
    return FiredRows(dict(Counter(row["lanes"] or ())), [], lines=row["lines"] or [], held=row["held"] or [])


async def advance(
    connection: Connection, before: LockedBackfill, after: LockedBackfill, *, keep_slice: bool, ended: bool
) -> None:
    """Write what has changed. The caller has locked the row as `before`."""
    found = await connection.fetchval(
        _SQL["advance_backfill"],
        before.tenant_id,
        before.backfill_id,
        before.state,
        before.created + before.existing,
        after.state,
        after.reason,
        after.total,
        after.created,
        after.existing,
        after.succeeded,
        after.failed,
        after.cancelled,
        after.skipped,
        after.fire_cursor,
        after.slice_done if keep_slice else 0,
        after.live,
        keep_slice,
        ended,
    )
    if found is None:
        raise changed_meanwhile(f"backfill {before.backfill_id}")


async def set_concurrency(connection: Connection, tenant: TenantId, backfill_id: UUID, number: int) -> bool:
    """Return False if it has ended."""
    return await connection.fetchval(_SQL["set_concurrency"], tenant, backfill_id, number) is not None


async def end_of_job(connection: Connection, tenant: TenantId, job_id: str, reason: str) -> list[UUID]:
    """Cancel the backfills of a job that is cancelled. The caller has locked the job. Returns those that have ended:
    no run of them is left."""
    rows = await connection.fetch(_SQL["end_backfills_of_job"], tenant, job_id, reason)
    return [row["backfill_id"] for row in rows if row["ended"]]


async def lock_runs(connection: Connection, tenant: TenantId, run_ids: Sequence[UUID]) -> list[LockedRun]:
    """Lock the runs that are alive."""
    return await _lock_runs.fetch(connection, tenant, run_ids)


async def covered(connection: Connection, tenant: TenantId, job_id: str, limit: int) -> list[Covered]:
    """The ranges of the job's backfills that were not cancelled, newest first."""
    return await _ranges.fetch(connection, tenant, job_id, limit)


async def prune(connection: Connection, days: float, batch: int = 1000) -> int:
    """Forget backfills that ended long ago. Returns how many."""
    deleted = 0
    while True:
        done = int((await connection.execute(_SQL["prune_backfills"], days, batch)).rpartition(" ")[2])
        deleted += done
        if done < batch:
            return deleted
