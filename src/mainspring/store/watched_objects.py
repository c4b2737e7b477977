"""Reads the objects that event streams watch, of several tenants at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("live")


class WatchedRun(msgspec.Struct, frozen=True):
    """`state` is the state as it is shown. `stopping`: the run was cancelled."""

    tenant_id: TenantId
    run_id: UUID
    state: int
    attempt: int
    progress: float | None
    progress_number: int | None
    stopping: bool


class WatchedJob(msgspec.Struct, frozen=True):
    """`version` and `status` are None if the job has no row in `jobs`. `live` is the number of its live runs, and
    `digest` a digest of them. `ended` is its newest ended run."""

    tenant_id: TenantId
    job_id: str
    version: int | None
    status: int | None
    next_fire_at: datetime | None
    live: int
    digest: int
    ended: UUID | None


class WatchedFlow(msgspec.Struct, frozen=True):
    """`state` is a FlowState. There is one row for each state of its step runs: `number` of them have `step_state`."""

    tenant_id: TenantId
    flow_id: UUID
    state: int
    reruns: int
    step_state: int | None
    number: int | None


_runs = RowQuery(WatchedRun, _SQL["watched_runs"])
_jobs = RowQuery(WatchedJob, _SQL["watched_jobs"])
_flows = RowQuery(WatchedFlow, _SQL["watched_flows"])


async def runs(connection: Connection, wanted: Sequence[tuple[TenantId, UUID]]) -> list[WatchedRun]:
    return await _runs.fetch(connection, [tenant for tenant, _ in wanted], [run_id for _, run_id in wanted])


async def jobs(connection: Connection, wanted: Sequence[tuple[TenantId, str]]) -> list[WatchedJob]:
    return await _jobs.fetch(connection, [tenant for tenant, _ in wanted], [job_id for _, job_id in wanted])


async def flows(connection: Connection, wanted: Sequence[tuple[TenantId, UUID]]) -> list[WatchedFlow]:
    return await _flows.fetch(connection, [tenant for tenant, _ in wanted], [run_id for _, run_id in wanted])


async def workers(connection: Connection, tenants: Collection[TenantId]) -> dict[TenantId, tuple[int, int]]:
    """How many workers are alive, and a digest of them. Shared workers count as those of EVERY_TENANT."""
    rows = await connection.fetch(_SQL["watched_workers"], [*tenants, EVERY_TENANT])
    return {TenantId(tenant): (alive, digest) for tenant, alive, digest in rows}


async def tenants_of_runs(connection: Connection, run_ids: Collection[UUID]) -> list[tuple[TenantId, int]]:
    rows = await connection.fetch(_SQL["tenants_of_runs"], list(run_ids))
    return [(TenantId(tenant), count) for tenant, count in rows]
