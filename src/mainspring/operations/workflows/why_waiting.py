"""Explains what a WAITING run of a workflow waits for."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from mainspring.domain.errors import NotFound
from mainspring.domain.job import spec_from_text
from mainspring.domain.texts import sentence
from mainspring.domain.transitions import StoredState, shown_state
from mainspring.domain.workflows.flow import BEING_STOPPED, flow_of, number_of
from mainspring.domain.workflows.numbers import Numbers
from mainspring.kernel.ids import TenantId
from mainspring.operations.signatures.offers import untaken
from mainspring.operations.workflows.definitions import Definitions
from mainspring.store import waits, workers, workflow_reads, workflows
from mainspring.store.history import LiveRun, Run
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection
from mainspring.store.workflows import Flow

_SHOWN = 5
_LOOKED_AT = 1000  # parents


class WaitingSteps:
    """What a reader of runs shows of a run that belongs to a workflow."""

    def __init__(self, definitions: Definitions, lanes: LaneRegistry) -> None:
        self._definitions = definitions
        self._lanes = lanes

    async def why_waiting(self, connection: Connection, run: LiveRun) -> str:
        return await why_waiting(connection, self._definitions, self._lanes, run)

    async def member_index(self, connection: Connection, run: Run) -> int | None:
        return await member_index(connection, run)


async def why_waiting(connection: Connection, definitions: Definitions, lanes: LaneRegistry, run: LiveRun) -> str:
    """One sentence: the steps that a step waits for, how far a workflow run is, or how many members have ended."""
    flow_id = UUID(flow_of(run.trigger)) if flow_of(run.trigger) else run.run_id
    flow = await workflows.get(connection, flow_id)
    if flow is None:
        return "It waits for the runs that it depends on."
    of = spec_from_text(run.spec_text).step
    if of is None and flow.state in BEING_STOPPED:
        return f"It is being stopped, and ends with its running steps. See GET /v1/workflow-runs/{flow.flow_id}."
    if of is None:
        return await _progress_of_flow(connection, lanes, flow)
    if (wait := (await waits.of_runs(connection, [run.run_id])).get(run.run_id)) is not None:
        return sentence(f"it is {wait.in_words}")
    if run.started_at is not None:
        return await _progress_of_map(connection, run.run_id)
    try:
        definition = await definitions.get(connection, flow.tenant_id, (flow.job_id, flow.generation, flow.version))
    except NotFound:
        return "It waits for the steps that it depends on."
    numbers = Numbers(flow.prefix, len(definition.steps), await _reruns(connection, flow))
    step = definition.steps[of.place]
    parents = definition.graph().parents(of.place)
    ids = {numbers.run_id(parent): definition.steps[parent].name for parent in parents[:_LOOKED_AT]}
    rows = await workflow_reads.runs(connection, flow.tenant_id, list(ids))
    left = [
        f"{ids[run_id]} ({shown_state(row.state, row.ready_at, row.started_at, row.now).value})"
        for run_id, row in sorted(rows.items())
        if row.ended_at is None
    ]
    if not left:
        return "Its parents have ended; it is about to be decided."
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return f"It waits for {', '.join(left[:_SHOWN])}{more}, by the rule {step.rule}."


async def _progress_of_flow(connection: Connection, lanes: LaneRegistry, flow: Flow) -> str:
    numbers = Numbers(flow.prefix, flow.steps, await _reruns(connection, flow))
    ended = 0
    queued: Counter[int] = Counter()
    for first, last in numbers.ranges:
        counts = await workflow_reads.count(connection, first, last, numbers.replaced)
        ended += sum(number for state, number in counts.items() if state in _ENDED)
        queued.update(await workflow_reads.queued(connection, first, last))
    not_taken = await _not_taken(connection, lanes, flow.tenant_id, queued)
    progress = f"It runs its steps: {ended} of {flow.steps} have ended.{not_taken}"
    return f"{progress} See GET /v1/workflow-runs/{flow.flow_id}."


async def _not_taken(connection: Connection, lanes: LaneRegistry, tenant: TenantId, queued: Counter[int]) -> str:
    """A sentence for each reason why no live worker takes steps that are queued."""
    offers = await workers.offers(connection, tenant) if queued else []
    waiting = [(lane, number) for lane_id, number in queued.items() if (lane := lanes.peek(lane_id)) is not None]
    return "".join(
        " " + sentence(f"{number} {'step waits' if number == 1 else 'steps wait'}: {reason}")
        for reason, number in untaken(waiting, offers, _SHOWN)
    )


_ENDED = (StoredState.SUCCESS, StoredState.FAILED, StoredState.CANCELLED, StoredState.SKIPPED)


async def _progress_of_map(connection: Connection, run_id: UUID) -> str:
    row = (await workflow_reads.maps(connection, [run_id])).get(run_id)
    if row is None or row.total is None:
        return "Its members are about to be created."
    return f"It runs its members: {row.ok + row.failed + row.skipped} of {row.total} have ended, {row.failed} FAILED."


async def member_index(connection: Connection, run: Run) -> int | None:
    """The index of a member of a mapped step. None for other runs."""
    flow_id = flow_of(run.trigger)
    if flow_id is None or run.job_id is not None:  # a member has no job
        return None
    of = spec_from_text(run.spec_text).step
    if of is None:
        return None
    return await workflow_reads.member_index(connection, UUID(flow_id), of.place, number_of(run.run_id))


async def _reruns(connection: Connection, flow: Flow) -> list[tuple[int, list[int]]]:
    if not flow.reruns:
        return []
    return [(one.first_number, one.steps) for one in await workflow_reads.reruns(connection, flow.flow_id)]
