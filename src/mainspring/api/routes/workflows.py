"""/v1/workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET

from mainspring.api.answers import CHANGES_A_JOB, FIELDS_OF_A_JOB, QUOTAS, RUNS_NOW, SEARCHES, Answer
from mainspring.api.handlers import delete, get, patch, post, put
from mainspring.api.large_answers import LARGE_ANSWER, LargeResponse
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, MAX_GENERATION, PageLimit, link_header, several
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.api.workflow_bodies import MAX_WORKFLOW_BYTES, decode_workflow, decode_workflow_patch, undecoded
from mainspring.operations.access.permissions import OWNERS, READERS, SUBMITTERS
from mainspring.operations.paging.search import JobQuery
from mainspring.operations.workflows.reader import workflow_view
from mainspring.wire.jobs import Nothing, RunNowAccepted
from mainspring.wire.states import JobStatusFilter
from mainspring.wire.workflows import (
    WorkflowCheck,
    WorkflowCreated,
    WorkflowList,
    WorkflowPatch,
    WorkflowRequest,
    WorkflowRunNow,
    WorkflowView,
)

Http = Request
Generation = Annotated[int | None, QueryParameter(ge=1, le=MAX_GENERATION)]
_STEPS = (
    *FIELDS_OF_A_JOB, *QUOTAS, "cycle", "duplicate_step", "invalid_reference", "not_upstream", "unknown_parameter",
    "unknown_step",
)  # fmt: skip
_CHANGES = (
    *_STEPS, *CHANGES_A_JOB, "already_fired", "already_fired_for", "job_cancelled", "version_mismatch", "wrong_status",
)  # fmt: skip


@post(
    "/v1/workflows", decode=decode_workflow, request_max_body_size=MAX_WORKFLOW_BYTES,
    summary="Create a workflow", operation="workflows.create", roles=SUBMITTERS,
    answers={
        201: Answer("The workflow is stored.", headers=("Location",)),
        200: Answer("The existing workflow: the idempotency key was used by the same request.", ("Location",)),
    },
    problems=(*_STEPS, *CHANGES_A_JOB, "idempotency_key_reused", "job_exists"), examples=examples.WORKFLOWS,
)  # fmt: skip
async def create_workflow(request: Http, data: WorkflowRequest) -> Response[WorkflowCreated]:
    """A workflow is a job whose runs are graphs of steps. Its id is also that of the job. Without a schedule it runs by
    `:runNow` alone. Nothing is stored unless every step is valid, the names are unique, no steps wait for each other in
    a cycle, and references go to steps that come before."""
    done = await services_of(request).workflow_changes.create(caller_of(request), undecoded(data))
    workflow_id = done.job_ids[0]
    return Response(
        WorkflowCreated(workflow_id, done.generations[0], done.warnings),
        status_code=200 if done.repeated[0] else 201,
        headers={"Location": f"/v1/workflows/{workflow_id}"},
    )


@post(
    "/v1/workflows:validate", decode=decode_workflow, status_code=200,
    summary="Check a workflow without storing it", operation="workflows.validate", roles=READERS,
    request_max_body_size=MAX_WORKFLOW_BYTES, problems=_STEPS, examples=examples.WORKFLOWS,
)  # fmt: skip
async def check_workflow(request: Http, data: WorkflowRequest) -> WorkflowCheck:
    """Check a workflow as its creation does, and store nothing."""
    return await services_of(request).workflow_changes.validate(caller_of(request), undecoded(data))


@get(
    "/v1/workflows",
    summary="List workflows, newest first",
    operation="workflows.list",
    roles=READERS,
    problems=SEARCHES,
)
async def list_workflows(
    request: Http,
    status: list[JobStatusFilter] | None = None,
    q: str | None = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
) -> Response[WorkflowList]:
    """Without their steps. Without `status`: those that will fire, or run by hand."""
    query = JobQuery(several(status), text=q, cursor=cursor, limit=limit)
    page = await services_of(request).workflow_reader.workflows(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/v1/workflows/{workflow_id:str}",
    summary="Get a workflow with its steps",
    operation="workflows.read",
    roles=READERS,
)
async def get_workflow(
    request: Http, workflow_id: str, generation: Generation = None, definition: Generation = None
) -> Response[WorkflowView]:
    """The steps are as they were given. The ETag is its version, for If-Match. With `definition` the steps are those of
    an earlier `definition_version`, as long as it is stored; all else is as it is now."""
    caller, reader = caller_of(request), services_of(request).workflow_reader
    job = await reader.job(caller, workflow_id, generation)
    job.workflow_version = definition or job.workflow_version
    size = (await reader.brief(caller, job)).size
    if size < LARGE_ANSWER:
        return Response(await reader.workflow(caller, job), headers=etag(job.version))
    with await request.app.state.large_answers.take(caller.tenant, size) as turn:
        view = await reader.workflow(caller, job)
        return LargeResponse(view, turn.pop_all(), headers=etag(job.version))


@patch(
    "/v1/workflows/{workflow_id:str}", decode=decode_workflow_patch,
    summary="Change some fields of a workflow", operation="workflows.update", roles=SUBMITTERS,
    request_max_body_size=MAX_WORKFLOW_BYTES, problems=_CHANGES, examples=examples.WORKFLOW_CHANGES,
)  # fmt: skip
async def patch_workflow(
    request: Http, workflow_id: str, data: WorkflowPatch, if_match: IfMatch = None
) -> Response[WorkflowView]:
    """Fields that are not given keep their values. `steps` and `parameters` replace all of them. Runs that have fired
    keep the definition that they were fired with. Steps of more than 1 MiB are left out of the answer, here and in the
    answers of the verbs."""
    return await _change(request, workflow_id, data, if_match)


@put(
    "/v1/workflows/{workflow_id:str}", decode=decode_workflow_patch,
    summary="Change some fields of a workflow (as PATCH)", operation="workflows.update", roles=SUBMITTERS,
    request_max_body_size=MAX_WORKFLOW_BYTES, problems=_CHANGES, examples=examples.WORKFLOW_CHANGES,
)  # fmt: skip
async def put_workflow(
    request: Http, workflow_id: str, data: WorkflowPatch, if_match: IfMatch = None
) -> Response[WorkflowView]:
    """PUT does what PATCH does: fields that are not given keep their values."""
    return await _change(request, workflow_id, data, if_match)


@delete(
    "/v1/workflows/{workflow_id:str}", status_code=200, summary="Cancel a workflow and its live runs",
    operation="workflows.cancel", roles=OWNERS, problems=(*CHANGES_A_JOB, "version_mismatch"),
)  # fmt: skip
async def cancel_workflow(request: Http, workflow_id: str, if_match: IfMatch = None) -> Response[WorkflowView]:
    """It fires no more, and its live runs are cancelled with their steps. A second call changes nothing."""
    await services_of(request).workflow_changes.delete(caller_of(request), workflow_id, version_of(if_match))
    return await _changed(request, workflow_id)


@post(
    "/v1/workflows/{workflow_id:str}/pause", verb="pause", status_code=200,
    summary="Pause a workflow", operation="workflows.pause", roles=OWNERS,
    problems=(*CHANGES_A_JOB, "already_fired", "version_mismatch", "wrong_status"),
)  # fmt: skip
async def pause_workflow(
    request: Http, workflow_id: str, data: Nothing | None = None, if_match: IfMatch = None
) -> Response[WorkflowView]:
    """It does not fire until it is resumed. Runs that have fired go on."""
    await services_of(request).workflow_changes.pause(caller_of(request), workflow_id, version_of(if_match))
    return await _changed(request, workflow_id)


@post(
    "/v1/workflows/{workflow_id:str}/resume", verb="resume", status_code=200,
    summary="Resume a paused workflow", operation="workflows.resume", roles=OWNERS,
    problems=(*CHANGES_A_JOB, "already_fired", "not_paused", "version_mismatch"),
)  # fmt: skip
async def resume_workflow(
    request: Http, workflow_id: str, data: Nothing | None = None, if_match: IfMatch = None
) -> Response[WorkflowView]:
    """It continues from now."""
    await services_of(request).workflow_changes.resume(caller_of(request), workflow_id, version_of(if_match))
    return await _changed(request, workflow_id)


@post(
    "/v1/workflows/{workflow_id:str}/runNow", verb="runNow",
    status_code=202, summary="Run a workflow now",
    operation="workflows.run_now", roles=OWNERS,
    answers={
        202: Answer("The new run. It is SKIPPED if another run is alive and the workflow does not overlap."),
        200: Answer("The idempotency key was used before for this workflow: the run of that request."),
    },
    problems=(*RUNS_NOW, "unknown_parameter", "version_mismatch"), examples=examples.WORKFLOW_RUNS_NOW,
)  # fmt: skip
async def run_workflow_now(
    request: Http, workflow_id: str, data: WorkflowRunNow | None = None, if_match: IfMatch = None
) -> Response[RunNowAccepted]:
    """A run beside the schedule, with values for some of the parameters. The others keep those of the workflow."""
    services, caller = services_of(request), caller_of(request)
    version = version_of(if_match)
    ran = await services.workflow_changes.run_now(caller, workflow_id, data or WorkflowRunNow(), version)
    accepted = await services.run_reader.accepted(caller, workflow_id, ran.run_id)
    if not ran.repeated:
        needs = await services.workflow_run_reader.needs(caller, ran.run_id, LARGE_ANSWER)
        accepted.warnings = await services.offers.warnings(caller, needs)
    return Response(accepted, status_code=200 if ran.repeated else 202)


async def _change(request: Http, workflow_id: str, data: WorkflowPatch, if_match: str | None) -> Response[WorkflowView]:
    changes = services_of(request).workflow_changes
    warnings = await changes.update(caller_of(request), workflow_id, undecoded(data), version_of(if_match))
    return await _changed(request, workflow_id, warnings)


async def _changed(request: Http, workflow_id: str, warnings: Sequence[str] = ()) -> Response[WorkflowView]:
    """A workflow after a change. It has no steps if these are a large answer: the change must not be answered with
    429."""
    caller, reader = caller_of(request), services_of(request).workflow_reader
    job = await reader.job(caller, workflow_id)
    definition = await reader.brief(caller, job)
    small = definition.size < LARGE_ANSWER
    view = await reader.workflow(caller, job) if small else workflow_view(job, definition.steps)
    view.warnings = list(warnings) or UNSET
    return Response(view, status_code=200, headers=etag(view.version))


HANDLERS = [
    create_workflow, check_workflow, list_workflows, get_workflow, patch_workflow, put_workflow, cancel_workflow,
    pause_workflow, resume_workflow, run_workflow_now,
]  # fmt: skip
