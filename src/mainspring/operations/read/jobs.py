"""Reads jobs: one, lists of them, their status, upcoming fires and missed fires."""

from __future__ import annotations

from datetime import datetime

from mainspring.domain.schedules.schedule import Schedule, fires, next_fire
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import chosen_lanes, load_lane, no_job, own_run
from mainspring.operations.read.cursors import encode_cursor, job_cursor
from mainspring.operations.read.runs import RunReader
from mainspring.operations.read.search import JobQuery, job_statuses, searching
from mainspring.operations.read.views import fired_job_view, job_view
from mainspring.store import history, jobs
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pages import cut
from mainspring.store.pool import Store
from mainspring.wire.jobs import JobList, JobView, MissedRange, Upcoming
from mainspring.wire.runs import JobStatus

_YET_TO_FIRE = [int(StoredJobStatus.SCHEDULED), int(StoredJobStatus.PAUSED)]


class JobReader:
    def __init__(self, store: Store, lanes: LaneRegistry, runs: RunReader) -> None:
        self._store = store
        self._lanes = lanes
        self._runs = runs

    async def job(self, caller: Caller, job_id: str) -> JobView:
        """A job from any of the tables: jobs, runs or the history."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            row = await jobs.get(connection, tenant, job_id)
            if row is not None:
                return job_view(row, await load_lane(self._lanes, connection, row.lane_id))
            fired = await own_run(connection, tenant, job_id)
            if fired is None:
                newest = await history.runs_of_job(connection, tenant, job_id, None, 1)
                if not newest:
                    raise no_job(job_id)
                fired = newest[0]
            return fired_job_view(fired, await load_lane(self._lanes, connection, fired.lane_id))

    async def jobs(self, caller: Caller, query: JobQuery) -> JobList:
        tenant = caller.tenant
        lane_ids = await chosen_lanes(self._lanes, tenant, query.queue, None)
        before = job_cursor(query.cursor)
        async with searching(self._store, tenant, "jobs", query) as connection:
            rows = await jobs.list_jobs(
                connection,
                tenant,
                before=before,
                statuses=job_statuses(query.statuses) or _YET_TO_FIRE,
                lane_ids=lane_ids,
                owner=query.owner,
                label=query.label,
                text=query.text,
                declared_by=query.declared_by,
                limit=query.limit + 1,
            )
        page, more = cut(rows, query.limit)
        following = None
        if more:
            last = page[-1]
            following = encode_cursor(f"{last.created_at.isoformat()} {last.job_id}")
        return JobList([job_view(row, await self._lanes.get(row.lane_id)) for row in page], following)

    async def status(self, caller: Caller, job_id: str) -> JobStatus:
        """The status of a job, and its latest run."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            found = await history.runs_of_job(connection, tenant, job_id, None, 1)
            own = await own_run(connection, tenant, job_id)
            if own is not None:
                found.append(own)
            newest = max(found, key=lambda run: run.scheduled_for, default=None)
            latest = None if newest is None else await self._runs.view(caller, connection, newest)
        view = await self.job(caller, job_id)
        return JobStatus(job_id, view.status, latest)

    async def upcoming(self, caller: Caller, job_id: str, count: int) -> Upcoming:
        """The next fires of a job."""
        async with self._store.reads.acquire() as connection:
            row = await jobs.get(connection, caller.tenant, job_id)
            now: datetime = await connection.fetchval("select clock_timestamp()")
        if row is None:
            await self.job(caller, job_id)  # a one-time job that has fired has no upcoming fires; other ids are 404
            return Upcoming(job_id, [])
        schedule = jobs.schedule_from_text(row.schedule_text)
        first = row.next_fire_at
        if first is None and row.paused_from is not None:
            # A paused job: the fires that would follow if it were resumed now, without those that were missed.
            late = schedule.recurring and row.paused_from <= now
            first = next_fire(schedule, now) if late else row.paused_from
        return Upcoming(job_id, await _ahead(schedule, first, count))

    async def missed(self, caller: Caller, job_id: str, limit: int) -> list[MissedRange]:
        """The fires that a job missed, newest first."""
        async with searching(self._store, caller.tenant, "missed fires") as connection:
            rows = await jobs.list_missed(connection, caller.tenant, job_id, limit)
        if not rows:
            await self.job(caller, job_id)
        return [MissedRange(row.first_at, row.last_at, row.count, row.reason, row.recorded_at) for row in rows]


async def _ahead(schedule: Schedule, first: datetime | None, count: int) -> list[datetime]:
    if first is None:
        return []
    moments, slices = [first], TimeSlices()
    if schedule.recurring:
        for moment in fires(schedule, first):
            if len(moments) >= count:
                break
            moments.append(moment)
            if slices.over:
                await slices.pause()
    return moments[:count]
