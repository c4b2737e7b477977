"""The routes of a box's local server for workflows and their runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from mainspring.domain.errors import Conflict, InvalidInput, MainspringError, NotFound
from mainspring.domain.intake.declaration import TaskDeclaration
from mainspring.domain.intake.patch import amend
from mainspring.domain.intake.workflows import (
    WorkflowSource,
    define_workflow,
    parameters_as_payload,
    patch_of_job,
    renamed,
    run_parameters,
    with_version,
)
from mainspring.domain.job import Overlap
from mainspring.domain.refusals import overlaps
from mainspring.domain.state_names import named_states, named_statuses
from mainspring.domain.tags import check_tag
from mainspring.domain.texts import meant, shown
from mainspring.domain.transitions import JobStatus
from mainspring.domain.workflows.graph import layers
from mainspring.sdk.client.core import Call
from mainspring.sdk.testing.call_parsing import Route, read_body, read_page, wanted_tag, wanted_version
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.flows import BoxFlow, BoxVersion, BoxWorkflow, Flows
from mainspring.sdk.testing.local_calendars import LocalCalendars
from mainspring.sdk.testing.local_jobs import LocalJobs
from mainspring.sdk.testing.records import BoxJob, BoxRun
from mainspring.sdk.testing.workflow_views import (
    brief_run_view,
    flow_view,
    member_views,
    parameters_of,
    step_view,
    workflow_view,
)
from mainspring.sdk.workflows.reading import read_steps
from mainspring.wire.jobs import RunNowAccepted, RunNowRequest
from mainspring.wire.workflows import (
    StepRunList,
    StepRunView,
    WorkflowCheck,
    WorkflowCreated,
    WorkflowList,
    WorkflowPatch,
    WorkflowRequest,
    WorkflowRerun,
    WorkflowRunCancel,
    WorkflowRunList,
    WorkflowRunNow,
    WorkflowRunView,
    WorkflowView,
)

_YET_TO_FIRE = [JobStatus.SCHEDULED, JobStatus.PAUSED]
_OF_A_DEFINITION = ("steps", "parameters", "queue", "priority")
_SHOWN = 100


class LocalWorkflows:
    def __init__(
        self, engine: Engine, known: dict[str, TaskDeclaration], jobs: LocalJobs, calendars: LocalCalendars
    ) -> None:
        self._engine = engine
        self._known = known
        self._jobs = jobs
        self._calendars = calendars
        self._flows = Flows(engine)

    def routes(self) -> dict[str, Route]:
        return {
            "POST workflows": self._create,
            "POST workflows:validate": self._check,
            "GET workflows": self._list,
            "GET workflows/{}": lambda workflow_id, _: self._view(workflow_id),
            "PUT workflows/{}": self._update,
            "PATCH workflows/{}": self._update,
            "DELETE workflows/{}": lambda workflow_id, call: self._of_job("DELETE jobs/{}", workflow_id, call),
            "POST workflows/{}:pause": lambda workflow_id, call: self._of_job("POST jobs/{}:pause", workflow_id, call),
            "POST workflows/{}:resume": lambda workflow_id, call: self._of_job(
                "POST jobs/{}:resume", workflow_id, call
            ),
            "POST workflows/{}:runNow": self._run_now,
            "GET workflows/{}/runs": self._runs,
            "GET workflow-runs/{}": lambda run_id, _: self._run_view(run_id),
            "GET workflow-runs/{}/steps": self._steps,
            "POST workflow-runs/{}:cancel": self._cancel,
            "POST workflow-runs/{}:rerun": self._rerun,
        }

    # -- workflows

    def _create(self, _: str, call: Call[Any]) -> WorkflowCreated:
        request = read_body(call, WorkflowRequest)
        definition = define_workflow(request, self._engine.now)
        version = self._version(1, _source(request), request.parameters or {})
        definition = self._calendars.resolved(definition)
        if definition.job_id is None:
            definition = msgspec.structs.replace(definition, job_id=self._engine.new_id())
        workflow_id = definition.job_id
        assert workflow_id is not None

        def also() -> None:
            self._flows.workflows[workflow_id] = BoxWorkflow(version)  # "now" starts a run of it at once

        made = self._jobs.add(request, with_version(definition, 1), also)
        return WorkflowCreated(made.job_id, made.generation)

    def _check(self, _: str, call: Call[Any]) -> WorkflowCheck:
        request = read_body(call, WorkflowRequest)
        define_workflow(request, self._engine.now)
        definition = read_steps(_source(request), self._engine.now, self._known, request.parameters or {})
        graph = definition.graph()
        return WorkflowCheck(
            steps=len(definition.steps),
            edges=graph.edges,
            layers=max(layers(graph)) + 1,
            first=[name for name, join in zip(graph.names, graph.waits_for, strict=True) if join is None][:_SHOWN],
            last=[graph.names[step] for step in definition.last[:_SHOWN]],
        )

    def _list(self, _: str, call: Call[Any]) -> WorkflowList:
        asked = dict(call.params)
        wanted = named_statuses(_several(asked.get("status"))) or _YET_TO_FIRE
        text = asked.get("q", "").lower()
        found = [
            job
            for job in reversed(self._engine.jobs.values())
            if job.job_id in self._flows.workflows
            and job.shown_status in wanted
            and ("status" in asked or not job.has_fired)
            and (text in (job.definition.name or "").lower() or text in job.job_id.lower())
        ]
        page, following = read_page(found, call)
        views = [workflow_view(job, self._flows.workflows[job.job_id], with_steps=False) for job in page]
        return WorkflowList(views, following)

    def _update(self, workflow_id: str, call: Call[Any]) -> WorkflowView:
        patch = read_body(call, WorkflowPatch)
        job, workflow = self._workflow(workflow_id)
        job_patch = patch_of_job(patch)
        prepared: BoxVersion | None = None
        if any(getattr(patch, name) is not UNSET for name in _OF_A_DEFINITION):
            before = workflow.version.source
            source = WorkflowSource(
                steps=before.steps if patch.steps is UNSET else patch.steps,
                queue=before.queue if patch.queue is UNSET else patch.queue,
                priority=before.priority if patch.priority is UNSET else patch.priority,
            )
            parameters = parameters_of(job) if patch.parameters is UNSET else patch.parameters or {}
            prepared = self._version(workflow.version.number + 1, source, parameters)
        elif job_patch is None:
            raise InvalidInput("the body contains no field to change", field="$", hint='such as {"priority": "high"}')
        try:
            self._jobs.change(
                workflow_id, call, lambda stored, now: stored if job_patch is None else amend(stored, job_patch, now)
            )
        except MainspringError as error:
            raise renamed(error) from None
        if prepared is not None:
            workflow.version = prepared
            job.definition = with_version(job.definition, prepared.number)
        return self._view(workflow_id)

    def _run_now(self, workflow_id: str, call: Call[Any]) -> RunNowAccepted:
        given = read_body(call, WorkflowRunNow)
        job, _ = self._workflow(workflow_id)
        payload = msgspec.Raw()
        if given.parameters is not None:
            payload = parameters_as_payload(run_parameters(parameters_of(job), given.parameters))
        request = RunNowRequest(payload=payload, idempotency_key=given.idempotency_key)
        return self._jobs.run_now(workflow_id, request, wanted_version(call))

    def _of_job(self, route: str, workflow_id: str, call: Call[Any]) -> WorkflowView:
        """What happens to the job of the workflow."""
        self._workflow(workflow_id)
        self._jobs.routes()[route](workflow_id, call)
        return self._view(workflow_id)

    # -- runs

    def _runs(self, workflow_id: str, call: Call[Any]) -> WorkflowRunList:
        job, workflow = self._workflow(workflow_id)
        states = named_states(_several(dict(call.params).get("status")))
        found = [run for run in reversed(job.runs) if not states or run.status in states]
        page, following = read_page(found, call)
        views = [brief_run_view(self._flows.flows.get(run.run_id), run, workflow) for run in page]
        return WorkflowRunList(views, following)

    def _run_view(self, run_id: str) -> WorkflowRunView:
        run, workflow = self._workflow_run(run_id)
        return flow_view(self._flows.flows.get(run_id), run, workflow)

    def _steps(self, run_id: str, call: Call[Any]) -> StepRunList:
        self._workflow_run(run_id)
        asked, flow = dict(call.params), self._flows.flows.get(run_id)
        states = named_states(_several(asked.get("status")))
        found = [] if flow is None else self._asked_steps(flow, asked)
        page, following = read_page([step for step in found if not states or step.status in states], call)
        return StepRunList(page, following)

    def _asked_steps(self, flow: BoxFlow, asked: dict[str, str]) -> Iterable[StepRunView]:
        if "name" not in asked:
            return [step_view(flow, place) for place in range(len(flow.steps))]
        place = _place(flow, asked["name"])
        return member_views(flow, place) if asked.get("members") == "true" else [step_view(flow, place)]

    def _cancel(self, run_id: str, call: Call[Any]) -> WorkflowRunView:
        run, _ = self._workflow_run(run_id)
        check_tag("workflow run", self._run_view(run_id).etag, wanted_tag(call))
        if run.live:
            self._engine.cancel(run, read_body(call, WorkflowRunCancel).reason)
        elif run.status != "CANCELLED":
            raise Conflict(f"workflow run {run_id} has ended with {run.status}", code="run_ended")
        return self._run_view(run_id)

    def _rerun(self, run_id: str, call: Call[Any]) -> WorkflowRunView:
        given = read_body(call, WorkflowRerun)
        _, workflow = self._workflow_run(run_id)
        flow = self._flows.flows.get(run_id)
        if flow is None:
            raise Conflict(f"workflow run {run_id} has not started", code="run_active", hint="wait for its end")
        check_tag("workflow run", self._run_view(run_id).etag, wanted_tag(call))
        self._flows.check_ended(flow)
        job = self._engine.jobs[flow.run.job_id]
        if job.live and job.definition.overlap is not Overlap.ALLOW:
            raise overlaps(run_id)
        start = None if given.from_ is None else _start(flow, given.from_)
        current = workflow.version if given.definition == "current" else None
        if current is not None and not _same_graph(flow, current):
            raise Conflict(
                "the current definition has other steps or dependencies", code="other_steps",
                hint="rerun with the definition that the run was fired with, or start a new run",
            )  # fmt: skip
        self._flows.rerun(flow, start, current)
        return self._run_view(run_id)

    # -- inside

    def _version(self, number: int, source: WorkflowSource, parameters: dict[str, Any]) -> BoxVersion:
        return BoxVersion(number, source, read_steps(source, self._engine.now, self._known, parameters))

    def _view(self, workflow_id: str) -> WorkflowView:
        return workflow_view(*self._workflow(workflow_id))

    def _workflow(self, workflow_id: str) -> tuple[BoxJob, BoxWorkflow]:
        if workflow_id not in self._engine.jobs:
            raise NotFound(f"there is no job {workflow_id!r}", hint="see GET /v1/jobs")
        if workflow_id not in self._flows.workflows:
            raise NotFound(f"job {workflow_id!r} is not a workflow", hint=f"see GET /v1/jobs/{workflow_id}")
        return self._engine.jobs[workflow_id], self._flows.workflows[workflow_id]

    def _workflow_run(self, run_id: str) -> tuple[BoxRun, BoxWorkflow]:
        run = self._engine.runs.get(run_id)
        workflow = None if run is None else self._flows.workflows.get(run.job_id)
        if run is None or workflow is None:
            raise NotFound(f"there is no workflow run {run_id}", hint="see GET /v1/workflows")
        return run, workflow


def _source(request: WorkflowRequest) -> WorkflowSource:
    return WorkflowSource(request.steps, request.queue, request.priority)


def _place(flow: BoxFlow, name: str) -> int:
    """The place of the step with this name."""
    if name not in flow.graph.names:
        hint = "see GET /v1/workflow-runs/{run_id}/steps"
        raise NotFound(f"there is no step {name!r}", field="name", hint=hint)
    return flow.graph.names.index(name)


def _start(flow: BoxFlow, name: str) -> int:
    """The place of the step with which a rerun begins."""
    if name not in flow.graph.names:
        raise InvalidInput(
            f"there is no step {shown(name)}", code="unknown_step", field="from",
            hint=meant(name, flow.graph.names, "name a step of this workflow run"),
        )  # fmt: skip
    return flow.graph.names.index(name)


def _same_graph(flow: BoxFlow, version: BoxVersion) -> bool:
    graph = version.definition.graph()
    return (
        graph.names == flow.graph.names
        and graph.joins == flow.graph.joins
        and (graph.waits_for == flow.graph.waits_for)
    )


def _several(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]
