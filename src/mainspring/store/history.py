"""Reading runs, live and ended; queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.jobs import contains
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load

_SQL = load("history")


class RunFilter(msgspec.Struct, frozen=True):
    """What `GET /v1/runs` may ask for; None means any. `own`: the run that is a one-time job itself."""

    job_id: str | None = None
    own: UUID | None = None
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
    return await pages.read(
        connection,
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
        chosen.own,
        limit,
        straight=chosen == RunFilter(),
    )


async def ended_runs(
    connection: Connection, tenant: TenantId, chosen: RunFilter, before: UUID | None, limit: int
) -> list[Record]:
    return await pages.read(
        connection,
        _SQL["ended_runs"],
        tenant,
        before,
        chosen.job_id,
        chosen.lane_ids,
        chosen.ended_states,
        contains(chosen.error),
        chosen.since,
        chosen.until,
        chosen.own,
        limit,
        straight=chosen == RunFilter(job_id=chosen.job_id, own=chosen.own),
    )


async def runs_of_job(
    connection: Connection, tenant: TenantId, job_id: str, before: UUID | None, limit: int
) -> list[Record]:
    """Newest first, live and ended. The newest alone is what clients ask for again and again while they wait."""
    rows = await pages.read(connection, _SQL["live_runs_of_job"], tenant, job_id, before, limit)
    rows += await pages.read(connection, _SQL["ended_runs_of_job"], tenant, job_id, before, limit, straight=limit > 1)
    return newest_first(rows, limit)


def newest_first(rows: Sequence[Record], limit: int) -> list[Record]:
    """By run_id, the newest first. A run that ended between two looks is there twice, and counts as ended."""
    distinct = {row["run_id"]: row for row in sorted(rows, key=lambda row: "ended_at" in row)}
    return [distinct[run_id] for run_id in sorted(distinct, reverse=True)][:limit]


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
