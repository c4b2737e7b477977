"""Cancel workflow runs, and let parts of them run again."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput, NotFound
from mainspring.domain.job import ONE_AFTER_ANOTHER
from mainspring.domain.tags import changed_meanwhile, check_tag, workflow_run_tag
from mainspring.domain.texts import check_line, meant, shown
from mainspring.domain.transitions import StoredState
from mainspring.domain.workflows.definition import WorkflowDefinition
from mainspring.domain.workflows.flow import ALIVE, BEING_STOPPED, FlowState, prefix_of, run_in
from mainspring.domain.workflows.graph import downstream
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.discard import discard_of_steps
from mainspring.operations.signals import FlowNews, Signals
from mainspring.operations.workflows.graph_indexes import GraphIndexes, current_numbers, ends_by_number, is_blocked
from mainspring.operations.workflows.overlap import check_rule, lock_rule, take_slot
from mainspring.operations.workflows.stopper import FlowStopper
from mainspring.store import history, joins, runs, workflow_versions, workflows
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.joins import join_in
from mainspring.store.pool import Connection, Store
from mainspring.store.workflows import StepEnd

_FIRED, _CURRENT = "fired", "current"
_SLICE = 1000  # dead letters that are discarded in one transaction


class _Begun(msgspec.Struct, frozen=True):
    """A rerun that has begun, and the places of its steps. first, last: the ids of earlier step runs."""

    flow_id: UUID
    first: UUID
    last: UUID
    places: list[int]


class WorkflowRuns:
    def __init__(self, store: Store, signals: Signals, graph_indexes: GraphIndexes) -> None:
        self._store = store
        self._signals = signals
        self._graph_indexes = graph_indexes
        self._stopper = FlowStopper(store, signals, listens=False)

    async def cancel(
        self, caller: Caller, run_id: UUID, reason: str | None = None, *, if_match: str | None = None
    ) -> None:
        """Cancel a workflow run with its steps. When this returns, no step can start any more. It ends when its last
        step has. A second call changes nothing."""
        if reason is not None:
            check_line(reason, "reason")
        flow_id = await despite_deadlocks(partial(self._cancel, caller, run_id, reason, if_match))
        if flow_id is not None:
            await self._stopper.stop(flow_id)

    async def _cancel(self, caller: Caller, run_id: UUID, reason: str | None, if_match: str | None) -> UUID | None:
        tenant = caller.tenant
        async with self._store.change() as connection:
            flow = await workflows.of_run(connection, tenant, prefix_of(run_id), run_id)
            container = run_id if flow is None else flow.container
            row = await runs.lock_run(connection, tenant, container)
            if flow is None:  # it may have been started before the lock was held
                flow = await workflows.of_run(connection, tenant, prefix_of(run_id), run_id)
            ended = None if row is not None else await history.ended_run(connection, tenant, container)
            if row is None and ended is None:
                raise _unknown(run_id)
            tag = workflow_run_tag(ended=row is None, reruns=0 if flow is None else flow.reruns)
            check_tag("workflow run", tag, if_match)
            if ended is not None and ended.state != StoredState.CANCELLED:
                state = StoredState(ended.state).name
                raise Conflict(f"workflow run {run_id} has ended with {state}", code="run_ended")
            effects = await cancel(connection, [] if row is None else [row], reason)
            if row is not None:
                before, after = StoredState(row.state).name, StoredState.CANCELLED.name
                await record(connection, caller, "run", run_id, {"status": before}, {"status": after, "reason": reason})
        effects.publish(self._signals)
        return None if flow is None else flow.flow_id

    async def rerun(
        self,
        caller: Caller,
        run_id: UUID,
        from_step: str | None = None,
        definition: str = _FIRED,
        *,
        if_match: str | None = None,
    ) -> UUID:
        """Let a step run again with all that follows it, or without one the steps that did not succeed and what follows
        them; of a map over the same list only the members that did not succeed then. Dead letters of what runs again
        are discarded. Returns the workflow run."""
        begun = await despite_deadlocks(partial(self._rerun, caller, run_id, from_step, definition, if_match))
        self._signals.flows.publish(FlowNews(rerun=[begun.flow_id]))
        await self._discard_letters(caller.tenant, begun)
        return begun.flow_id

    async def _discard_letters(self, tenant: TenantId, begun: _Begun) -> None:
        """Discard the dead letters in slices, because each member of a map may have one. A process that is killed in
        between leaves some."""
        async with self._store.reads.acquire() as connection:
            found = _SLICE
            while found == _SLICE:
                found = await discard_of_steps(connection, tenant, begun.first, begun.last, begun.places, _SLICE)

    async def _rerun(
        self, caller: Caller, run_id: UUID, from_step: str | None, definition: str, if_match: str | None
    ) -> _Begun:
        tenant = caller.tenant
        async with self._store.change() as connection:
            found = await workflows.of_run(connection, tenant, prefix_of(run_id), run_id)
            if found is None:
                raise await self._not_started(connection, tenant, run_id)
            rule = await lock_rule(connection, tenant, found.job_id)  # jobs are locked before their runs
            flow = await workflows.lock(connection, found.flow_id)
            if flow is None:
                raise _unknown(run_id)
            tag = workflow_run_tag(ended=flow.state not in ALIVE, reruns=flow.reruns)
            check_tag("workflow run", tag, if_match)
            if flow.state in BEING_STOPPED:
                raise Conflict(
                    f"workflow run {run_id} is being stopped", code="run_active",
                    hint="wait for its end: steps of it are still running",
                )  # fmt: skip
            if flow.state != FlowState.ENDED:
                raise Conflict(
                    f"workflow run {run_id} has not ended",
                    code="run_active",
                    hint="wait for its end, or cancel it first",
                )
            check_rule(rule, run_id)
            version = flow.version
            fired = current = (await self._graph_indexes.of_flow(connection, flow)).definition
            if definition == _CURRENT:
                version = await workflow_versions.newest(connection, tenant, flow.job_id, flow.generation)
                key = flow.job_id, flow.generation, version
                current = (await self._graph_indexes.get(connection, tenant, key)).definition
                _check_same(fired, current)
            numbers = await current_numbers(connection, flow)
            ends = await ends_by_number(connection, flow, list(numbers.values()))
            places = _again(fired, from_step, {place: ends.get(number) for place, number in numbers.items()})
            maps = _in_part(fired, current, places) if from_step is None else []
            [block] = await joins.new_blocks(connection)
            container = uuid7()
            begun = await workflows.begin_rerun(
                connection,
                flow,
                container,
                block=block,
                join_id=join_in(block, 0),
                version=version,
                steps=sorted(places),
                from_step=from_step,
                maps=maps,
                created_by=caller.created_by,
            )
            if not begun:
                raise changed_meanwhile(f"workflow run {run_id}")
            if rule.overlap in ONE_AFTER_ANOTHER:
                await take_slot(connection, tenant, flow.job_id, container)
            number = (await workflows.reruns(connection, flow.flow_id))[-1].first_number
            after = {"rerun_from": from_step, "definition": definition, "steps": len(places)}
            await record(connection, caller, "run", run_id, None, after)
        return _Begun(flow.flow_id, flow.prefix, run_in(flow.prefix, number - 1), sorted(places))

    async def _not_started(self, connection: Connection, tenant: TenantId, run_id: UUID) -> Exception:
        if await runs.lock_run(connection, tenant, run_id) is None:
            return _unknown(run_id)
        return Conflict(f"workflow run {run_id} has not started", code="run_active", hint="wait for its end")


def _unknown(run_id: UUID) -> NotFound:
    return NotFound(f"there is no workflow run {run_id}", hint="see GET /v1/workflows/{id}/runs")


def _again(definition: WorkflowDefinition, from_step: str | None, ends: dict[int, StepEnd | None]) -> Collection[int]:
    """The places of the steps that run again."""
    if from_step is None:
        starts = [place for place, end in ends.items() if not _is_good(end)]
    else:
        starts = [place for place, step in enumerate(definition.steps) if step.name == from_step]
        if not starts:
            raise InvalidInput(
                f"there is no step {shown(from_step)}", code="unknown_step", field="from",
                hint=meant(from_step, [step.name for step in definition.steps], "name a step of this workflow run"),
            )  # fmt: skip
    if not starts:
        raise Conflict(
            "no step has failed", code="nothing_to_rerun", hint='name the step from which it runs again: {"from": ...}'
        )
    return downstream(definition.graph(), starts)


def _in_part(fired: WorkflowDefinition, current: WorkflowDefinition, places: Collection[int]) -> list[int]:
    """The places of the mapped steps of which only the members run again that did not succeed: those over the same
    list. Nothing before them runs again, and their definition has the same one. Workers may be others by now."""
    graph, again = fired.graph(), set(places)
    return [
        place
        for place in sorted(places)
        if (of := fired.steps[place].map) is not None
        and (now := current.steps[place].map) is not None
        and of.workers is None
        and (of.items, of.source, of.range) == (now.items, now.source, now.range)
        and not again.intersection(graph.parents(place))
    ]


def _is_good(end: StepEnd | None) -> bool:
    """Whether a step need not run again: it succeeded, or was skipped for no failure."""
    if end is None or is_blocked(end):
        return False
    return end.state in (StoredState.SUCCESS, StoredState.SKIPPED)


def _check_same(fired: WorkflowDefinition, current: WorkflowDefinition) -> None:
    """The steps of both must have the same names and dependencies."""
    same = fired.joins == current.joins and [(step.name, step.waits_for) for step in fired.steps] == [
        (step.name, step.waits_for) for step in current.steps
    ]
    if not same:
        raise Conflict(
            "the current definition has other steps or dependencies", code="other_steps",
            hint="rerun with the definition that the run was fired with, or start a new run",
        )  # fmt: skip
