"""Workflow runs of a box: their step runs, which of them are ready, fan-outs, cancels and reruns.

The rules, references and graphs are those of a server (domain/workflows).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.domain.intake.workflows import WorkflowSource
from mainspring.domain.transitions import RunState
from mainspring.domain.workflows.definition import FAIL, StepDefinition, WorkflowDefinition
from mainspring.domain.workflows.flow import CANCELLED_WHILE_IT_RAN, STEP_TRIGGER, step_job_id
from mainspring.domain.workflows.graph import Graph, downstream
from mainspring.domain.workflows.references import FROM, Unresolved, Values, collect, mapped_list, resolved_payload
from mainspring.domain.workflows.rules import Counts, Decision, Rule, decide, reason_of
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.records import BoxRun

_RESULTS_KEPT = 1000
_RESULTS_BYTES = 256 * 1024
_FAILED = (RunState.FAILED, RunState.CANCELLED)


@dataclass(slots=True)
class BoxVersion:
    """A version of the definition of a workflow."""

    number: int
    source: WorkflowSource
    definition: WorkflowDefinition


@dataclass(slots=True, eq=False)
class BoxWorkflow:
    """A workflow of a box. Its job has the same id."""

    version: BoxVersion


@dataclass(slots=True, eq=False)
class BoxFanout:
    """The members of a mapped step: `items` are their values, `todo` the indexes of those that run, `created` how many
    of these have a run. `members`: their runs, and those of the members that have succeeded before."""

    run: BoxRun
    items: Sequence[Any]
    todo: Sequence[int]
    created: int = 0
    live: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    members: list[BoxRun] = field(default_factory=list)
    closed: bool = False

    @property
    def total(self) -> int:
        return len(self.items)

    @property
    def have_runs(self) -> int:
        return self.total - len(self.todo) + self.created

    @property
    def done(self) -> bool:
        return not self.live and self.succeeded + self.failed + self.skipped >= self.total


@dataclass(slots=True, eq=False)
class BoxFlow:
    """A workflow run that has started. runs: the latest run of each step. causes: of the runs that ended because of a
    failed step, its name. unlisted: mapped steps whose list could not be made."""

    run: BoxRun
    version: BoxVersion
    graph: Graph
    parameters: dict[str, Any]
    runs: list[BoxRun] = field(default_factory=list)
    earlier: list[BoxRun] = field(default_factory=list)
    reruns: int = 0
    rerun_of: dict[str, int] = field(default_factory=dict)
    fanouts: dict[str, BoxFanout] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    causes: dict[str, str] = field(default_factory=dict)
    stopping: str | None = None
    live: int = 0
    feeds: list[list[int]] = field(default_factory=list)
    waiting: list[list[int]] = field(default_factory=list)
    referred: set[str] = field(default_factory=set)

    @property
    def steps(self) -> list[StepDefinition]:
        return self.version.definition.steps


class Flows:
    """All workflows of a box. The engine tells it which runs start and end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.workflows: dict[str, BoxWorkflow] = {}
        self.flows: dict[str, BoxFlow] = {}
        self._of_step: dict[str, tuple[BoxFlow, int]] = {}
        self._of_member: dict[str, BoxFanout] = {}
        self._ended: deque[BoxRun] = deque()
        self._working = False
        engine.flows = self

    # -- what the engine says

    def start(self, run: BoxRun) -> None:
        """A workflow run is ready: create the runs of its steps."""
        version = self.workflows[run.job_id].version
        graph = version.definition.graph()
        parameters = msgspec.json.decode(run.definition.payload or "{}")
        flow = BoxFlow(run, version, graph, parameters, feeds=graph.feeds(), waiting=graph.waiting())
        flow.referred = _referred(flow.steps)
        self.flows[run.run_id] = flow
        run.status, run.reason, run.started_at = RunState.RUNNING, None, self._engine.now
        run.first_started_at = self._engine.now
        flow.runs = [self._new_run(flow, place) for place in range(len(flow.steps))]
        self._decide(flow, range(len(flow.steps)))
        self._work()

    def ended(self, run: BoxRun) -> None:
        """A run has ended. Those that wait for it are decided, without recursion: chains may be long."""
        if run.run_id in self._of_step or run.run_id in self._of_member:
            self._ended.append(run)
            self._work()

    def cancel(self, run: BoxRun, reason: str | None) -> None:
        """Cancel a workflow run or a mapped step: with all that is left of it."""
        if run.run_id in self.flows:
            flow = self.flows[run.run_id]
            flow.stopping = flow.stopping or reason or CANCELLED_WHILE_IT_RAN
            run.cancel_requested, run.reason = True, "cancel requested; waiting for its steps to end"
            for one in list(flow.runs):
                if one.live:
                    self._engine.cancel(one, reason)
            self._close(flow)
            return
        flow, place = self._of_step[run.run_id]
        fanout = flow.fanouts[run.run_id]
        self._stop_members(fanout, reason)
        run.cancel_requested, run.cancel_reason = True, reason
        self._end_fanout(flow, place, fanout)

    def is_container(self, run: BoxRun) -> bool:
        """Whether it has runs of its own: a workflow run that has started, or a mapped step."""
        if run.run_id in self.flows:
            return run.live
        found = self._of_step.get(run.run_id)
        return found is not None and run.live and run.run_id in found[0].fanouts

    def check_ended(self, flow: BoxFlow) -> None:
        """Raise Conflict if a part of the workflow run cannot run again yet."""
        if flow.run.live and flow.stopping is not None:
            raise Conflict(
                f"workflow run {flow.run.run_id} is being stopped", code="run_active",
                hint="wait for its end: steps of it are still running",
            )  # fmt: skip
        if flow.run.live:
            raise Conflict(
                f"workflow run {flow.run.run_id} has not ended", code="run_active",
                hint="wait for its end, or cancel it first",
            )  # fmt: skip

    def rerun(self, flow: BoxFlow, start: int | None, current: BoxVersion | None = None) -> None:
        """Run a part again: from the step at `start`, or the steps that did not succeed, with all that follows. Their
        settings are those of the version `current`, if it is given."""
        starts = [place for place, run in enumerate(flow.runs) if not _is_good(flow, run)]
        if start is None and not starts:
            raise Conflict(
                "no step has failed", code="nothing_to_rerun",
                hint='name the step from which it runs again: {"from": ...}',
            )  # fmt: skip
        chosen = sorted(downstream(flow.graph, starts if start is None else [start]))
        flow.reruns += 1
        flow.stopping = None
        before, earlier = flow.version, list(flow.runs)
        flow.version = current or flow.version
        self._engine.reopen(flow.run)
        for place in chosen:
            flow.earlier.append(flow.runs[place])
            flow.runs[place] = self._new_run(flow, place)
        again = set(chosen)
        for place in chosen:
            join = flow.graph.waits_for[place]
            if join is None or not again.intersection(flow.graph.joins[join]):  # its parents have ended before
                same = start is None and _maps_the_same(before.definition.steps[place], flow.steps[place])
                self._ready(flow, place, flow.fanouts.get(earlier[place].run_id) if same else None)
        self._decide(flow, chosen)
        self._work()

    def flow_of(self, run: BoxRun) -> BoxFlow | None:
        """The workflow run to which a run of a step belongs."""
        if run.run_id in self._of_member:
            run = self._of_member[run.run_id].run
        found = self._of_step.get(run.run_id)
        return None if found is None else found[0]

    # -- steps

    def _new_run(self, flow: BoxFlow, place: int) -> BoxRun:
        step = flow.steps[place]
        run = self._engine.create_waiting(
            flow.run, step.job(), step_job_id(flow.run.job_id, step.name), f"{STEP_TRIGGER}{flow.run.run_id}:{place}"
        )
        flow.live += 1
        flow.rerun_of[run.run_id] = flow.reruns
        self._of_step[run.run_id] = (flow, place)
        return run

    def _work(self) -> None:
        if self._working:
            return
        self._working = True
        try:
            while self._ended:
                run = self._ended.popleft()
                if run.run_id in self._of_member:
                    self._member_ended(run)
                else:
                    self._step_ended(*self._of_step[run.run_id])
        finally:
            self._working = False

    def _step_ended(self, flow: BoxFlow, place: int) -> None:
        run = flow.runs[place]
        flow.live -= 1
        if run.status in _FAILED:
            flow.causes.setdefault(run.run_id, flow.steps[place].name)
        if flow.stopping is None:
            for join in flow.feeds[place]:
                self._decide(flow, flow.waiting[join])
        self._close(flow)

    def _decide(self, flow: BoxFlow, places: Iterable[int]) -> None:
        """Start or end those of these steps whose rule is decided."""
        for place in places:
            run, join = flow.runs[place], flow.graph.waits_for[place]
            if run.status is not RunState.WAITING:
                continue
            step = flow.steps[place]
            if join is None:
                self._ready(flow, place)
                continue
            counts, rule = self._counts(flow, join), Rule[step.rule.upper()]
            decision = decide(rule, counts)
            if decision is Decision.RUN:
                self._ready(flow, place)
            elif decision is not None:
                reason = reason_of(rule, decision, counts)
                blocked = decision is Decision.BLOCK
                if blocked:
                    flow.causes[run.run_id] = counts.cause or ""
                fails = blocked and step.on_upstream_failure == FAIL
                self._engine.end(run, RunState.FAILED if fails else RunState.SKIPPED, reason)

    def _counts(self, flow: BoxFlow, join: int) -> Counts:
        """The ends of the parents. The first failed one is the cause."""
        runs = [flow.runs[parent] for parent in flow.graph.joins[join]]
        ended = sorted((run for run in runs if not run.live), key=lambda run: run.end_number)
        failed = [run for run in ended if run.status in _FAILED]
        skipped = [run for run in ended if run.status is RunState.SKIPPED]
        blocked = [run for run in skipped if run.run_id in flow.causes]
        cause = next((flow.causes[run.run_id] for run in ended if run.run_id in flow.causes), None)
        ok = len(ended) - len(failed) - len(skipped)
        return Counts(len(runs), ok, len(failed), len(skipped), len(blocked), cause)

    def _ready(self, flow: BoxFlow, place: int, before: BoxFanout | None = None) -> None:
        """`before`: a mapped step repeats those members of it that did not succeed."""
        step, run = flow.steps[place], flow.runs[place]
        try:
            if step.map is not None:
                items = self._items(flow, step)
            elif step.refers:
                payload = resolved_payload(step.payload or "{}", self._values(flow))
                run.definition = msgspec.structs.replace(run.definition, payload=payload)
        except Unresolved as error:
            if step.map is not None:
                flow.unlisted.add(run.run_id)
            self._engine.end(run, RunState.FAILED, str(error))
            return
        if step.map is None:
            self._engine.release(run)
            return
        fanout = flow.fanouts[run.run_id] = BoxFanout(run, items, range(len(items)))
        if before is not None:
            fanout.members = [member for member in before.members if member.status is RunState.SUCCESS]
            fanout.succeeded, done = len(fanout.members), {member.index for member in fanout.members}
            fanout.todo = [index for index in range(fanout.total) if index not in done]
        run.status, run.reason, run.started_at = RunState.RUNNING, None, self._engine.now
        self._expand(flow, place, fanout)

    def _values(self, flow: BoxFlow, **member: Any) -> Values:
        places = {step.name: place for place, step in enumerate(flow.steps)}

        def result(name: str) -> Any:
            run = flow.runs[places[name]]
            if run.status is RunState.FAILED and run.run_id in flow.fanouts:
                return _summary(flow.fanouts[run.run_id], wanted=True)
            if run.status is not RunState.SUCCESS:
                raise Unresolved(f"step {name} has no result: it ended {run.status}")
            return run.result

        return Values(result=result, parameters=flow.parameters, **member)

    # -- members of mapped steps

    def _items(self, flow: BoxFlow, step: StepDefinition) -> Sequence[Any]:
        mapped = step.map
        assert mapped is not None
        if mapped.range is not None:
            return range(*mapped.range)
        if mapped.workers is not None:
            return [None]  # the box is the only worker
        if mapped.items is not None:
            found: list[Any] = msgspec.json.decode(mapped.items)
            return found
        return mapped_list(mapped, self._values(flow))

    def _expand(self, flow: BoxFlow, place: int, fanout: BoxFanout) -> None:
        """Create members, as many as may be alive at once."""
        step = flow.steps[place]
        assert step.map is not None
        most = step.map.max_parallel or fanout.total
        while not fanout.closed and fanout.created < len(fanout.todo) and fanout.live < most:
            index = fanout.todo[fanout.created]
            run = self._engine.create_waiting(
                flow.run,
                step.job(),
                step_job_id(flow.run.job_id, step.name),
                f"{STEP_TRIGGER}{flow.run.run_id}:{len(self._of_step) + len(self._of_member)}",
            )
            run.index = index
            fanout.created += 1
            fanout.live += 1
            fanout.members.append(run)
            self._of_member[run.run_id] = fanout
            try:
                if step.refers:
                    values = self._values(flow, item=fanout.items[index], index=index, total=fanout.total)
                    payload = resolved_payload(step.payload or "{}", values)
                    run.definition = msgspec.structs.replace(run.definition, payload=payload)
            except Unresolved as error:
                self._engine.end(run, RunState.FAILED, str(error))
            else:
                self._engine.release(run)
        self._end_fanout(flow, place, fanout)

    def _member_ended(self, run: BoxRun) -> None:
        fanout = self._of_member[run.run_id]
        flow, place = self._of_step[fanout.run.run_id]
        fanout.live -= 1
        fanout.succeeded += run.status is RunState.SUCCESS
        fanout.failed += run.status in _FAILED
        fanout.skipped += run.status is RunState.SKIPPED
        mapped = flow.steps[place].map
        assert mapped is not None
        if mapped.max_failures is not None and fanout.failed > mapped.max_failures and not fanout.closed:
            self._stop_members(fanout, None, skip=True)
        self._expand(flow, place, fanout)

    def _stop_members(self, fanout: BoxFanout, reason: str | None, *, skip: bool = False) -> None:
        """Create no more members. Those that have not started end now."""
        fanout.closed = True
        fanout.skipped += len(fanout.todo) - fanout.created
        for member in fanout.members:
            if member.live and skip and member.status is not RunState.RUNNING:
                self._engine.end(member, RunState.SKIPPED, "too many members failed")
            elif member.live:
                self._engine.cancel(member, reason)

    def _end_fanout(self, flow: BoxFlow, place: int, fanout: BoxFanout) -> None:
        if not fanout.done or not fanout.run.live:
            return
        run, mapped = fanout.run, flow.steps[place].map
        assert mapped is not None
        if run.cancel_requested:
            self._engine.end(run, RunState.CANCELLED, run.cancel_reason or CANCELLED_WHILE_IT_RAN)
            return
        counts = Counts(fanout.total, fanout.succeeded, fanout.failed, fanout.skipped)
        if decide(Rule.CONTAINER, counts, mapped.max_failures or 0) is Decision.SUCCEED:
            run.result = _summary(fanout, wanted=flow.steps[place].name in flow.referred)
            self._engine.end(run, RunState.SUCCESS, None)
        else:
            self._engine.end(run, RunState.FAILED, f"{fanout.failed} of {fanout.total} members failed")

    # -- the end

    def _close(self, flow: BoxFlow) -> None:
        """End the workflow run, if all of its steps have ended."""
        if flow.live or not flow.run.live or any(run.live for run in flow.runs):
            return
        if flow.stopping is not None:
            self._engine.end(flow.run, RunState.CANCELLED, flow.stopping)
            return
        last = [flow.runs[place] for place in flow.version.definition.last]
        bad = [run for run in last if run.status in _FAILED or run.run_id in flow.causes]
        if not bad:
            self._engine.end(flow.run, RunState.SUCCESS, None)
            return
        first = min(bad, key=lambda run: run.end_number)
        self._engine.end(flow.run, RunState.FAILED, f"step {flow.causes[first.run_id]} failed")


def _maps_the_same(before: StepDefinition, now: StepDefinition) -> bool:
    """Whether a mapped step is mapped over the same list. Workers may be others."""
    if before.map is None or now.map is None or before.map.workers is not None:
        return False
    return (before.map.items, before.map.source, before.map.range) == (now.map.items, now.map.source, now.map.range)


def _is_good(flow: BoxFlow, run: BoxRun) -> bool:
    """Whether a step need not run again: it succeeded, or was skipped for no failure."""
    return run.status in (RunState.SUCCESS, RunState.SKIPPED) and run.run_id not in flow.causes


def _referred(steps: Iterable[StepDefinition]) -> set[str]:
    """The steps to whose results others refer."""
    found: set[str] = set()
    for step in steps:
        if step.refers:
            found |= {one.of for one in collect(msgspec.json.decode(step.payload or "{}")) if one.kind == FROM}
        if step.map is not None and step.map.source is not None:
            found.add(step.map.source.step)
    return found


def _summary(fanout: BoxFanout, *, wanted: bool) -> dict[str, Any]:
    """The result of a mapped step. Those of its members are a part of it if another step refers to it."""
    kept = wanted and fanout.total <= _RESULTS_KEPT
    results: list[Any] | None = None
    if kept:
        results = [None] * fanout.total
        for run in fanout.members:
            results[run.index or 0] = run.result
    if results is not None and len(msgspec.json.encode(results)) > _RESULTS_BYTES:
        results = None
    return {
        "total": fanout.total,
        "succeeded": fanout.succeeded,
        "failed": fanout.failed,
        "skipped": fanout.skipped,
        "results": results,
    }
