"""Reads runs, live and ended: one, lists of them, a timeline, and why a run is not running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from mainspring.domain.errors import Forbidden, NotFound
from mainspring.domain.job import spec_from_text
from mainspring.domain.transitions import RunState, StoredState
from mainspring.domain.workflows.flow import SERVER_TASKS, WAIT_TASK
from mainspring.kernel.ids import TenantId, parse_uuid, uuid7_time
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import chosen_lanes, labels_within, load_lane, no_job, own_run
from mainspring.operations.object_guard import reaches
from mainspring.operations.paging.cursors import encode_cursor, run_cursor
from mainspring.operations.paging.search import RunQuery, run_states, searching
from mainspring.operations.read.list_rows import run_rows
from mainspring.operations.read.one_time import fired_job
from mainspring.operations.read.quota_hold import quota_hold, quota_hold_in_filter, read_quota_hold, show_held
from mainspring.operations.read.run_pages import FoundPage, find_rare_runs, find_runs, is_sparse, spans_with_ends
from mainspring.operations.read.timeline import began_to_wait, timeline_of, timeline_of_wait, workers_in
from mainspring.operations.read.views import RunFacts, fired_late, run_view
from mainspring.operations.read.why import (
    A_MOMENT,
    held_by_quota,
    held_sentence,
    kept_back,
    left_waiting,
    of_backfill,
    sentence,
    unready,
    waits_sentence,
)
from mainspring.store import dead_letters, dependencies, fired_jobs, gates, history, jobs, limit_reads, workers
from mainspring.store import waits as open_waits
from mainspring.store.dependencies import WaitRow
from mainspring.store.history import LiveRun, Run, RunFilter
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pages import cut
from mainspring.store.pool import Connection, Store
from mainspring.wire.jobs import RunNowAccepted
from mainspring.wire.runs import RunList, RunRows, RunView, TimelineEntry, Why

_SHOWN_HOLDERS = 3
_BUDGET = 0.2  # seconds for a page of runs
_RARE_BUDGET = 0.5
_WAITS = "It waits for the runs that it depends on."
ONE_SNAPSHOT = "repeatable_read"  # for live and ended runs: a run is in exactly one of both tables


class StepReader(Protocol):
    """Reads what workflows know about a run."""

    async def why_waiting(self, connection: Connection, run: LiveRun, /) -> str:
        """One sentence on what a WAITING run waits for."""

    async def member_index(self, connection: Connection, run: Run, /) -> int | None:
        """The index of a member of a mapped step. None for other runs."""


class RunReader:
    """`budget` is how long a search may take. `first_stretch` is how many runs it reads first; None means twice as many
    as it shows. `rare_budget` is how long it may read the hours in which runs of a rare task ended."""

    budget = _BUDGET
    rare_budget = _RARE_BUDGET
    first_stretch: int | None = None

    def __init__(self, store: Store, lanes: LaneRegistry, steps: StepReader | None = None) -> None:
        self._store = store
        self._lanes = lanes
        self._steps = steps

    async def run(self, caller: Caller, run_id: UUID) -> RunView:
        async with self._store.reads.acquire() as connection:
            run = await _find(connection, caller.tenant, run_id)
            view = await self.view(caller, connection, run)
            view.index = None if self._steps is None else await self._steps.member_index(connection, run)
            return view

    async def accepted(self, caller: Caller, job_id: str, run_id: UUID) -> RunNowAccepted:
        """A run that was created by run-now, now or earlier."""
        async with self._store.reads.acquire() as connection:
            run = await history.find_run(connection, caller.tenant, run_id)
            if run is None:
                return RunNowAccepted(str(run_id), job_id, reason="the run is no longer in the history")
            view = await self.view(caller, connection, run)
        parents = spec_from_text(run.spec_text).depends_on or []
        return RunNowAccepted(view.run_id, job_id, view.status, view.reason, view.replay_of, parents)

    async def rows(self, caller: Caller, query: RunQuery) -> RunRows:
        """The runs that `runs` returns, without payloads and results."""
        return run_rows(await self.runs(caller, query, light=True))

    async def runs(self, caller: Caller, query: RunQuery, *, light: bool = False) -> RunList:
        """The runs of a query, newest first. With `light`, payloads and results are not read."""
        tenant = caller.tenant
        asked, hold = await wanted_runs(self._store, self._lanes, caller, query)
        before = run_cursor(query.cursor)
        first = self.first_stretch or 2 * query.limit + 50
        async with searching(self._store, tenant, "runs", query, ONE_SNAPSHOT) as connection:
            found = await self._find_rare(connection, tenant, query, asked, before, light=light)
            if found is None:
                budget = TimeSlices(self.budget)
                found = await find_runs(
                    connection, tenant, asked, before, query.limit + 1, lambda: budget.over, first, light=light
                )
            page = await self._page(connection, tenant, found.runs, query.limit, hold if query.statuses else UNSET)
        if page.next is None and found.reached is not None:
            page.next, page.searched_to = encode_cursor(str(found.reached)), uuid7_time(found.reached)
        return page

    async def _find_rare(
        self,
        connection: Connection,
        tenant: TenantId,
        query: RunQuery,
        asked: Sequence[RunFilter],
        before: UUID | None,
        *,
        light: bool,
    ) -> FoundPage | None:
        """The runs of a task or a queue that has few, if the rollups tell when they ended."""
        if (query.task is None and query.queue is None) or not all(map(is_sparse, asked)):
            return None
        ends = await spans_with_ends(connection, tenant, query.task, query.queue)
        if ends is None:
            return None
        budget, most = TimeSlices(self.rare_budget), query.limit + 1
        return await find_rare_runs(connection, tenant, asked, before, most, lambda: budget.over, ends, light=light)

    async def rows_of_job(
        self, caller: Caller, job_id: str, cursor: str | None, limit: int, generation: int | None = None
    ) -> RunRows:
        """The runs that `runs_of_job` returns, without payloads and results."""
        return run_rows(await self.runs_of_job(caller, job_id, cursor, limit, generation, light=True))

    async def runs_of_job(
        self,
        caller: Caller,
        job_id: str,
        cursor: str | None,
        limit: int,
        generation: int | None = None,
        *,
        light: bool = False,
    ) -> RunList:
        """The runs of a job, of all generations or of one, newest first. A one-time job with a generated id is itself a
        run, in addition to its manual runs."""
        tenant, before = caller.tenant, run_cursor(cursor)
        async with searching(self._store, tenant, "runs of a job", isolation=ONE_SNAPSHOT) as connection:
            found = await history.runs_of_job(connection, tenant, job_id, before, limit + 1, generation, light=light)
            own = await own_run(connection, tenant, job_id) if generation in (None, 1) else None
            if own is not None and (before is None or own.run_id < before):
                found = history.newest_first([*found, own], limit + 1)
            if not found and before is None:
                await self._check_job(connection, tenant, job_id)
            page = await self._page(connection, tenant, found, limit)
            if not caller.reaches_all:  # the job may have been in another queue before
                seen = {str(run.run_id) for run in found if await reaches(self._lanes, connection, caller, run)}
                page.runs = [view for view in page.runs if view.run_id in seen]
            return page

    async def _check_job(self, connection: Connection, tenant: TenantId, job_id: str) -> None:
        """Raise NotFound if there is no such job."""
        if await jobs.get(connection, tenant, job_id) is None and await fired_job(connection, tenant, job_id) is None:
            raise no_job(job_id)

    async def why(self, caller: Caller, run_id: UUID) -> Why:
        """One sentence on why a run is not running, or how it ended."""
        async with self._store.reads.acquire() as connection:
            run = await _find(connection, caller.tenant, run_id)
            view = await self.view(caller, connection, run)
            if not isinstance(run, LiveRun):
                return Why(view.run_id, view.status, sentence(view, 0) + of_backfill(view))
            if view.status == RunState.HELD and run.held_key is not None:
                held = await self._why_held(connection, caller.tenant, run, run.held_key)
                return Why(view.run_id, view.status, held + of_backfill(view))
            if run.state == StoredState.WAITING:
                if waits := await dependencies.waits_of(connection, [run_id]):
                    return Why(view.run_id, view.status, waits_sentence(waits))
                reason = _WAITS if self._steps is None else await self._steps.why_waiting(connection, run)
                return Why(view.run_id, view.status, reason)
            ahead = 0
            if _is_queued(run) and view.status == RunState.QUEUED:
                ahead = await history.ahead_of(connection, run.lane_id, run.ready_at)
        words = sentence(view, ahead, run.deadline, run.expires_at) + of_backfill(view)
        return Why(view.run_id, view.status, words)

    async def _why_held(self, connection: Connection, tenant: TenantId, run: LiveRun, line_id: int) -> str:
        line = (await limit_reads.lines_by_id(connection, [line_id])).get(line_id)
        owners = await limit_reads.holders(connection, tenant, [line_id], _SHOWN_HOLDERS)
        named = [
            (owner, owner.name or owner.job_id or (await load_lane(self._lanes, connection, owner.lane_id)).task)
            for owner in owners
        ]
        ahead = await limit_reads.ahead_in_line(connection, run.run_id)
        return held_sentence(line, named, ahead, run.expires_at)

    async def timeline(self, caller: Caller, run_id: UUID) -> list[TimelineEntry]:
        """Every state of a run with its time, attempt, node, worker and reason, in order."""
        async with self._store.reads.acquire() as connection:
            run = await _find(connection, caller.tenant, run_id)
            attempts = await history.attempts_of(connection, run_id)
            names = await history.worker_names(connection, workers_in(attempts, run))
            replay_id = await dead_letters.replay_of(connection, caller.tenant, run_id)
            lane = await load_lane(self._lanes, connection, run.lane_id)
            waits = lane.task == WAIT_TASK
            looks = waits or (isinstance(run, LiveRun) and run.state == StoredState.WAITING)
            wait = (await open_waits.of_runs(connection, [run_id])).get(run_id) if looks else None
            hold = await read_quota_hold(connection, caller.tenant) if _has_gates(run, lane) else None
        if waits:
            return timeline_of_wait(run, wait)
        entries = timeline_of(run, attempts, names, replay_id, hold)
        return entries if wait is None else [*entries, began_to_wait(wait)]

    async def view(self, caller: Caller, connection: Connection, run: Run) -> RunView:
        """A run as clients see it. For a queued run, the view includes what it waits for."""
        lane = await load_lane(self._lanes, connection, run.lane_id)
        facts = await _facts(connection, caller.tenant, [run])
        if not _is_queued(run):
            return run_view(run, lane, facts=facts, samples=True)
        known = await gates.of_tenant(connection, caller.tenant)
        offers = await workers.offers(connection, caller.tenant)
        if _has_gates(run, lane) and (hold := quota_hold(known)) is not None:
            view = run_view(run, lane, facts=facts)
            show_held([view], held_by_quota(hold, unready(lane, offers, known)))
            return view
        missing = kept_back(lane, offers, known)
        waited = (run.now - run.ready_at).total_seconds()
        # Most runs are fetched at once, so the query starts after a moment.
        if missing is None and waited >= A_MOMENT:
            takers = await workers.takers(connection, caller.tenant, lane.queue, lane.task)
            missing = left_waiting(lane, takers, waited)
        return run_view(run, lane, lacking=missing, facts=facts)

    async def _page(
        self,
        connection: Connection,
        tenant: TenantId,
        found: Sequence[Run],
        limit: int,
        hold: str | UnsetType | None = UNSET,
    ) -> RunList:
        """`hold`: that of a filter, which must not differ from what is shown. UNSET to read it."""
        page, more = cut(found, limit)
        lanes = {
            lane_id: await load_lane(self._lanes, connection, lane_id) for lane_id in {run.lane_id for run in page}
        }
        waiting = {run.lane_id for run in page if _is_queued(run)}
        offers = await workers.offers(connection, tenant) if waiting else []
        known = await gates.of_tenant(connection, tenant) if waiting else []
        # Once per lane: with 10,000 workers that have different labels, the check takes up to 16 ms.
        missing = {lane_id: kept_back(lanes[lane_id], offers, known) for lane_id in waiting}
        facts = await _facts(connection, tenant, page)
        views = [run_view(run, lanes[run.lane_id], lacking=missing.get(run.lane_id), facts=facts) for run in page]
        held = quota_hold(known) if hold is UNSET else hold
        if held is not None:
            besides = {lane_id: unready(lanes[lane_id], offers, known) for lane_id in waiting}
            for run, view in zip(page, views, strict=True):
                if _has_gates(run, lanes[run.lane_id]):
                    show_held([view], held_by_quota(held, besides.get(run.lane_id)))
        return RunList(views, encode_cursor(str(page[-1].run_id)) if more else None)


async def wanted_runs(
    store: Store, lanes: LaneRegistry, caller: Caller, query: RunQuery
) -> tuple[list[RunFilter], str | None]:
    """Which runs a query asks for, and the quota that holds them if it asks for HELD or QUEUED ones. The run that is
    itself a job has a filter of its own. Raises Forbidden if the token does not see payloads, and the query names
    values of theirs."""
    if query.payload and caller.narrowing is not None and not caller.narrowing.payloads:
        raise Forbidden(
            "this token does not see payloads, and cannot search by them", code="narrowed_token", field="payload",
            hint="leave the payload out, or use another token",
        )  # fmt: skip
    hold = await quota_hold_in_filter(store, caller.tenant, query.statuses)
    live, ended = run_states(query.statuses, quota_holds=hold is not None)
    chosen = RunFilter(
        job_id=query.job,
        lane_ids=await chosen_lanes(lanes, caller, query.queue, query.task),
        within=labels_within(caller),
        live_states=live,
        ended_states=ended,
        error=query.error,
        since=query.due_from,
        until=query.due_until,
        created_after=query.created_after,
        created_before=query.created_before,
        label=query.label,
        payload=query.payload,
        generation=query.generation,
        worker_id=query.worker_id,
        created_by=query.created_by,
    )
    if query.job is not None and (own := parse_uuid(query.job)) is not None:
        return [chosen, msgspec.structs.replace(chosen, job_id=None, own=own)], hold
    return [chosen], hold


async def _find(connection: Connection, tenant: TenantId, run_id: UUID) -> Run:
    run = await history.find_run(connection, tenant, run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
    return run


async def _facts(connection: Connection, tenant: TenantId, runs: Sequence[Run]) -> RunFacts:
    """The facts that are shown about these runs and are not in their rows."""
    executors = sorted({run.worker_id for run in runs if run.worker_id is not None})
    under_way = sorted({run.worker_id for run in runs if _has_started(run) and run.worker_id is not None})
    backing_off = [run.run_id for run in runs if _waits(run) and run.ready_at > run.now]
    waiting = [run.run_id for run in runs if isinstance(run, LiveRun) and run.state == StoredState.WAITING]
    lines = sorted({run.held_key for run in runs if isinstance(run, LiveRun) and run.held_key is not None})
    late = sorted({run.job_id for run in runs if run.job_id is not None and fired_late(run)})
    taken = await fired_jobs.taken_ids(connection, tenant, late) if late else {}
    return RunFacts(
        heard=await workers.last_beats(connection, under_way) if under_way else {},
        names=await history.worker_names(connection, executors) if executors else {},
        ends=await history.last_attempts(connection, backing_off) if backing_off else {},
        lines=await limit_reads.lines_by_id(connection, lines) if lines else {},
        waits=await _waits_of(connection, waiting) if waiting else {},
        open_waits=await open_waits.of_runs(connection, waiting) if waiting else {},
        jobs_created={job_id: id_taken.taken_at for job_id, id_taken in taken.items()},
    )


async def _waits_of(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, list[WaitRow]]:
    found: dict[UUID, list[WaitRow]] = {}
    for wait in await dependencies.waits_of(connection, run_ids):
        found.setdefault(wait.run_id, []).append(wait)
    return found


def _has_started(run: Run) -> bool:
    return isinstance(run, LiveRun) and run.state == StoredState.RUNNING and run.started_at is not None


def _waits(run: Run) -> TypeGuard[LiveRun]:
    return isinstance(run, LiveRun) and run.state in (StoredState.QUEUED, StoredState.HELD)


def _has_gates(run: Run, lane: Lane) -> bool:
    """Whether it is ready to be claimed. Servers take the others."""
    return _is_queued(run) and run.ready_at <= run.now and lane.task not in SERVER_TASKS


def _is_queued(run: Run) -> TypeGuard[LiveRun]:
    return isinstance(run, LiveRun) and run.state == StoredState.QUEUED
