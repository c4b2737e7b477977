"""Missed fires: recorded for a job, and listed for a job or for all jobs of a tenant."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.schedules.misfire import Missed
from mainspring.kernel.ids import TenantId
from mainspring.store.jobs import JobRow
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("missed_fires")


class MissedRow(msgspec.Struct, frozen=True):
    """A range of fires that were missed."""

    first_at: datetime
    last_at: datetime
    count: int
    reason: str
    recorded_at: datetime
    generation: int


class NumberedMissed(MissedRow, frozen=True):
    """A `MissedRow` with its place in the list."""

    missed_id: int


class Boundary(msgspec.Struct, frozen=True):
    """The last range of a stretch, and when it was recorded."""

    missed_id: int
    recorded_at: datetime


class MissedOfJob(NumberedMissed, frozen=True):
    """A `NumberedMissed` in the list of all jobs. `name` is the present name of the job; None if it has no name or no
    row. `backfills` are the backfills that cover some of the fires."""

    job_id: str
    name: str | None
    backfills: list[UUID]


_list_missed = RowQuery(MissedRow, _SQL["list_missed"])
_missed_at = RowQuery(MissedRow, _SQL["missed_at"])
_missed_page = RowQuery(NumberedMissed, _SQL["missed_page"])
_page = RowQuery(MissedOfJob, _SQL["missed_of_tenant"])
_boundary = RowQuery(Boundary, _SQL["missed_boundary"])


async def record(connection: Connection, row: JobRow, missed: Missed) -> None:
    await connection.execute(
        _SQL["insert_missed"],
        row.tenant_id,
        row.job_id,
        row.generation,
        missed.first,
        missed.last,
        missed.count,
        missed.reason,
    )


async def of_job(connection: Connection, tenant: TenantId, job_id: str, limit: int) -> list[MissedRow]:
    return await _list_missed.fetch(connection, tenant, job_id, limit)


async def at_time(
    connection: Connection, tenant: TenantId, job_id: str, first: datetime, last: datetime
) -> MissedRow | None:
    """The newest range with a time from `first` to `last`."""
    return await _missed_at.first(connection, tenant, job_id, first, last)


async def page_of_job(
    connection: Connection, tenant: TenantId, job_id: str, before: int | None, limit: int
) -> list[NumberedMissed]:
    return await _missed_page.fetch(connection, tenant, job_id, before, limit)


async def page(
    connection: Connection, tenant: TenantId, before: int | None, job_id: str | None, reason: str | None, limit: int,
    text: str | None = None, floor: int | None = None,
) -> list[MissedOfJob]:  # fmt: skip
    """`text`: a part of the name or the id of the job. `floor`: the last range that is read."""
    part = None if text is None else text.lower()
    return await _page.fetch(connection, tenant, before, job_id, reason, limit, part, floor)


async def boundary(connection: Connection, tenant: TenantId, before: int | None, count: int) -> Boundary | None:
    """Where a stretch of `count` ranges ends. None if there are fewer."""
    found = await _boundary.fetch(connection, tenant, before, count)
    return found[0] if found else None
