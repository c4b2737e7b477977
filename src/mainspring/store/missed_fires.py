"""The missed fires of all jobs of a tenant. Those of one job are in store/jobs.py."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("missed_fires")


class MissedOfJob(msgspec.Struct, frozen=True):
    """A range of fires that a job missed. `name`: that of the job as it is now; None if it has none, or no row."""

    missed_id: int
    job_id: str
    name: str | None
    first_at: datetime
    last_at: datetime
    count: int
    reason: str
    recorded_at: datetime
    generation: int


_page = RowQuery(MissedOfJob, _SQL["missed_of_tenant"])


async def page(
    connection: Connection, tenant: TenantId, before: int | None, job_id: str | None, reason: str | None, limit: int
) -> list[MissedOfJob]:
    return await _page.fetch(connection, tenant, before, job_id, reason, limit)
