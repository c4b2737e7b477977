"""Lookups that several operations share: the run of a one-time job, the definition of a run, a lane, the
lanes of a filter, ids and states as texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from uuid import UUID

import msgspec

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.job import JobDefinition, Priority, Spec, spec_from_text
from mainspring.domain.refusals import is_a_step
from mainspring.domain.texts import shown
from mainspring.domain.workflows.flow import flow_of, workflow_of
from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.operations.access.caller import Caller
from mainspring.store import history, workflows
from mainspring.store.dead_letters import LockedLetter
from mainspring.store.history import Run
from mainspring.store.lanes import Lane, LaneRegistry
from mainspring.store.pool import Connection


def id_in(text: str, missing: Callable[[str], NotFound]) -> UUID:
    """The UUID that `text` is. Raises `missing`: nothing has another id."""
    found = parse_uuid(text)
    if found is None:
        raise missing(text)
    return found


def states_in(words: Sequence[str], states: type[IntEnum], what: str, known: Sequence[str]) -> list[int] | None:
    """The numbers of the states that a list filters by. None: all. `what` has these states, shown as `known`."""
    for word in words:
        if word.upper() not in states.__members__:
            raise InvalidInput(
                f"{shown(word)} is not a state of {what}", code="invalid_parameter", field="state",
                expected="one of " + ", ".join(known),
            )  # fmt: skip
    return [int(states[word.upper()]) for word in words] or None


async def own_run(connection: Connection, tenant: TenantId, job_id: str) -> Run | None:
    """The run, live or ended, of a one-time job with a generated id. A run of another job is not found, even if its
    run_id is passed as the job_id."""
    run_id = parse_uuid(job_id)
    if run_id is None:
        return None
    run = await history.find_run(connection, tenant, run_id)
    return run if run is not None and run.job_id is None else None


async def refuse_step(connection: Connection, tenant: TenantId, job_id: str, own: Run | None = None) -> None:
    """Raise Conflict if the runs of this job are those of a step, or if `own` is the run of a member. Such a job has no
    row: it is changed and repeated by its workflow."""
    workflow_id = workflow_of(job_id)
    if workflow_id is not None and await history.runs_of_job(connection, tenant, job_id, None, 1):
        raise is_a_step(job_id, workflow_id)
    flow_id = None if own is None else flow_of(own.trigger)
    if flow_id is not None and (flow := await workflows.get(connection, UUID(flow_id))) is not None:
        raise is_a_step(job_id, flow.job_id)


async def load_lane(lanes: LaneRegistry, connection: Connection, lane_id: int) -> Lane:
    """The lane, read on the caller's connection if another process created it. A second connection from the pool could
    cause a deadlock: six callers that each hold one of six connections would wait for ever."""
    if lanes.peek(lane_id) is None:
        await lanes.refresh(connection)
    return await lanes.get(lane_id)


def run_definition(row: LockedLetter | Run, lane: Lane, spec: Spec | None = None) -> JobDefinition:
    """The definition that a run carries, with `spec` instead of its own. Its schedule is not part of it. Raises
    Unreadable."""
    spec = spec_from_text(row.spec_text) if spec is None else spec
    return JobDefinition(
        task=lane.task,
        name=row.name,
        payload=row.payload_text,
        queue=lane.queue,
        priority=Priority(lane.priority),
        overlap=spec.overlap,
        spec=spec,
        required_labels=lane.required_labels,
    )


async def chosen_lanes(lanes: LaneRegistry, caller: Caller, queue: str | None, task: str | None) -> list[int] | None:
    """The lanes of a queue and a task, of those that the token of the caller reaches. None if a filter names neither,
    and the token is not narrowed by queues or tasks. With `labels_within`, this is the condition of every list."""
    tenant, reach = caller.tenant, caller.narrowing
    narrowed = reach is not None and (reach.queues is not None or reach.tasks is not None)
    if queue is None and task is None and not narrowed:
        return None
    await lanes.refresh()
    sets = []
    if reach is not None and narrowed:
        sets.append(set(lanes.within(tenant, reach)))
    if queue is not None:
        sets.append(set(lanes.of_queue(tenant, queue)))
    if task is not None:
        sets.append(set(lanes.of_task(tenant, task)))
    return sorted(set.intersection(*sets))


def labels_within(caller: Caller) -> str | None:
    """The labels that everything has which the token of the caller reaches, as JSON. None: any."""
    labels = None if caller.narrowing is None else caller.narrowing.labels
    return None if labels is None else msgspec.json.encode(labels).decode()


def no_limit(limit_id: str) -> NotFound:
    return NotFound(f"there is no limit {limit_id!r}", hint="a limit_id is a number; see GET /v1/limits")


def no_job(job_id: str, generation: int | None = None) -> NotFound:
    if generation is not None:
        return NotFound(
            f"there is no generation {generation} of job {job_id!r}",
            field="generation",
            hint=f"see GET /v1/jobs/{job_id}",
        )
    workflow_id = workflow_of(job_id)
    hint = "see GET /v1/jobs" if workflow_id is None else f"steps are shown by GET /v1/workflows/{workflow_id}"
    return NotFound(f"there is no job {job_id!r}", hint=hint)
