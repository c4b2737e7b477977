"""Fire: the compare-and-set under a lease that turns due jobs into runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.schedules.misfire import FirePlan
from mainspring.kernel.ids import TenantId, uuid7, uuid7_batch
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.runs import EndedRow

_SQL = load("fire")

Changed = tuple[str | None, str | None]  # payload and spec that a run has instead of those of its job
JobKey = tuple[TenantId, str]


class DueJob(msgspec.Struct, frozen=True):
    """A job as the due-scan saw it. The fire compares all of this with the row, and builds the run from the row.
    `written_by` is the transaction that wrote the row. It is compared for one-time jobs."""

    tenant_id: TenantId
    job_id: str
    version: int
    shard: int
    next_fire_at: datetime
    one_time: bool
    id_generated: bool
    overlap: int
    schedule_text: str
    spec_text: str | None
    written_by: int = 0
    generation: int = 1
    runs_left: int | None = None
    lane_id: int = 0
    last_nominal_for: datetime | None = None
    created_at: datetime | None = None

    @property
    def key(self) -> JobKey:
        return (self.tenant_id, self.job_id)


class ManualRun(msgspec.Struct, frozen=True):
    """The result of a manual run: the lane in which it waits, or that an earlier run of its job was still alive.
    `follows` is what follows the end of a skipped run. `line`: where it is HELD, if it has limits."""

    lane_id: int
    skipped: bool
    follows: int | None
    line: int | None


_due_scan = RowQuery(DueJob, _SQL["due_scan"])
_due_scan_of_lanes = RowQuery(DueJob, _SQL["due_scan_of_lanes"])
_still_due = RowQuery(DueJob, _SQL["still_due"])
_await_due = RowQuery(DueJob, _SQL["await_due"])
_run_now = RowQuery(ManualRun, _SQL["run_now"])
_run_again = RowQuery(ManualRun, _SQL["run_again"])


class DueOnce(msgspec.Struct, frozen=True):
    """A due one-time job, as the due-scan saw it, and the id of its run."""

    tenant_id: int
    job_id: str
    version: int
    next_fire_at: datetime
    run_id: UUID
    written_by: int
    replaces: bool = False


class DueAgain(msgspec.Struct, frozen=True):
    """A due recurring job, as the due-scan saw it, and the plan for its fires. `replaces`: its new run cancels those
    that live."""

    tenant_id: int
    job_id: str
    version: int
    next_fire_at: datetime
    plan: FirePlan
    generation: int = 1
    replaces: bool = False


class FiredRows(msgspec.Struct, frozen=True):
    """The result of a batch: how many runs each lane got, which recurring jobs fired, by their index in the batch, the
    skipped runs that something follows, how many one-time jobs fired, the lines in which new runs are HELD, these runs,
    and how many of the jobs have edges."""

    created: dict[int, int]
    moved: list[int]
    skipped: list[EndedRow] = []
    gone: int = 0
    lines: list[int] = []
    held: list[UUID] = []
    with_edges: int = 0


async def due_scan(connection: Connection, shards: Sequence[int], ahead: float, per_shard: int) -> list[DueJob]:
    return await _due_scan.fetch(connection, shards, ahead, per_shard)


async def due_scan_of_lanes(
    connection: Connection, shards: Sequence[int], ahead: float, per_shard: int, lane_ids: Sequence[int]
) -> list[DueJob]:
    return await _due_scan_of_lanes.fetch(connection, shards, ahead, per_shard, lane_ids)


async def oldest_due(connection: Connection, shards: Sequence[int]) -> float | None:
    seconds: float | None = await connection.fetchval(_SQL["oldest_due"], shards)
    return seconds


async def fire_one_time(
    connection: Connection, node_id: UUID, leases: Mapping[int, int], due: Sequence[DueOnce]
) -> FiredRows:
    """Fire one-time jobs. A job that has changed, or that another transaction has locked, is left alone."""
    row = await connection.fetchrow(
        _SQL["fire_one_time"],
        *_keys(node_id, leases, due),
        [job.version for job in due],
        [job.next_fire_at for job in due],
        [job.run_id for job in due],
        [job.written_by for job in due],
    )
    return _gone(row)


async def lock_due(
    connection: Connection, node_id: UUID, leases: Mapping[int, int], due: Sequence[DueAgain]
) -> list[int]:
    """Lock the jobs that no other transaction has locked and whose shards are still ours. Return their indexes in the
    batch."""
    rows = await connection.fetch(_SQL["lock_due"], *_keys(node_id, leases, due))
    return [position - 1 for (position,) in rows]


async def still_due(
    connection: Connection, node_id: UUID, leases: Mapping[int, int], jobs: Sequence[DueJob], now: datetime
) -> list[DueJob]:
    """The jobs that are due and whose shards are still ours, as they are now."""
    return await _still_due.fetch(connection, *_keys(node_id, leases, jobs), now)


async def await_due(
    connection: Connection,
    node_id: UUID,
    leases: Mapping[int, int],
    jobs: Sequence[DueJob | DueOnce | DueAgain],
    now: datetime,
    patience: str,
) -> list[DueJob]:
    """As `still_due`, and lock the jobs. Raises LockNotAvailableError if another transaction has locked one for longer
    than `patience`."""
    return await _await_due.fetch(connection, *_keys(node_id, leases, jobs), now, patience)


async def fire_recurring(
    connection: Connection, node_id: UUID, leases: Mapping[int, int], due: Sequence[DueAgain], patience: str = "10s"
) -> FiredRows:
    """Fire recurring jobs as planned. A job that has changed does not fire. Raises LockNotAvailableError if another
    transaction has locked one for longer than `patience`."""
    return _moved(await connection.fetchrow(_SQL["fire_recurring"], *_plans(node_id, leases, due), patience))


async def fire_free(
    connection: Connection, node_id: UUID, leases: Mapping[int, int], due: Sequence[DueAgain]
) -> FiredRows:
    """Fire recurring jobs as planned. A job that has changed, or that is locked, does not fire."""
    return _moved(await connection.fetchrow(_SQL["fire_free"], *_plans(node_id, leases, due)))


def _keys(node_id: UUID, leases: Mapping[int, int], due: Sequence[DueJob | DueOnce | DueAgain]) -> tuple[Any, ...]:
    return (
        node_id,
        list(leases),
        list(leases.values()),
        [job.tenant_id for job in due],
        [job.job_id for job in due],
    )


def _plans(node_id: UUID, leases: Mapping[int, int], due: Sequence[DueAgain]) -> tuple[Any, ...]:
    moments = [moment for job in due for moment in job.plan.runs]
    gaps = [gap for job in due for gap in job.plan.missed]
    return (
        *_keys(node_id, leases, due),
        [job.version for job in due],
        [job.next_fire_at for job in due],
        [job.plan.through for job in due],
        [job.plan.next_fire for job in due],
        *_ranges([len(job.plan.runs) for job in due]),
        *_ranges([len(job.plan.missed) for job in due]),
        [job.generation for job in due],
        uuid7_batch(len(moments)),
        moments,
        [gap.first for gap in gaps],
        [gap.last for gap in gaps],
        [gap.count for gap in gaps],
        [gap.reason for gap in gaps],
        *_nominal_times([job.plan for job in due]),
    )


def _nominal_times(plans: Sequence[FirePlan]) -> tuple[list[datetime | None], list[datetime | None]]:
    """The nominal times of the runs and of the last fire of each job. Without jitter none is sent."""
    if all(plan.nominal is None for plan in plans):
        return [], []
    of_runs: list[datetime | None] = []
    for plan in plans:
        of_runs += plan.nominal_runs or [None] * len(plan.runs)
    return of_runs, [plan.nominal for plan in plans]


async def fire_locked_recurring(connection: Connection, due: DueAgain) -> FiredRows:
    """Fire a job as planned. The caller holds the job's lock."""
    row = await connection.fetchrow(
        _SQL["fire_locked_recurring"],
        due.tenant_id,
        due.job_id,
        due.version,
        due.next_fire_at,
        due.plan.through,
        due.plan.next_fire,
        uuid7_batch(len(due.plan.runs)),
        due.plan.runs,
        [gap.first for gap in due.plan.missed],
        [gap.last for gap in due.plan.missed],
        [gap.count for gap in due.plan.missed],
        [gap.reason for gap in due.plan.missed],
        due.generation,
        due.plan.nominal,
        due.plan.nominal_runs,
    )
    return _moved(row)


async def fire_locked_one_time(
    connection: Connection, tenant: TenantId, job_id: str, version: int, at: datetime
) -> FiredRows:
    """Fire a one-time job. The caller holds the job's lock."""
    row = await connection.fetchrow(_SQL["fire_locked_one_time"], tenant, job_id, version, at, uuid7())
    return _gone(row)


def _moved(row: Record) -> FiredRows:
    moved = [position - 1 for position in row["moved"] or ()]
    return FiredRows(
        _by_lane(row["lanes"]), moved, row["skipped"] or [], lines=row["lines"] or [], held=row["held"] or [],
        with_edges=row["with_edges"],
    )  # fmt: skip


def _gone(row: Record) -> FiredRows:
    return FiredRows(
        _by_lane(row["lanes"]), [], row["skipped"] or [], row["gone"], row["lines"] or [], row["held"] or [],
        with_edges=row["with_edges"],
    )  # fmt: skip


def _by_lane(lanes: Sequence[int] | None) -> dict[int, int]:
    return dict(Counter(lanes or ()))


def _ranges(counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """First and last subscript (from 1) of each job's part in one concatenated list."""
    last = list(accumulate(counts))
    return [end - count + 1 for end, count in zip(last, counts, strict=True)], last


async def run_now(
    connection: Connection,
    tenant: TenantId,
    job_id: str,
    run_id: UUID,
    trigger: str,
    changed: Changed | None = None,
    created_by: UUID | None = None,
) -> ManualRun | None:
    """Return None if the job is cancelled or does not exist. The caller holds the job's lock."""
    payload, spec = changed or (None, None)
    return await _run_now.first(
        connection, tenant, job_id, run_id, trigger, changed is not None, payload, spec, created_by
    )


class Repeat(msgspec.Struct, frozen=True):
    """A manual run of a one-time job that has fired. `own`: the run that is itself the job."""

    job_id: str
    generation: int
    run_id: UUID
    trigger: str
    lane_id: int
    max_attempts: int
    name: str | None
    one_at_a_time: bool
    own: UUID | None
    payload: str | None
    spec: str | None
    created_by: UUID | None = None


async def run_again(connection: Connection, tenant: TenantId, item: Repeat) -> ManualRun:
    """The caller holds the lock of the fired job."""
    made = await _run_again.first(
        connection,
        tenant,
        item.job_id,
        item.run_id,
        item.trigger,
        item.lane_id,
        item.max_attempts,
        item.name,
        item.one_at_a_time,
        item.own,
        item.payload,
        item.spec,
        item.generation,
        item.created_by,
    )
    assert made is not None  # the statement returns its one row
    return made
