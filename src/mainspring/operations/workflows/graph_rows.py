"""The rows of a workflow run: joins and step runs, in the order in which they are created.

Joins come first, then the steps that wait, then those that are ready. So nothing can be decided before all that it
concerns is there. The order follows from the definition alone, and from how earlier runs of steps have ended: any
process can continue where another one stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.job import Spec, StepOf, stored_spec
from mainspring.domain.transitions import Follows, StoredState
from mainspring.domain.workflows.definition import FAIL, StepDefinition, WorkflowDefinition
from mainspring.domain.workflows.flow import STEP_TRIGGER, run_in, step_job_id
from mainspring.domain.workflows.references import FROM, ParsedReference, collect, without_references
from mainspring.domain.workflows.rules import Rule, Waiting
from mainspring.kernel.ids import TenantId
from mainspring.store.joins import NewJoin, as_fed, join_in
from mainspring.store.lanes import LaneKey, lane_key
from mainspring.store.workflows import NewStep


class GraphIndex:
    """An index of a definition: which results its runs keep, and which steps refer to which."""

    def __init__(self, definition: WorkflowDefinition) -> None:
        self.definition = definition
        self.places = {step.name: place for place, step in enumerate(definition.steps)}
        self.feeds = definition.graph().feeds()
        self.last = set(definition.last)
        self.uses = [self._uses(step) for step in definition.steps]
        self.kept = {place for used in self.uses for place in used}

    def _uses(self, step: StepDefinition) -> tuple[int, ...]:
        names = {reference.of for reference in references_in(step) if reference.kind == FROM}
        if step.map is not None and step.map.source is not None:
            names.add(step.map.source.step)
        return tuple(sorted(self.places[name] for name in names))


def references_in(step: StepDefinition) -> list[ParsedReference]:
    return collect(msgspec.json.decode(step.payload), secrets=True) if step.refers and step.payload is not None else []


class GraphPart(msgspec.Struct, frozen=True):
    """The part of a workflow run to create. `numbers`: the numbers of the steps that run, by their places. `before`:
    the numbers and states of the other steps, which have ended earlier. `blocked`: the steps in `before` that were
    skipped because of a failure, and the step that failed. `again`: the steps that run although they had succeeded."""

    flow_id: UUID
    tenant_id: TenantId
    workflow_id: str
    generation: int
    scheduled_for: datetime
    block: int
    prefix: UUID
    numbers: Mapping[int, int]
    before: Mapping[int, tuple[int, int]] = {}
    blocked: Mapping[int, str] = {}
    again: frozenset[int] = frozenset()


class GraphRows:
    """The rows of one part. `joins` first, then `steps`."""

    def __init__(self, graph_index: GraphIndex, part: GraphPart) -> None:
        self._graph_index = graph_index
        self._part = part
        definition = graph_index.definition
        self._joins = sorted(
            {join for place in part.numbers if (join := definition.steps[place].waits_for) is not None}
            - {
                number
                for number, parents in enumerate(definition.joins)
                if part.before and not any(parent in part.numbers for parent in parents)
            }
        )
        self._made = set(self._joins)
        steps = definition.steps
        self._waiting = {place: join for place in part.numbers if (join := steps[place].waits_for) in self._made}
        ready = [place for place in part.numbers if place not in self._waiting]
        self._order = [*self._waiting, *ready]
        self.total = 2 + len(self._joins) + len(self._order)
        self.nothing = join_in(part.block, len(definition.joins) + 1)
        self.wants_nothing = any(_resolves(steps[place]) for place in ready)

    def joins(self, first: int, last: int) -> list[NewJoin]:
        """The joins among the rows from `first` to before `last`. Two joins come before those of the definition: one
        counts all steps, and one has no parents. Steps that are ready at once and have references wait for that."""
        found: list[NewJoin] = []
        if first == 0:
            found.append(self._final())
            found.append(NewJoin(self.nothing, 0))
        found += [self._join(join) for join in self._joins[max(first - 2, 0) : max(last - 2, 0)]]
        return found

    def _final(self) -> NewJoin:
        """The join of all steps. In a rerun, a last step that failed before still counts."""
        bad = [place for place in self._part.before if place in self._graph_index.last and self._is_bad(place)]
        cause = self._cause(bad)
        total = len(self._part.numbers) + len(bad)
        return NewJoin(join_in(self._part.block, 0), total, failed=len(bad), cause=cause)

    def _join(self, number: int) -> NewJoin:
        parents = self._graph_index.definition.joins[number]
        states = [self._part.before[parent][1] for parent in parents if parent not in self._part.numbers]
        blocked = sum(parent in self._part.blocked for parent in parents)
        ok, skipped = states.count(StoredState.SUCCESS), states.count(StoredState.SKIPPED)
        bad = [parent for parent in parents if parent not in self._part.numbers and self._is_bad(parent)]
        cause = self._cause(bad)
        join_id = join_in(self._part.block, number + 1)
        return NewJoin(join_id, len(parents), ok, len(states) - ok - skipped, skipped, blocked, cause)

    def _cause(self, bad: Sequence[int]) -> str | None:
        """The step whose failure is the reason: the first of these, or the one that blocked it."""
        return (self._part.blocked.get(bad[0]) or self._graph_index.definition.steps[bad[0]].name) if bad else None

    def _is_bad(self, place: int) -> bool:
        return place in self._part.blocked or self._part.before[place][1] in (
            StoredState.FAILED,
            StoredState.CANCELLED,
        )

    def places(self, first: int, last: int) -> list[int]:
        """The steps whose runs are among the rows from `first` to before `last`."""
        before = 2 + len(self._joins)
        return self._order[max(first - before, 0) : max(last - before, 0)]

    def lane(self, place: int) -> LaneKey:
        return lane_key(self._part.tenant_id, self._graph_index.definition.steps[place].job())

    def is_open(self, place: int) -> bool:
        """Whether it is a mapped step that is ready at once."""
        return self._graph_index.definition.steps[place].map is not None and place not in self._waiting

    def step(self, place: int, lane_id: int) -> NewStep:
        graph_index, part = self._graph_index, self._part
        step = graph_index.definition.steps[place]
        number = part.numbers[place]
        uses = {graph_index.definition.steps[used].name: self._number(used) for used in graph_index.uses[place]}
        resolves = _resolves(step)
        waits_for: int | None = None
        if (join := self._waiting.get(place)) is not None:
            waits_for = join_in(part.block, join + 1)
        elif resolves:
            waits_for = self.nothing
        return NewStep(
            run_id=run_in(part.prefix, number),
            tenant_id=part.tenant_id,
            lane_id=lane_id,
            max_attempts=step.spec.retry.max_attempts,
            scheduled_for=part.scheduled_for,
            job_id=step_job_id(part.workflow_id, step.name),
            generation=part.generation,
            trigger=f"{STEP_TRIGGER}{part.flow_id}:{number}",
            name=step.name,
            payload=step.payload,
            spec=step_spec(
                step,
                step_job_id(part.workflow_id, step.name),
                StepOf(place, uses or None),
                str(run_in(part.prefix, number)) if place in part.again else None,
            ),
            follows=self._follows(place),
            feeds=self._feeds(place),
            waits_for=waits_for,
            rule=None if waits_for is None and step.map is None else self._rule(step, place, resolves=resolves),
        )

    def _number(self, place: int) -> int:
        found = self._part.numbers.get(place)
        return self._part.before[place][0] if found is None else found

    def _follows(self, place: int) -> int:
        bits = Follows.EDGES | Follows.STEP
        if place in self._graph_index.kept:
            bits |= Follows.RESULT
        if place in self._graph_index.last:
            bits |= Follows.LAST
        return int(bits)

    def _feeds(self, place: int) -> list[int]:
        block, joins = self._part.block, self._graph_index.definition.joins
        feeds = [as_fed(join_in(block, 0), len(self._part.numbers))]
        fed = [number for number in self._graph_index.feeds[place] if number in self._made]
        return feeds + [as_fed(join_in(block, number + 1), len(joins[number])) for number in fed]

    def _rule(self, step: StepDefinition, place: int, *, resolves: bool) -> int:
        """In a rerun, the parents of a step that is ready have ended before: it waits for no parent."""
        bits = int(Rule[step.rule.upper()] if place in self._waiting else Rule.ALL_DONE)
        if step.on_upstream_failure == FAIL:
            bits |= Waiting.FAILS
        if step.map is not None:
            bits |= Waiting.MAPPED
        if resolves:
            bits |= Waiting.RESOLVES
        if step.waits:
            bits |= Waiting.WAITS
        return int(bits)


def _resolves(step: StepDefinition) -> bool:
    """Whether there is something to work out when it is ready."""
    return (step.refers or step.waits) and step.map is None


def step_spec(step: StepDefinition, job_id: str, of: StepOf, repeat: str | None = None) -> str | None:
    """The spec of a run of a step, as it is stored."""
    payload = step.payload
    if payload is not None and step.refers:  # the lines are worked out when the payload is known
        payload = msgspec.json.encode(without_references(msgspec.json.decode(payload))).decode()
    spec: Spec = msgspec.structs.replace(step.spec, step=of, repeat=repeat)
    return stored_spec(msgspec.structs.replace(step.job(), spec=spec, payload=payload, job_id=job_id), job_id)
