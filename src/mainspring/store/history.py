"""Reading runs, live and ended; queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.jobs import contains
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load

_SQL = load("history")


class RunFilter(msgspec.Struct, frozen=True):
    """What `GET /v1/runs` may ask for; None means any."""

    job_id: str | None = None
    lane_ids: Sequence[int] | None = None
    live_states: Sequence[int] | None = None
    ended_states: Sequence[int] | None = None
    backing_off: bool | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def live_run(connection: Connection, tenant: TenantId, run_id: UUID) -> Record | None:
    row: Record | None = await connection.fetchrow(_SQL["live_run"], tenant, run_id)
    return row


async def ended_run(connection: Connection, tenant: TenantId, run_id: UUID) -> Record | None:
    row: Record | None = await connection.fetchrow(_SQL["ended_run"], tenant, run_id)
    return row


async def live_runs(
    connection: Connection, tenant: TenantId, chosen: RunFilter, before: UUID | None, limit: int
) -> list[Record]:
    rows: list[Record] = await connection.fetch(
        _SQL["live_runs"],
        tenant,
        before,
        chosen.job_id,
        chosen.lane_ids,
        chosen.live_states,
        contains(chosen.error),
        chosen.since,
        chosen.until,
        chosen.backing_off,
        limit,
    )
    return rows


async def ended_runs(
    connection: Connection, tenant: TenantId, chosen: RunFilter, before: UUID | None, limit: int
) -> list[Record]:
    rows: list[Record] = await connection.fetch(
        _SQL["ended_runs"],
        tenant,
        before,
        chosen.job_id,
        chosen.lane_ids,
        chosen.ended_states,
        contains(chosen.error),
        chosen.since,
        chosen.until,
        limit,
    )
    return rows


async def runs_of_job(
    connection: Connection, tenant: TenantId, job_id: str, before: UUID | None, limit: int
) -> list[Record]:
    """Newest first, live and ended."""
    rows: list[Record] = await connection.fetch(_SQL["live_runs_of_job"], tenant, job_id, before, limit)
    rows += await connection.fetch(_SQL["ended_runs_of_job"], tenant, job_id, before, limit)
    rows.sort(key=lambda row: row["run_id"], reverse=True)
    return rows[:limit]


async def queue_depths(connection: Connection, tenant: TenantId) -> list[Record]:
    rows: list[Record] = await connection.fetch(_SQL["queue_depths"], tenant)
    return rows


async def ended_last_minute(connection: Connection, tenant: TenantId) -> dict[int, int]:
    return {row["lane_id"]: row["ended"] for row in await connection.fetch(_SQL["ended_last_minute"], tenant)}


async def attempts_of(connection: Connection, run_id: UUID) -> list[Record]:
    rows: list[Record] = await connection.fetch(_SQL["attempts_of"], run_id)
    return rows


async def worker_names(connection: Connection, worker_ids: Sequence[UUID]) -> dict[UUID, str]:
    return {row["worker_id"]: row["name"] for row in await connection.fetch(_SQL["worker_names"], worker_ids)}


async def ahead_of(connection: Connection, lane_id: int, ready_at: datetime) -> int:
    count: int = await connection.fetchval(_SQL["ahead_of"], lane_id, ready_at)
    return count
