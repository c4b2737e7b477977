"""A node that holds every shard, and due jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from mainspring.domain.job import DEFAULT_SPEC, Overlap, Spec
from mainspring.domain.schedules.misfire import FirePlan
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.store import fires, jobs

from .rows import a_job, every

MINUTE = timedelta(minutes=1)
LATE = datetime(2100, 1, 1, tzinfo=UTC)  # every job is due by then


class Scene:
    """A node that holds every shard. Its jobs fire every minute and are due at `moment`."""

    def __init__(self, connection: asyncpg.Connection, lane_id: int, moment: datetime, held: dict[int, int]) -> None:
        self.connection = connection
        self.lane_id = lane_id
        self.moment = moment
        self.node = uuid7()
        self.held = held

    def again(self, job_id: str = "nightly", *, version: int = 1, minutes: int = 0) -> fires.DueAgain:
        """The fire `minutes` later, on time."""
        moment = self.moment + minutes * MINUTE
        return fires.DueAgain(DEFAULT_TENANT, job_id, version, moment, FirePlan([moment], [], moment, moment + MINUTE))

    async def once(self, job_id: str, run_id: UUID, *, version: int = 1) -> fires.DueOnce:
        """A one-time job as the due-scan reads it."""
        written_by = await self.connection.fetchval("select xmin from mainspring.jobs where job_id = $1", job_id) or 0
        return fires.DueOnce(DEFAULT_TENANT, job_id, version, self.moment, run_id, written_by)

    async def fire_once(self, due: fires.DueOnce, *, on: asyncpg.Connection | None = None) -> fires.FiredRows:
        return await fires.fire_one_time(on or self.connection, self.node, self.held, [due])

    async def await_and_fire_once(self, due: fires.DueOnce, *, on: asyncpg.Connection) -> fires.FiredRows:
        """Wait for the job's lock first, as the fire of a held job does."""
        async with on.transaction():
            await fires.await_due(on, self.node, self.held, [due], LATE, "60s")
            return await self.fire_once(due, on=on)

    async def job(self, job_id: str = "nightly", *, overlap: Overlap = Overlap.SKIP, spec: Spec = DEFAULT_SPEC) -> None:
        schedule = every(60, self.moment)
        await a_job(self.connection, self.lane_id, job_id, schedule, self.moment, overlap=overlap, spec=spec)

    async def fire(self, *due: fires.DueAgain, on: asyncpg.Connection | None = None) -> fires.FiredRows:
        return await fire_with_lock(on or self.connection, self.node, self.held, due)


async def fire_with_lock(
    connection: asyncpg.Connection, node: UUID, held: dict[int, int], due: tuple[fires.DueAgain, ...]
) -> fires.FiredRows:
    """Fire like jobs that skip overlapping runs: lock, then decide."""
    async with connection.transaction():
        await fires.await_due(connection, node, held, due, LATE, "60s")
        return await fires.fire_recurring(connection, node, held, due)


async def run_now(connection: asyncpg.Connection, job_id: str = "nightly") -> bool:
    """Create a manual run. Return False if it was skipped."""
    async with connection.transaction():
        assert await jobs.lock(connection, DEFAULT_TENANT, job_id)
        run_id = uuid7()
        row = await fires.run_now(connection, DEFAULT_TENANT, job_id, run_id, f"manual:{run_id}")
    assert row is not None
    return not row.skipped
