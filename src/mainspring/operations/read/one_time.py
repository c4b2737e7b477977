"""One-time jobs that have fired: which of their runs decides, and the status that follows from it. The fragments
live_decides and ended_decides (store/sql/fragments.sql) say the same in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainspring.domain.job import DUE_TOGETHER, STILL_ALIVE
from mainspring.domain.transitions import JobStatus, StoredState
from mainspring.kernel.ids import TenantId, parse_uuid, uuid7_time
from mainspring.operations.lookup import own_run
from mainspring.store import fired_jobs, jobs
from mainspring.store.fired_jobs import RANKS, BriefRun
from mainspring.store.history import EndedRun, LiveRun, Run
from mainspring.store.pool import Connection

FIRST = 1  # the generation of a job whose id was never used again
_ENDS = {
    StoredState.SUCCESS: JobStatus.COMPLETED,
    StoredState.FAILED: JobStatus.FAILED,
    StoredState.CANCELLED: JobStatus.CANCELLED,
    StoredState.SKIPPED: JobStatus.FAILED,  # what was to run once did not run
}


class FiredJob(msgspec.Struct, frozen=True):
    """`deciding`: the run that says what became of the job. `fired`: the run that its schedule made, which has its
    definition; they are the same unless the job was repeated."""

    job_id: str
    deciding: Run
    fired: Run
    created_at: datetime


def status_of(run: Run) -> JobStatus:
    """The status of a one-time job whose deciding run this is."""
    if isinstance(run, EndedRun):
        return _ENDS[StoredState(run.state)]
    if run.cancel_requested_at is not None:  # it is being stopped, so the job will not run again
        return JobStatus.CANCELLED
    running = run.state == StoredState.RUNNING and run.started_at is not None
    return JobStatus.RUNNING if running else JobStatus.SCHEDULED


def states_of(statuses: Sequence[JobStatus]) -> tuple[list[int], list[int]]:
    """The ranks of live runs and the states of ended runs that give a job one of these statuses."""
    ranks = sorted(RANKS[status] for status in statuses if status in RANKS)
    return ranks, sorted(int(state) for state, status in _ENDS.items() if status in statuses)


def created_at(run: Run | BriefRun) -> datetime:
    """When a run was created. One that was submitted to run at once is due since then."""
    return run.fired_at or run.scheduled_for


def is_fire(run: Run) -> bool:
    """Whether the schedule of a one-time job made this run. Others are manual runs and repetitions of it."""
    return run.job_id is None or run.trigger == "at" or (run.trigger is None and run.fired_at is None)


def overlapped(run: Run) -> bool:
    """Whether a run was skipped because another one of its job was alive. That one decides."""
    return isinstance(run, EndedRun) and run.reason in (STILL_ALIVE, DUE_TOGETHER)


async def deciding_run(
    connection: Connection, tenant: TenantId, job_id: str, own: Run | None, generation: int
) -> Run | None:
    """The run of a generation that decides. `own`: the run that is itself the job. Live runs are read first: none of
    them is missed if it ends meanwhile."""
    alive_now = await fired_jobs.deciding_live(connection, tenant, job_id, generation)
    live = [own if isinstance(own, LiveRun) else None, alive_now]
    if alive := [run for run in live if run is not None]:
        return max(alive, key=lambda run: (RANKS[status_of(run)], created_at(run), run.run_id))
    ended: list[Run] = [own] if own is not None else []
    newest = await fired_jobs.deciding_ended(connection, tenant, job_id, generation, overlapped=False)
    if newest is None:
        newest = await fired_jobs.deciding_ended(connection, tenant, job_id, generation, overlapped=True)
    if newest is not None:
        ended.append(newest)
    return max(ended, key=lambda run: (not overlapped(run), created_at(run), run.run_id), default=None)


async def fired_job(
    connection: Connection, tenant: TenantId, job_id: str, generation: int | None = None
) -> FiredJob | None:
    """A one-time job that has fired, of this generation or of the newest one."""
    own = await own_run(connection, tenant, job_id)
    if own is not None:
        job_id = str(own.run_id)  # a client may write it in capitals
        if generation not in (None, FIRST):
            return None
    wanted = generation or await jobs.newest_generation(connection, tenant, job_id) or FIRST
    deciding = await deciding_run(connection, tenant, job_id, own, wanted)
    return None if deciding is None else await _whole(connection, tenant, job_id, deciding, own)


async def fired_jobs_of(connection: Connection, tenant: TenantId, deciding: Sequence[Run]) -> list[FiredJob]:
    """The jobs whose deciding runs these are, in the same order."""
    chosen = [run.job_id for run in deciding if run.job_id is not None]
    taken = await fired_jobs.taken_ids(connection, tenant, chosen) if chosen else {}
    found = []
    for run in deciding:
        if run.job_id is None:
            found.append(FiredJob(str(run.run_id), run, run, uuid7_time(run.run_id)))
        elif is_fire(run) and run.job_id in taken:
            found.append(FiredJob(run.job_id, run, run, taken[run.job_id].taken_at))
        else:
            own = await own_run(connection, tenant, run.job_id)
            found.append(await _whole(connection, tenant, run.job_id, run, own))
    return found


async def _whole(connection: Connection, tenant: TenantId, job_id: str, deciding: Run, own: Run | None) -> FiredJob:
    if own is not None:
        return FiredJob(job_id, deciding, own, uuid7_time(own.run_id))
    fired = deciding
    if not is_fire(deciding):
        fired = await fired_jobs.fire_of(connection, tenant, job_id, deciding.generation) or deciding
    taken = (await fired_jobs.taken_ids(connection, tenant, [job_id])).get(job_id)
    if taken is not None and taken.generation == deciding.generation:
        return FiredJob(job_id, deciding, fired, taken.taken_at)
    generated = parse_uuid(job_id)  # its own run is no longer in the history
    if generated is not None and generated.version != 7:
        generated = None
    return FiredJob(job_id, deciding, fired, uuid7_time(generated or fired.run_id))
