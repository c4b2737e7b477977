"""Workflows and their runs in a box as the clients of a server would see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from mainspring.domain.tags import workflow_run_tag
from mainspring.domain.transitions import RunState
from mainspring.sdk.testing.flows import BoxFlow, BoxWorkflow
from mainspring.sdk.testing.records import BoxJob, BoxRun
from mainspring.sdk.testing.views import job_view
from mainspring.wire.jobs import JobView
from mainspring.wire.workflows import (
    MapProgress,
    StepRunView,
    WorkflowRunBrief,
    WorkflowRunView,
    WorkflowView,
)

MOST_STEPS = 1000
_SHARED = tuple(
    name for name in WorkflowView.__struct_fields__ if name in JobView.__struct_fields__ and name != "timeout"
)


def workflow_view(job: BoxJob, workflow: BoxWorkflow, *, with_steps: bool = True) -> WorkflowView:
    view, source = job_view(job), workflow.version.source
    return WorkflowView(
        workflow_id=view.job_id,
        timeout=view.run_timeout,
        parameters=parameters_of(job),
        step_count=len(source.steps),
        definition_version=workflow.version.number,
        steps=source.steps if with_steps else [],
        **{name: getattr(view, name) for name in _SHARED},
    )


def parameters_of(job: BoxJob) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(job.definition.payload or "{}")
    return found


def brief_run_view(flow: BoxFlow | None, run: BoxRun, workflow: BoxWorkflow) -> WorkflowRunBrief:
    return WorkflowRunBrief(**_of_run(flow, run, workflow))


def flow_view(flow: BoxFlow | None, run: BoxRun, workflow: BoxWorkflow) -> WorkflowRunView:
    """A workflow run with its first 1,000 steps."""
    shown = 0 if flow is None else flow.graph.page_end(0, min(MOST_STEPS, len(flow.steps)))
    steps = [] if flow is None else [step_view(flow, place) for place in range(shown)]
    more = flow is not None and len(flow.steps) > len(steps)
    return WorkflowRunView(
        **_of_run(flow, run, workflow),
        parameters=msgspec.json.decode(run.definition.payload or "{}"),
        steps=steps,
        edges=[[parent, step.name] for step in steps for parent in step.depends_on],
        next=str(len(steps)) if more else None,
        etag=workflow_run_tag(ended=not run.live, reruns=0 if flow is None else flow.reruns),
    )


def step_view(flow: BoxFlow, place: int) -> StepRunView:
    step, run = flow.steps[place], flow.runs[place]
    fanout = flow.fanouts.get(run.run_id)
    progress = None
    if run.run_id in flow.unlisted:
        progress = MapProgress(None, 0, 0, 0, 0)
    elif fanout is not None:
        progress = MapProgress(fanout.total, fanout.have_runs, fanout.succeeded, fanout.failed, fanout.skipped)
    parents = [flow.steps[parent].name for parent in flow.graph.parents(place)]
    return _view(flow, run, step.name, parents, progress)


def member_views(flow: BoxFlow, place: int) -> Iterator[StepRunView]:
    """The members of a mapped step, in their order."""
    fanout = flow.fanouts.get(flow.runs[place].run_id)
    for member in () if fanout is None else sorted(fanout.members, key=lambda run: run.index or 0):
        yield _view(flow, member, flow.steps[place].name, [], None)


def _view(flow: BoxFlow, run: BoxRun, name: str, parents: list[str], progress: MapProgress | None) -> StepRunView:
    ended = not run.live
    return StepRunView(
        name=name,
        task=run.task,
        status=run.status.value,
        run_id=run.run_id,
        reason=run.reason,
        attempt_number=run.attempt,
        max_attempts=run.max_attempts,
        created_at=run.created_at,
        start_time=run.started_at,
        end_time=run.ended_at,
        duration=(run.ended_at - run.started_at).total_seconds() if run.ended_at and run.started_at else None,
        error_message=run.error if ended else None,
        rerun=flow.rerun_of.get(run.run_id, 0),
        depends_on=parents,
        map=progress,
        index=run.index,
    )


def _of_run(flow: BoxFlow | None, run: BoxRun, workflow: BoxWorkflow) -> dict[str, Any]:
    version = workflow.version if flow is None else flow.version
    counts = Counter() if flow is None else Counter(one.status.value for one in flow.runs)
    started = run.started_at
    return {
        "run_id": run.run_id,
        "workflow_id": run.job_id,
        "name": run.definition.name or run.job_id,
        "status": run.status.value,
        "reason": run.reason,
        "trigger": run.trigger,
        "scheduled_for": run.scheduled_for,
        "created_at": run.created_at,
        "start_time": started,
        "end_time": run.ended_at,
        "duration": (run.ended_at - started).total_seconds() if run.ended_at and started else None,
        "definition_version": version.number,
        "generation": run.generation,
        "step_count": len(version.source.steps),
        "counts": {state.value: counts[state.value] for state in RunState if counts[state.value]},
        "reruns": 0 if flow is None else flow.reruns,
    }
