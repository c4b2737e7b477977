"""Lookups that several operations share: the run of a one-time job, a lane, the lanes of a filter."""

from __future__ import annotations

from mainspring.domain.errors import NotFound
from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.store import history, jobs
from mainspring.store.history import Run
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import Connection


async def own_run(connection: Connection, tenant: TenantId, job_id: str) -> Run | None:
    """The run, live or ended, of a one-time job with a generated id. A run of another job is not found, even if its
    run_id is passed as the job_id."""
    run_id = parse_uuid(job_id)
    if run_id is None:
        return None
    run = await history.find_run(connection, tenant, run_id)
    return run if run is not None and run.job_id is None else None


async def fired_job(connection: Connection, tenant: TenantId, job_id: str, generation: int | None = None) -> Run | None:
    """The newest run of a one-time job that has fired, of this generation or of the newest one. A replay of an earlier
    generation may be younger."""
    own = await own_run(connection, tenant, job_id)
    if own is not None:
        return own if generation in (None, 1) else None
    wanted = generation or await jobs.newest_generation(connection, tenant, job_id)
    newest = await history.runs_of_job(connection, tenant, job_id, None, 1, wanted)
    return newest[0] if newest else None


async def load_lane(lanes: LaneRegistry, connection: Connection, lane_id: int) -> Lane:
    """The lane, read on the caller's connection if another process created it. A second connection from the pool could
    cause a deadlock: six callers that each hold one of six connections would wait for ever."""
    if lanes.peek(lane_id) is None:
        await lanes.refresh(connection)
    return await lanes.get(lane_id)


async def chosen_lanes(lanes: LaneRegistry, tenant: TenantId, queue: str | None, task: str | None) -> list[int] | None:
    """The lanes of a queue and a task. None if a filter names neither."""
    if queue is None and task is None:
        return None
    await lanes.refresh()
    sets = []
    if queue is not None:
        sets.append(set(lanes.of_queue(tenant, queue)))
    if task is not None:
        sets.append(set(lanes.of_task(tenant, task)))
    return sorted(set.intersection(*sets))


def no_job(job_id: str, generation: int | None = None) -> NotFound:
    if generation is not None:
        return NotFound(
            f"there is no generation {generation} of job {job_id!r}",
            field="generation",
            hint=f"see GET /v1/jobs/{job_id}",
        )
    return NotFound(f"there is no job {job_id!r}", hint="see GET /v1/jobs")
