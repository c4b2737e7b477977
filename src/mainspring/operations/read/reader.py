"""Reading what is and what was: one job, lists of jobs and runs, queues, workers, dead letters, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.errors import NotFound
from mainspring.domain.schedules.schedule import Schedule, fires, next_fire
from mainspring.domain.transitions import RunState, StoredJobStatus, StoredState
from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import lane_at_hand, own_run
from mainspring.operations.read.cursors import encode_cursor, job_cursor, run_cursor
from mainspring.operations.read.search import DeadLetterQuery, JobQuery, RunQuery, job_statuses, run_states
from mainspring.operations.read.timeline import life_of, tries_of, workers_in
from mainspring.operations.read.views import (
    dead_letter_view,
    fired_job_view,
    job_view,
    run_view,
    worker_view,
)
from mainspring.operations.read.why import A_MOMENT, lacking, left_waiting, sentence
from mainspring.store import dead_letters, history, jobs, workers
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.store.history import RunFilter
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pages import cut
from mainspring.store.pool import Connection, Record, Store
from mainspring.store.workers import WorkerState
from mainspring.wire.jobs import JobList, JobView, MissedRange, Upcoming
from mainspring.wire.runs import (
    DeadLetterList,
    DeadLetterView,
    JobStatus,
    QueueList,
    QueueView,
    RunList,
    RunView,
    TimelineEntry,
    Why,
    WorkerList,
)

_YET_TO_FIRE = [int(StoredJobStatus.SCHEDULED), int(StoredJobStatus.PAUSED)]


class Standing(msgspec.Struct, frozen=True):
    """How things stand: for the metrics."""

    queues: list[QueueView]
    workers: dict[str, int]
    slots: int
    dead_letters: int


class Reader:
    def __init__(self, store: Store, lanes: LaneRegistry) -> None:
        self._store = store
        self._lanes = lanes

    # --- jobs

    async def job(self, caller: Caller, job_id: str) -> JobView:
        """A job wherever it lies: in jobs, in runs, or in the history."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            row = await jobs.get(connection, tenant, job_id)
            if row is not None:
                return job_view(row, await self._lane(connection, row))
            fired = await own_run(connection, tenant, job_id)
            if fired is None:
                newest = await history.runs_of_job(connection, tenant, job_id, None, 1)
                if not newest:
                    raise _no_job(job_id)
                fired = newest[0]
            return fired_job_view(fired, await self._lane(connection, fired))

    async def jobs(self, caller: Caller, query: JobQuery) -> JobList:
        tenant = caller.tenant
        lane_ids = await self._lane_ids(tenant, query.queue, None)
        before = job_cursor(query.cursor)
        async with self._store.reads.acquire() as connection:
            rows = await jobs.list_jobs(
                connection,
                tenant,
                before=before,
                statuses=job_statuses(query.statuses) or _YET_TO_FIRE,
                lane_ids=lane_ids,
                owner=query.owner,
                label=query.label,
                text=query.text,
                limit=query.limit + 1,
            )
        page, more = cut(rows, query.limit)
        following = None
        if more:
            last = page[-1]
            following = encode_cursor(f"{last['created_at'].isoformat()} {last['job_id']}")
        return JobList([job_view(row, await self._lanes.get(row["lane_id"])) for row in page], following)

    async def status(self, caller: Caller, job_id: str) -> JobStatus:
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            found = await history.runs_of_job(connection, tenant, job_id, None, 1)
            own = await own_run(connection, tenant, job_id)
            if own is not None:
                found.append(own)
            newest = max(found, key=lambda row: row["scheduled_for"], default=None)
            latest = None if newest is None else await self._run_view(connection, tenant, newest)
        view = await self.job(caller, job_id)
        return JobStatus(job_id, view.status, latest)

    async def runs_of_job(self, caller: Caller, job_id: str, cursor: str | None, limit: int) -> RunList:
        tenant = caller.tenant
        before = run_cursor(cursor)
        async with self._store.reads.acquire() as connection, _one_look(connection):
            rows = await self._newest_runs(connection, tenant, job_id, before, limit + 1)
            if not rows and before is None and await jobs.get(connection, tenant, job_id) is None:
                raise _no_job(job_id)
            return await self._run_list(connection, tenant, rows, limit)

    async def upcoming(self, caller: Caller, job_id: str, count: int) -> Upcoming:
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            row = await jobs.get(connection, tenant, job_id)
            now: datetime = await connection.fetchval("select clock_timestamp()")
        if row is None:
            await self.job(caller, job_id)  # a one-time job that has fired has nothing ahead; others are 404
            return Upcoming(job_id, [])
        schedule = jobs.schedule_from_text(row["schedule_text"])
        first: datetime | None = row["next_fire_at"]
        if first is None and row["paused_from"] is not None:
            # Paused: what would fire if it were resumed now, so not the fires that the pause has passed over.
            late = schedule.recurring and row["paused_from"] <= now
            first = next_fire(schedule, now) if late else row["paused_from"]
        return Upcoming(job_id, _ahead(schedule, first, count))

    async def missed(self, caller: Caller, job_id: str, limit: int) -> list[MissedRange]:
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            rows = await jobs.list_missed(connection, tenant, job_id, limit)
        if not rows:
            await self.job(caller, job_id)
        return [
            MissedRange(row["first_at"], row["last_at"], row["count"], row["reason"], row["recorded_at"])
            for row in rows
        ]

    # --- runs

    async def run(self, caller: Caller, run_id: UUID) -> RunView:
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            row = await self._run_row(connection, tenant, run_id)
            return await self._run_view(connection, tenant, row)

    async def runs(self, caller: Caller, query: RunQuery) -> RunList:
        tenant = caller.tenant
        live, ended, backing_off = run_states(query.statuses)
        chosen = RunFilter(
            job_id=query.job,
            lane_ids=await self._lane_ids(tenant, query.queue, query.task),
            live_states=live,
            ended_states=ended,
            backing_off=backing_off,
            error=query.error,
            since=query.since,
            until=query.until,
        )
        before = run_cursor(query.cursor)
        asked = [chosen]
        if query.job is not None and (own := parse_uuid(query.job)) is not None:
            asked.append(msgspec.structs.replace(chosen, job_id=None, own=own))
        rows: list[Record] = []
        async with self._store.reads.acquire() as connection, _one_look(connection):
            for one in asked:
                if live is None or live:
                    rows += await history.live_runs(connection, tenant, one, before, query.limit + 1)
                if ended is None or ended:
                    rows += await history.ended_runs(connection, tenant, one, before, query.limit + 1)
            rows = history.newest_first(rows, query.limit + 1)
            return await self._run_list(connection, tenant, rows, query.limit)

    async def why(self, caller: Caller, run_id: UUID) -> Why:
        """One sentence on why a run is not running, or what became of it."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            row = await self._run_row(connection, tenant, run_id)
            view = await self._run_view(connection, tenant, row)
            ahead = 0
            if view.status == RunState.QUEUED:
                ahead = await history.ahead_of(connection, row["lane_id"], row["ready_at"])
        return Why(view.run_id, view.status, sentence(view, ahead, row.get("deadline")))

    async def timeline(self, caller: Caller, run_id: UUID) -> list[TimelineEntry]:
        """Every state of a run with its time, attempt, node, worker and reason, in order."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            row = await self._run_row(connection, tenant, run_id)
            tries = await history.attempts_of(connection, run_id)
            names = await history.worker_names(connection, workers_in(tries, row))
            replay_id = await dead_letters.replay_of(connection, tenant, run_id)
        return life_of(row, tries, names, replay_id)

    # --- queues, workers, dead letters

    async def queues(self, caller: Caller) -> QueueList:
        tenant = caller.tenant
        await self._lanes.refresh()
        async with self._store.reads.acquire() as connection:
            depths = {row["lane_id"]: row for row in await history.queue_depths(connection, tenant)}
            ended = await history.ended_last_minute(connection, tenant)
            offers = await workers.offers_by_queue(connection, tenant)
        grouped = self._lanes.queues(tenant)
        for queue in offers:
            grouped.setdefault(queue, [])
        return QueueList(
            [_queue_view(name, lanes, depths, ended, offers.get(name, 0)) for name, lanes in sorted(grouped.items())]
        )

    async def standing(self, caller: Caller) -> Standing:
        tenant = caller.tenant
        queues = await self.queues(caller)
        async with self._store.reads.acquire() as connection:
            counts = await workers.counts(connection, tenant)
            dead = await dead_letters.count(connection, tenant)
        return Standing(
            queues.queues,
            {WorkerState(row["state"]).name: row["count"] for row in counts},
            sum(row["slots"] for row in counts if row["state"] in (WorkerState.LIVE, WorkerState.DRAINING)),
            dead,
        )

    async def queue(self, caller: Caller, name: str) -> QueueView:
        for view in (await self.queues(caller)).queues:
            if view.name == name:
                return view
        raise NotFound(f"there is no queue {name!r}", hint="a queue comes to be with its first job or worker")

    async def workers(self, caller: Caller) -> WorkerList:
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            return WorkerList([worker_view(row) for row in await workers.list_workers(connection, tenant)])

    async def dead_letters(self, caller: Caller, query: DeadLetterQuery) -> DeadLetterList:
        tenant = caller.tenant
        chosen = await self.letter_filter(tenant, query)
        before, limit = run_cursor(query.cursor), query.limit
        async with self._store.reads.acquire() as connection:
            page, more = cut(await dead_letters.page(connection, tenant, chosen, before, limit + 1), limit)
            views = [dead_letter_view(row, await self._lane(connection, row)) for row in page]
        return DeadLetterList(views, encode_cursor(str(page[-1]["run_id"])) if more else None)

    async def dead_letter(self, caller: Caller, run_id: UUID) -> DeadLetterView:
        """One dead letter, with every try's error as far as the history goes back."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            row = await dead_letters.get(connection, tenant, run_id)
            if row is None:
                raise NotFound(f"there is no dead letter {run_id}", hint="see GET /v1/dead-letters")
            tries = await history.attempts_of(connection, run_id)
            ended = await history.ended_run(connection, tenant, run_id)
            names = await history.worker_names(connection, workers_in(tries, ended))
            lane = await self._lane(connection, row)
        return dead_letter_view(row, lane, tries_of(tries, ended, names))

    async def letter_filter(self, tenant: TenantId, query: DeadLetterQuery) -> DeadLetterFilter:
        lane_ids = await self._lane_ids(tenant, query.queue, query.task)
        return DeadLetterFilter(query.job, lane_ids, query.error, query.since, query.until)

    # --- inside

    async def _run_row(self, connection: Connection, tenant: TenantId, run_id: UUID) -> Record:
        row = await history.live_run(connection, tenant, run_id) or await history.ended_run(connection, tenant, run_id)
        # It may have ended between the two looks, but never the other way round.
        if row is None:
            raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
        return row

    async def _newest_runs(
        self, connection: Connection, tenant: TenantId, job_id: str, before: UUID | None, limit: int
    ) -> list[Record]:
        """Runs of a job, newest first; a one-time job with an id of ours is a run itself, beside those by hand."""
        rows = await history.runs_of_job(connection, tenant, job_id, before, limit)
        own = await own_run(connection, tenant, job_id)
        if own is not None and (before is None or own["run_id"] < before):
            rows.append(own)
        return history.newest_first(rows, limit)

    async def _run_view(self, connection: Connection, tenant: TenantId, row: Record) -> RunView:
        lane = await self._lane(connection, row)
        if not _is_queued(row):
            return run_view(row, lane)
        missing = lacking(lane, await workers.offers(connection, tenant))
        waited = (row["now"] - row["ready_at"]).total_seconds()
        if missing is None and waited >= A_MOMENT:  # until then there is nothing to ask: most are fetched at once
            takers = await workers.takers(connection, tenant, lane.queue, lane.task)
            missing = left_waiting(lane, takers, waited)
        return run_view(row, lane, lacking=missing)

    async def _run_list(self, connection: Connection, tenant: TenantId, rows: list[Record], limit: int) -> RunList:
        page, more = cut(rows, limit)
        waiting = {row["lane_id"] for row in page if _is_queued(row)}
        offers = await workers.offers(connection, tenant) if waiting else []
        # Once a lane: where 10,000 workers have labels of their own, a look at all of them takes up to 16 ms.
        missing = {lane_id: lacking(await self._lane_of(connection, lane_id), offers) for lane_id in waiting}
        views = []
        for row in page:
            lane = await self._lane(connection, row)
            views.append(run_view(row, lane, lacking=missing.get(row["lane_id"])))
        return RunList(views, encode_cursor(str(page[-1]["run_id"])) if more else None)

    async def _lane(self, connection: Connection, row: Record) -> Lane:
        return await self._lane_of(connection, row["lane_id"])

    async def _lane_of(self, connection: Connection, lane_id: int) -> Lane:
        return await lane_at_hand(self._lanes, connection, lane_id)

    async def _lane_ids(self, tenant: TenantId, queue: str | None, task: str | None) -> list[int] | None:
        if queue is None and task is None:
            return None
        await self._lanes.refresh()
        sets = []
        if queue is not None:
            sets.append(set(self._lanes.of_queue(tenant, queue)))
        if task is not None:
            sets.append(set(self._lanes.of_task(tenant, task)))
        return sorted(set.intersection(*sets))


def _is_queued(row: Record) -> bool:
    return "ended_at" not in row and row["state"] == StoredState.QUEUED


def _one_look(connection: Connection) -> Any:
    """Live and ended runs as of one moment: a run is among the one or the other."""
    return connection.transaction(isolation="repeatable_read", readonly=True)


def _ahead(schedule: Schedule, first: datetime | None, count: int) -> list[datetime]:
    if first is None:
        return []
    moments = [first]
    if schedule.recurring:
        for moment in fires(schedule, first):
            if len(moments) >= count:
                break
            moments.append(moment)
    return moments[:count]


def _queue_view(
    name: str, lanes: Sequence[int], depths: dict[int, Record], ended: dict[int, int], offering: int
) -> QueueView:
    rows = [depths[lane] for lane in lanes if lane in depths]
    ages = [row["oldest"] for row in rows if row["oldest"] is not None]
    return QueueView(
        name=name,
        depth=sum(row["depth"] for row in rows),
        scheduled=sum(row["scheduled"] for row in rows),
        running=sum(row["running"] for row in rows),
        oldest_seconds=max(ages) if ages else None,
        rate=round(sum(ended.get(lane, 0) for lane in lanes) / 60, 3),
        workers=offering,
    )


def _no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id!r}", hint="see GET /v1/jobs")
