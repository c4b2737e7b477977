"""Reads jobs: one, lists of them, their status, upcoming fires and missed fires."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from mainspring.domain.health import named_health
from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.nominal_times import first_fire
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.state_names import named_schedule_types, named_states, named_statuses
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.kernel.ids import TenantId
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.lookup import chosen_lanes, labels_within, load_lane, no_job
from mainspring.operations.paging.cursors import encode_cursor, encode_place, job_cursor, missed_cursor
from mainspring.operations.paging.search import JobQuery, searching
from mainspring.operations.read.job_health import add_health
from mainspring.operations.read.job_pages import (
    JobsThatFired,
    JobsWithRows,
    PageStretch,
    Wanted,
    gather,
    merge,
    row_place,
    run_place,
    status_of_missed,
    time_of,
    was_missed,
)
from mainspring.operations.read.list_rows import job_row
from mainspring.operations.read.missed_pages import MissedFilter, find_missed
from mainspring.operations.read.one_time import deciding_run, fired_job
from mainspring.operations.read.quota_hold import show_quota_holds
from mainspring.operations.read.runs import ONE_SNAPSHOT, RunReader
from mainspring.operations.read.views import fired_job_view, job_view
from mainspring.store import backfills, file_objects, history, jobs, missed_fires
from mainspring.store.fired_jobs import brief_of
from mainspring.store.history import Run
from mainspring.store.jobs import JobFilter, JobRow
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.store.shown_definitions import schedule_to_show
from mainspring.wire.file_owner import FileOwner
from mainspring.wire.jobs import JobList, JobRows, JobView, Upcoming
from mainspring.wire.missed_fires import MissedFires, MissedList, MissedRange
from mainspring.wire.runs import JobStatus

_BUDGET = 0.2  # seconds for a page of jobs
_ONCE = (ScheduleKind.NOW.value, ScheduleKind.AT.value)  # no file has such a job
_BACKFILLS = 100  # of which a range of missed fires names those that cover it


class JobReader:
    """`budget` and `first_stretch`: how long a page may take, and how many jobs and runs it reads first. None: twice
    as many as it shows."""

    budget = _BUDGET
    first_stretch: int | None = None

    def __init__(self, store: Store, lanes: LaneRegistry, runs: RunReader) -> None:
        self._store = store
        self._lanes = lanes
        self._runs = runs

    async def job(self, caller: Caller, job_id: str, generation: int | None = None) -> JobView:
        """A job from any of the tables: jobs, runs or the history. The newest generation, or the given one."""
        async with self._store.reads.acquire() as connection:
            view, _ = await self._load(connection, caller.tenant, job_id, generation)
            await show_quota_holds(connection, caller.tenant, [view.latest_run] if view.latest_run else [])
            await add_health(connection, caller.tenant, [view])
            if view.schedule_type not in _ONCE:
                view.owned_by = await _file_owner(connection, caller.tenant, view)
            return view

    async def _row(
        self, connection: Connection, tenant: TenantId, job_id: str, generation: int | None
    ) -> JobRow | None:
        """The jobs row of a generation, present or past."""
        row = await jobs.get(connection, tenant, job_id)
        if generation is None or (row is not None and row.generation == generation):
            return row
        return await jobs.past(connection, tenant, job_id, generation)

    async def rows(self, caller: Caller, query: JobQuery) -> JobRows:
        """The jobs that `jobs` returns, without payloads."""
        found = await self.jobs(caller, query, light=True)
        return JobRows([job_row(view) for view in found.jobs], found.next, found.searched_to)

    async def jobs(self, caller: Caller, query: JobQuery, *, light: bool = False) -> JobList:
        """Newest first. `light`: payloads are not read."""
        tenant = caller.tenant
        wanted = await wanted_jobs(self._lanes, caller, query)
        after = job_cursor(query.cursor)
        limit, first = query.limit, self.first_stretch or 2 * query.limit + 50
        async with searching(self._store, tenant, "jobs", query, ONE_SNAPSHOT) as connection:
            budget = TimeSlices(self.budget)
            sources = (
                JobsWithRows(connection, tenant, self._lanes, wanted, light=light),
                JobsThatFired(connection, tenant, self._lanes, wanted, light=light),
            )
            rows = await gather(sources[0], wanted, row_place(after), limit, lambda: budget.over, first)
            fired = PageStretch[UUID]([], None)
            if sources[1].any:
                fired = await gather(sources[1], wanted, run_place(after), limit, lambda: budget.over, first)
        views, following = merge(rows, fired, limit)
        if following is None:
            return JobList(views)
        short = len(views) < limit
        return JobList(views, encode_place(following), time_of(following) if short else None)

    async def status(self, caller: Caller, job_id: str) -> JobStatus:
        """The status of a job, and its latest run."""
        async with self._store.reads.acquire() as connection:
            view, latest = await self._load(connection, caller.tenant, job_id)
            shown = None if latest is None else await self._runs.view(caller, connection, latest)
        return JobStatus(job_id, view.status, shown, view.error_message)

    async def _load(
        self, connection: Connection, tenant: TenantId, job_id: str, generation: int | None = None
    ) -> tuple[JobView, Run | None]:
        """A job and its latest run."""
        row = await self._row(connection, tenant, job_id, generation)
        if row is None:
            fired = await fired_job(connection, tenant, job_id, generation)
            if fired is not None:
                lane = await load_lane(self._lanes, connection, fired.fired.lane_id)
                return fired_job_view(fired, lane), fired.deciding
            row = await self._row(connection, tenant, job_id, generation)  # it may have been created anew meanwhile
            if row is None:
                raise no_job(job_id, generation)
        status, latest = None, None
        if was_missed(row):
            latest = await deciding_run(connection, tenant, job_id, None, row.generation)
            status = status_of_missed(latest)
        elif newest := await history.runs_of_job(connection, tenant, job_id, None, 1):
            latest = newest[0] if newest[0].generation == row.generation else None
        lane = await load_lane(self._lanes, connection, row.lane_id)
        return job_view(row, lane, None if latest is None else brief_of(latest), status), latest

    async def upcoming(self, caller: Caller, job_id: str, count: int) -> Upcoming:
        """The next fires of a job."""
        async with self._store.reads.acquire() as connection:
            row = await jobs.get(connection, caller.tenant, job_id)
            now: datetime = await connection.fetchval("select clock_timestamp()")
            schedule = None if row is None else schedule_to_show(row.schedule_text)[0]
            if schedule is not None:
                await load_rules(connection, caller.tenant, [schedule])
        if row is None or schedule is None:
            await self.job(caller, job_id)  # a one-time job that has fired has no upcoming fires; other ids are 404
            return Upcoming(job_id, [])
        first = row.next_fire_at
        if first is None and row.paused_from is not None:
            # A paused job: the fires that would follow if it were resumed now, without those that were missed.
            late = schedule.recurring and row.paused_from <= now
            first = first_fire(schedule, now, row.dealt_with) if late else row.paused_from
        count = count if row.runs_left is None else min(count, row.runs_left)
        return Upcoming(job_id, await _ahead(schedule, first, count))

    async def missed_of_all(
        self, caller: Caller, job: str | None, reason: str | None, cursor: str | None, limit: int,
        text: str | None = None,
    ) -> MissedList:  # fmt: skip
        """The fires that jobs of the tenant missed, newest first. `text`: a part of the name or the id of the job."""
        asked, before = MissedFilter(job, reason, text), missed_cursor(cursor)
        first = self.first_stretch or 2 * limit + 50
        async with searching(self._store, caller.tenant, "missed fires") as connection:
            budget = TimeSlices(self.budget)
            found = await find_missed(connection, caller.tenant, asked, before, limit + 1, lambda: budget.over, first)
        rows = found.ranges
        page = [
            MissedFires(
                row.job_id, row.name or row.job_id, row.first_at, row.last_at, row.count, row.reason, row.recorded_at,
                row.generation, [str(one) for one in row.backfills],
            )
            for row in rows[:limit]
        ]  # fmt: skip
        if len(rows) > limit:
            return MissedList(page, encode_cursor(str(rows[limit - 1].missed_id)))
        if found.reached is not None:
            return MissedList(page, encode_cursor(str(found.reached.missed_id)), found.reached.recorded_at)
        return MissedList(page)

    async def missed(self, caller: Caller, job_id: str, limit: int) -> list[MissedRange]:
        """The fires that a job missed, newest first."""
        async with searching(self._store, caller.tenant, "missed fires") as connection:
            rows = await missed_fires.of_job(connection, caller.tenant, job_id, limit)
            made_up = await backfills.covered(connection, caller.tenant, job_id, _BACKFILLS) if rows else []
        if not rows:
            await self.job(caller, job_id)
        return [
            MissedRange(
                row.first_at,
                row.last_at,
                row.count,
                row.reason,
                row.recorded_at,
                row.generation,
                [
                    str(one.backfill_id)
                    for one in made_up
                    if one.generation == row.generation and one.from_at <= row.last_at and one.to_at > row.first_at
                ],
            )
            for row in rows
        ]


async def _file_owner(connection: Connection, tenant: TenantId, view: JobView) -> FileOwner | None:
    """The files that own the job."""
    kind = "jobs" if view.workflow_version is None else "workflows"
    row = await file_objects.get(connection, tenant, kind, view.job_id)
    if row is None or row.generation != view.generation:
        return None
    return FileOwner(row.owner, row.source, row.applied_at, row.applied_by, row.version != view.version)


async def wanted_jobs(lanes: LaneRegistry, caller: Caller, query: JobQuery) -> Wanted:
    """Which jobs a query asks for."""
    statuses, latest = named_statuses(query.statuses), named_states(query.latest, "latest_run")
    return Wanted(
        statuses=frozenset(statuses) or None,
        latest=latest or None,
        schedule_types=frozenset(named_schedule_types(query.schedule_types)) or None,
        asked=JobFilter(
            lane_ids=await chosen_lanes(lanes, caller, query.queue, query.task),
            within=labels_within(caller),
            owner=query.owner,
            label=query.label,
            text=query.text,
            created_after=query.created_after,
            created_before=query.created_before,
            next_fire_after=query.next_fire_after,
            next_fire_before=query.next_fire_before,
            declared_by=query.declared_by,
            created_by=query.created_by,
            workflows=query.task == WORKFLOW_TASK,
            health=named_health(query.health) or None,
        ),
    )


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
