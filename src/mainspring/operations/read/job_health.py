"""The health of jobs as clients see it."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.health import NEVER_RAN, HealthState
from mainspring.domain.transitions import JobStatus
from mainspring.kernel.ids import TenantId
from mainspring.store import health
from mainspring.store.health import HealthRow
from mainspring.store.pool import Connection
from mainspring.wire.jobs import JobHealth, JobView

_ONCE = ("IMMEDIATE", "FUTURE")
_ALIVE = (JobStatus.SCHEDULED, JobStatus.PAUSED)


async def add_health(connection: Connection, tenant: TenantId, views: Sequence[JobView]) -> None:
    """Of jobs that can fire again."""
    wanted = [view for view in views if view.schedule_type not in _ONCE and view.status in _ALIVE]
    if not wanted:
        return
    found = await health.of_jobs(connection, tenant, [view.job_id for view in wanted])
    for view in wanted:
        row = found.get((view.job_id, view.generation))
        view.health = JobHealth(NEVER_RAN, view.created_at) if row is None else _shown(row)


def _shown(row: HealthRow) -> JobHealth:
    usual = None if row.usual is None else round(row.usual, 3)
    return JobHealth(HealthState(row.state).word, row.since, row.reason, usual)
