"""The missed fires of all jobs of a tenant. Those of one job are in store/jobs.py."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("missed_fires")


class MissedOfJob(msgspec.Struct, frozen=True):
    """A range of fires that a job missed. `name`: that of the job as it is now; None if it has none, or no row.
    `backfills`: those that cover some of the fires."""

    missed_id: int
    job_id: str
    name: str | None
    first_at: datetime
    last_at: datetime
    count: int
    reason: str
    recorded_at: datetime
    generation: int
    backfills: list[UUID]


_page = RowQuery(MissedOfJob, _SQL["missed_of_tenant"])


async def page(
    connection: Connection, tenant: TenantId, before: int | None, job_id: str | None, reason: str | None, limit: int,
    text: str | None = None,
) -> list[MissedOfJob]:  # fmt: skip
    """`text`: a part of the name or the id of the job."""
    part = None if text is None else text.lower()
    return await _page.fetch(connection, tenant, before, job_id, reason, limit, part)
