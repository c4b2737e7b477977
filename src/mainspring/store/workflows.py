"""Workflow runs: how they start, what is kept of their steps, and how they are stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.flow import FlowState
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.runs import LockedRun

_SQL = load("workflows")
FIRST = UUID(int=0)


class QueuedFlow(msgspec.Struct, frozen=True):
    """A locked workflow run that may start."""

    run_id: UUID
    tenant_id: TenantId
    fence: int
    job_id: str
    generation: int
    scheduled_for: datetime
    payload_text: str | None
    spec_text: str | None


class Flow(msgspec.Struct, frozen=True):
    """A workflow run that was started. container: the run that stands for it: its own, or that of its last rerun."""

    flow_id: UUID
    container: UUID
    tenant_id: TenantId
    job_id: str
    generation: int
    version: int
    block: int
    prefix: UUID
    state: int
    steps: int
    numbers: int
    made: int
    reruns: int
    scheduled_for: datetime
    parameters_text: str | None
    stop_reason: str | None
    started_at: datetime
    ended_at: datetime | None


class StoppedFlow(msgspec.Struct, frozen=True):
    """A workflow run that is being stopped. run_id: its container, which is locked."""

    prefix: UUID
    state: int
    stop_reason: str | None
    run_id: UUID
    fence: int
    attempt: int


class NewFlow(msgspec.Struct, frozen=True):
    flow_id: UUID
    fence: int
    version: int
    block: int
    prefix: UUID
    steps: int


class NewStep(msgspec.Struct, frozen=True):
    """The run of a step, or a member. waits_for: None if it is ready."""

    run_id: UUID
    tenant_id: TenantId
    lane_id: int
    max_attempts: int
    scheduled_for: datetime
    job_id: str | None
    generation: int
    trigger: str
    name: str
    payload: str | None
    spec: str | None
    follows: int
    feeds: list[int]
    waits_for: int | None
    rule: int | None


class NewMembers(msgspec.Struct, frozen=True):
    """Members of a mapped step, without limits, that run in one lane. first: the number of the first one. trigger: of
    each of them, without its number. payload: of all of them, or payloads: of each."""

    prefix: UUID
    first: int
    count: int
    tenant_id: TenantId
    lane_id: int
    max_attempts: int
    scheduled_for: datetime
    generation: int
    trigger: str
    name: str
    payload: str | None
    payloads: list[str | None] | None
    spec: str | None
    follows: int
    feeds: list[int]


class StepEnd(msgspec.Struct, frozen=True):
    run_id: UUID
    state: int
    reason: str | None
    result_text: str | None


class Rerun(msgspec.Struct, frozen=True):
    """Steps that ran again, by their places, with numbers from `first_number` on. maps: the steps of which only the
    members that did not succeed ran again."""

    rerun: int
    first_number: int
    steps: list[int]
    maps: list[int] | None


class Made(msgspec.Struct):
    """The lanes of the runs that are QUEUED, and the lines in which others are HELD."""

    lanes: list[int] = []
    lines: set[int] = set()


_queued_flows = RowQuery(QueuedFlow, _SQL["queued_flows"])
_get_flow = RowQuery(Flow, _SQL["get_flow"])
_lock_flow = RowQuery(Flow, _SQL["lock_flow"])
_flow_of_run = RowQuery(Flow, _SQL["flow_of_run"])
_lock_stopped = RowQuery(StoppedFlow, _SQL["lock_stopped"])
_lock_left = RowQuery(LockedRun, _SQL["lock_left"])
_ends_of = RowQuery(StepEnd, _SQL["ends_of"])
_ends_between = RowQuery(StepEnd, _SQL["ends_between"])
_reruns_of = RowQuery(Rerun, _SQL["reruns_of"])


async def queued(connection: Connection, lanes: Sequence[int], limit: int) -> list[QueuedFlow]:
    """Workflow runs of these lanes that may start. They are locked."""
    return await _queued_flows.fetch(connection, lanes, limit)


async def begin(connection: Connection, new: Sequence[NewFlow], joins: Sequence[int]) -> int:
    """Start workflow runs: each waits for its join. Returns how many matched."""
    rows = await connection.fetch(
        _SQL["begin_flow_runs"], [flow.flow_id for flow in new], [flow.fence for flow in new], joins
    )
    await connection.execute(
        _SQL["insert_flows"],
        [flow.flow_id for flow in new],
        [flow.version for flow in new],
        [flow.block for flow in new],
        [flow.prefix for flow in new],
        [flow.steps for flow in new],
    )
    return len(rows)


async def create_steps(connection: Connection, steps: Sequence[NewStep]) -> Made:
    """Create runs of steps and members."""
    made = Made()
    rows = await connection.fetch(
        _SQL["create_step_runs"],
        [step.run_id for step in steps],
        [step.tenant_id for step in steps],
        [step.lane_id for step in steps],
        [step.max_attempts for step in steps],
        [step.scheduled_for for step in steps],
        [step.job_id for step in steps],
        [step.generation for step in steps],
        [step.trigger for step in steps],
        [step.name for step in steps],
        [step.payload for step in steps],
        [step.spec for step in steps],
        [step.follows for step in steps],
        ["{" + ",".join(map(str, step.feeds)) + "}" for step in steps],
        [step.waits_for for step in steps],
        [step.rule for step in steps],
    )
    for lane_id, state, line in rows:
        if state == StoredState.QUEUED:
            made.lanes.append(lane_id)
        elif line is not None:
            made.lines.add(line)
    return made


async def create_members(connection: Connection, members: NewMembers) -> int:
    """Create members that are QUEUED. Returns how many."""
    made: int = await connection.fetchval(
        _SQL["create_members"],
        str(members.prefix)[:28],
        members.first,
        members.first + members.count - 1,
        members.tenant_id,
        members.lane_id,
        members.max_attempts,
        members.scheduled_for,
        members.trigger,
        members.name,
        members.payload,
        members.spec,
        members.payloads,
        members.follows,
        members.generation,
        members.feeds,
    )
    return made


async def advance(connection: Connection, flow_id: UUID, before: int, after: int, *, complete: bool) -> bool:
    """Record how much of the graph is created. False if it is not starting any more, or another process has created
    more."""
    return await connection.fetchval(_SQL["advance_flow"], flow_id, before, after, complete) is not None


async def in_state(connection: Connection, state: FlowState, after: UUID, limit: int) -> list[UUID]:
    return [flow for (flow,) in await connection.fetch(_SQL["flows_in_state"], int(state), after, limit)]


async def get(connection: Connection, flow_id: UUID) -> Flow | None:
    return await _get_flow.first(connection, flow_id)


async def lock(connection: Connection, flow_id: UUID) -> Flow | None:
    return await _lock_flow.first(connection, flow_id)


async def of_run(connection: Connection, tenant: TenantId, prefix: UUID, run_id: UUID) -> Flow | None:
    """The workflow run of a run: its own, a rerun of it, or a step run with this prefix."""
    return await _flow_of_run.first(connection, tenant, prefix, run_id)


async def reruns(connection: Connection, flow_id: UUID) -> list[Rerun]:
    """The reruns of a workflow run, in order."""
    return await _reruns_of.fetch(connection, flow_id)


async def any_alive(connection: Connection, tenant: TenantId, workflow_id: str) -> bool:
    """Whether a run of the workflow is alive, other than those of backfills. The caller has locked its job."""
    return bool(await connection.fetchval(_SQL["any_alive"], tenant, workflow_id))


async def begin_rerun(
    connection: Connection,
    flow: Flow,
    container: UUID,
    *,
    block: int,
    join_id: int,
    version: int,
    steps: Sequence[int],
    from_step: str | None,
    maps: Sequence[int] = (),
    created_by: UUID | None = None,
) -> bool:
    """These steps run again, and the run `container` stands for them. False if the workflow run has not ended. The
    caller has locked it."""
    again = await connection.fetchval(
        _SQL["begin_rerun"], flow.flow_id, flow.reruns, container, block, version, list(steps), from_step, list(maps)
    )
    if again is None:
        return False
    await connection.execute(_SQL["create_rerun"], flow.flow_id, container, again, join_id, version, created_by)
    return True


async def parameters(connection: Connection, prefixes: Sequence[UUID]) -> dict[UUID, str | None]:
    return dict(await connection.fetch(_SQL["parameters_of"], prefixes))


async def close(connection: Connection, containers: Sequence[tuple[UUID, bool, str | None]]) -> list[UUID]:
    """Runs that stand for workflow runs have ended: (run, whether all steps have, the reason). Returns the workflow
    runs."""
    rows = await connection.fetch(
        _SQL["close_flows"],
        [container for container, _, _ in containers],
        [complete for _, complete, _ in containers],
        [reason for _, _, reason in containers],
    )
    return [flow_id for (flow_id,) in rows]


async def stop(
    connection: Connection, containers: Sequence[tuple[UUID, int, str | None]], state: FlowState
) -> list[UUID]:
    """What is left of workflow runs is to be cancelled: (container, fence, reason). Returns the workflow runs, without
    those that were being stopped before. The caller has locked the containers."""
    rows = await connection.fetch(
        _SQL["stop_flows"],
        [container for container, _, _ in containers],
        [fence for _, fence, _ in containers],
        [reason for _, _, reason in containers],
        int(state),
    )
    found = [flow_id for (flow_id,) in rows]
    if None in found:
        raise RuntimeError("a container has no workflow run that runs")
    return found


async def lock_stopped(connection: Connection, prefixes: Sequence[UUID]) -> list[StoppedFlow]:
    """Lock the workflow runs with these prefixes that are being stopped and have not ended."""
    return await _lock_stopped.fetch(connection, prefixes)


async def without_runs(connection: Connection, prefixes: Sequence[UUID]) -> set[UUID]:
    """The prefixes of which no step run is alive."""
    return {prefix for (prefix,) in await connection.fetch(_SQL["without_runs"], prefixes)}


async def end(connection: Connection, flow_id: UUID) -> None:
    """Nothing is left of a workflow run that was stopped. Changes nothing if its container is alive. The caller has
    locked it."""
    await connection.execute(_SQL["end_flow"], flow_id)


async def lock_left(
    connection: Connection, first: UUID, last: UUID, states: Sequence[StoredState], limit: int
) -> list[LockedRun]:
    """Live step runs from `first` to `last` in one of these states that were not told to stop with their workflow run.
    They are locked."""
    return await _lock_left.fetch(connection, first, last, [int(state) for state in states], limit)


async def keep_ends(connection: Connection, ends: Sequence[tuple[UUID, int, str | None, str | None]]) -> None:
    """How step runs have ended: (run, state, reason, result)."""
    await connection.execute(
        _SQL["keep_ends"],
        [run_id for run_id, _, _, _ in ends],
        [state for _, state, _, _ in ends],
        [reason for _, _, reason, _ in ends],
        [result for _, _, _, result in ends],
    )


async def ends_of(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, StepEnd]:
    return {end.run_id: end for end in await _ends_of.fetch(connection, run_ids)}


async def ends_between(connection: Connection, first: UUID, last: UUID, limit: int) -> list[StepEnd]:
    """How the step runs with these ids have ended, by number."""
    return await _ends_between.fetch(connection, first, last, limit)


async def bad_ends(connection: Connection, first: UUID, last: UUID, limit: int) -> list[UUID]:
    """The step runs with these ids that have ended and did not succeed, by number."""
    return [run_id for (run_id,) in await connection.fetch(_SQL["bad_ends"], first, last, limit)]


async def names_of_ended(connection: Connection, run_ids: Sequence[UUID]) -> Mapping[UUID, str | None]:
    """The names of runs that this transaction has ended."""
    return dict(await connection.fetch(_SQL["names_of_ended"], run_ids))


async def take_numbers(connection: Connection, flow_id: UUID, count: int) -> tuple[int, int] | None:
    """Numbers for the members of a fan-out: the first of them, and the number of the fan-out. None if the workflow run
    is not running. The caller has locked it."""
    row = await connection.fetchrow(_SQL["take_numbers"], flow_id, count)
    return None if row is None else (row["number"], row["map"])


async def prune(
    connection: Connection, days: float, batch: int = 1000, tenants: Sequence[TenantId] | None = None
) -> int:
    """Forget workflow runs that ended long ago. Returns how many rows were deleted. `tenants`: None for all."""
    deleted = 0
    for statement in (
        _SQL["prune_step_ends"],
        _SQL["prune_flow_ends"],
        _SQL["prune_child_runs"],
        _SQL["prune_fanout_items"],
        _SQL["prune_map_joins"],
        _SQL["prune_fanouts"],
        _SQL["prune_flow_reruns"],
        _SQL["prune_flows"],
    ):
        while True:
            done = int((await connection.execute(statement, days, batch, tenants)).rpartition(" ")[2])
            deleted += done
            if done < batch:
                break
    return deleted
