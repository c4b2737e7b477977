"""The guard of single objects: what the caller may reach of the job, workflow or run that a request names.

It reads the object before the operation begins, only for callers that reach a part of their tenant. An object that does
not exist is left to the operation, which says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.job import spec_to_show
from mainspring.domain.workflows.flow import flow_of, workflow_of
from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.ownership import not_yours, owns
from mainspring.operations.lookup import load_lane, no_job, own_run
from mainspring.store import backfills, fired_jobs, history, jobs, workflows
from mainspring.store.history import Run
from mainspring.store.jobs import JobRow
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store


class FoundObject(msgspec.Struct, frozen=True):
    """A job or run. `creators`: the tokens that own it: of a run also that of its job."""

    row: JobRow | Run
    creators: tuple[UUID | None, ...]


class ObjectGuard:
    def __init__(self, store: Store, lanes: LaneRegistry) -> None:
        self._store = store
        self._lanes = lanes

    async def check(
        self,
        caller: Caller,
        *,
        job_id: str | None = None,
        run_id: str | None = None,
        backfill_id: str | None = None,
        changes: bool = False,
    ) -> None:
        """Raise NotFound if the token of the caller does not reach the object. Raise Forbidden if the request changes
        it, and the caller changes only its own."""
        async with self._store.reads.acquire() as connection:
            if backfill_id is not None:
                job_id = await _job_of_backfill(connection, caller.tenant, backfill_id)
            found = await _find(connection, caller.tenant, job_id, run_id)
            if found is None:
                return
            if not caller.reaches_all and not await reaches(self._lanes, connection, caller, found.row):
                raise _missing(job_id, run_id, backfill_id)
        if changes and not owns(caller, *found.creators):
            raise not_yours(caller, f"job {job_id!r}" if run_id is None else f"run {run_id}")

    async def outside(self, caller: Caller, job_ids: Iterable[str]) -> set[str]:
        """Those of the jobs that the token of the caller does not reach, or that nobody knows any more."""
        found = set()
        async with self._store.reads.acquire() as connection:
            for job_id in job_ids:
                row = await _job(connection, caller.tenant, job_id)
                if row is None or not await reaches(self._lanes, connection, caller, row):
                    found.add(job_id)
        return found


async def check_reached(
    lanes: LaneRegistry, connection: Connection, caller: Caller, parents: Iterable[str], field: str
) -> None:
    """Raise InvalidInput, as for a job that does not exist, if the token of the caller does not reach one of the jobs
    that another one depends on: it would learn of their ends, and get their results."""
    for job_id in parents:
        if not await reaches_job(lanes, connection, caller, job_id):
            raise InvalidInput(f"there is no job {job_id!r}", code="unknown_job", field=field)


async def reaches_job(lanes: LaneRegistry, connection: Connection, caller: Caller, job_id: str) -> bool:
    """Whether the token of the caller reaches this job, or there is none."""
    row = await _job(connection, caller.tenant, job_id)
    return row is None or await reaches(lanes, connection, caller, row)


async def reaches(lanes: LaneRegistry, connection: Connection, caller: Caller, row: JobRow | Run) -> bool:
    """Whether the token of the caller reaches this job or run."""
    if caller.narrowing is None or caller.reaches_all:
        return True
    lane = await load_lane(lanes, connection, row.lane_id)
    return caller.narrowing.has(lane.queue, lane.task, spec_to_show(row.spec_text)[0].labels)


def _missing(job_id: str | None, run_id: str | None, backfill_id: str | None) -> NotFound:
    """As for what does not exist."""
    if backfill_id is not None:
        return NotFound(f"there is no backfill {backfill_id}", hint="see GET /v1/backfills")
    if run_id is None and job_id is not None:
        return no_job(job_id)
    return NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")


async def _job_of_backfill(connection: Connection, tenant: TenantId, backfill_id: str) -> str | None:
    number = parse_uuid(backfill_id)
    row = None if number is None else await backfills.get(connection, tenant, number)
    return None if row is None else row.job_id


async def _find(connection: Connection, tenant: TenantId, job_id: str | None, run_id: str | None) -> FoundObject | None:
    if run_id is None:
        row = None if job_id is None else await _job(connection, tenant, job_id)
        return None if row is None else FoundObject(row, (row.created_by,))
    number = parse_uuid(run_id)
    run = None if number is None else await history.find_run(connection, tenant, number)
    if run is None:
        return None
    owner = await _job_of(connection, tenant, run)
    return FoundObject(run, (run.created_by,) if owner is None else (run.created_by, owner.created_by))


async def _job(connection: Connection, tenant: TenantId, job_id: str) -> JobRow | Run | None:
    """The row of a job, or the run that a one-time job has become."""
    row = await jobs.get(connection, tenant, job_id)
    if row is not None:
        return row
    run = await own_run(connection, tenant, job_id)
    if run is None:
        generation = await jobs.newest_generation(connection, tenant, job_id) or 1
        run = await fired_jobs.fire_of(connection, tenant, job_id, generation)
    if run is None:
        run = next(iter(await history.runs_of_job(connection, tenant, job_id, None, 1)), None)
    return run


async def _job_of(connection: Connection, tenant: TenantId, run: Run) -> JobRow | Run | None:
    """The job of a run, or the workflow of a step."""
    if run.job_id is None:
        flow_id = flow_of(run.trigger)
        flow = None if flow_id is None else await workflows.get(connection, UUID(flow_id))
        return None if flow is None else await _job(connection, tenant, flow.job_id)
    return await _job(connection, tenant, workflow_of(run.job_id) or run.job_id)
