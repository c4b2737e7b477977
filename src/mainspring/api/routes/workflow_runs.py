"""/v1/workflow-runs, and /v1/workflows/{id}/runs."""

from __future__ import annotations

from mainspring.api.answers import CHANGES_A_JOB, LISTS, Answer
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header, several
from mainspring.api.routes.runs import run_id_of
from mainspring.api.routes.versions import IfTag, etag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown
from mainspring.operations.access.permissions import OPERATORS, OWNERS, READERS
from mainspring.operations.workflows.run_reader import StepQuery
from mainspring.wire.states import RunStateFilter
from mainspring.wire.workflows import (
    DEFINITIONS,
    StepRunList,
    WorkflowRerun,
    WorkflowRunCancel,
    WorkflowRunList,
    WorkflowRunView,
)

Http = Request


@get(
    "/v1/workflows/{workflow_id:str}/runs", summary="List the runs of a workflow, newest first",
    operation="workflows.runs", roles=READERS, problems=LISTS,
)  # fmt: skip
async def list_workflow_runs(
    request: Http,
    workflow_id: str,
    status: list[RunStateFilter] | None = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
) -> Response[WorkflowRunList]:
    """With the number of steps in each state. A rerun of a run is not a run of its own. A page may have fewer runs than
    `limit`, or none, while `next` says that more may follow."""
    services, caller = services_of(request), caller_of(request)
    await services.workflow_reader.job(caller, workflow_id)
    page = await services.workflow_run_reader.runs(caller, workflow_id, several(status), cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/v1/workflow-runs/{run_id:str}", summary="Get a workflow run with its steps and edges",
    operation="workflow_runs.read", roles=READERS, problems=LISTS,
)  # fmt: skip
async def get_workflow_run(request: Http, run_id: str) -> Response[WorkflowRunView]:
    """Each step by its latest run, in the order of the definition. With more than 1,000 steps, `next` is the cursor of
    `/steps` where the others begin. The ETag is for If-Match."""
    return _shown(await services_of(request).workflow_run_reader.run(caller_of(request), run_id_of(run_id)), 200)


@get(
    "/v1/workflow-runs/{run_id:str}/steps", summary="List the steps of a workflow run, or the members of a map",
    operation="workflow_runs.steps", roles=READERS, problems=LISTS,
)  # fmt: skip
async def list_workflow_steps(
    request: Http,
    run_id: str,
    status: list[RunStateFilter] | None = None,
    name: str | None = None,
    members: bool = False,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
) -> Response[StepRunList]:
    """In the order of the definition. With `name` and `members=true`: the members of that step, by index. A page may
    have fewer than `limit`, or none, while `next` says that more may follow."""
    query = StepQuery(several(status), name, members, cursor, limit)
    page = await services_of(request).workflow_run_reader.steps(caller_of(request), run_id_of(run_id), query)
    return Response(page, headers=link_header(request, page.next))


@post(
    "/v1/workflow-runs/{run_id:str}/cancel", verb="cancel", status_code=202,
    summary="Cancel a workflow run with its steps", operation="workflow_runs.cancel", roles=OWNERS,
    answers={202: Answer("The workflow run. No step of it starts any more. It is CANCELLED when all have ended.")},
    problems=("run_ended", "version_mismatch"), examples=examples.WORKFLOW_CANCELS,
)  # fmt: skip
async def cancel_workflow_run(
    request: Http, run_id: str, data: WorkflowRunCancel | None = None, if_tag: IfTag = None
) -> Response[WorkflowRunView]:
    """Steps that wait end at once. Those that run are stopped by their workers. A second call changes nothing."""
    services, caller = services_of(request), caller_of(request)
    found = await services.workflow_run_reader.check(caller, run_id_of(run_id))
    reason = None if data is None else data.reason
    await services.workflow_runs.cancel(caller, found, reason, if_match=tag_of(if_tag))
    return _shown(await services.workflow_run_reader.run(caller, found), 202)


@post(
    "/v1/workflow-runs/{run_id:str}/rerun", verb="rerun", status_code=202,
    summary="Run a part of an ended workflow run again", operation="workflow_runs.rerun", roles=OPERATORS,
    answers={202: Answer("The workflow run, which runs again.")},
    problems=(*CHANGES_A_JOB, "nothing_to_rerun", "other_steps", "run_active", "unknown_step", "version_mismatch"),
    examples=examples.WORKFLOW_RERUNS,
)  # fmt: skip
async def rerun_workflow_run(
    request: Http, run_id: str, data: WorkflowRerun | None = None, if_tag: IfTag = None
) -> Response[WorkflowRunView]:
    """A named step with all that follows it; without one, the steps that did not succeed and what follows them. It
    stays the same workflow run. With `"definition": "current"` these steps take their settings from the workflow as it
    is now."""
    services, caller, again = services_of(request), caller_of(request), data or WorkflowRerun()
    found = await services.workflow_run_reader.check(caller, run_id_of(run_id))
    definition = definition_of(again)
    await services.workflow_runs.rerun(caller, found, again.from_, definition, if_match=tag_of(if_tag))
    return _shown(await services.workflow_run_reader.run(caller, found), 202)


def _shown(view: WorkflowRunView, status: int) -> Response[WorkflowRunView]:
    return Response(view, status_code=status, headers=etag(view.etag))


def definition_of(again: WorkflowRerun) -> str:
    word = again.definition.lower()
    if word not in DEFINITIONS:
        raise InvalidInput(
            f"{shown(again.definition)} is not known", field="definition", expected=" or ".join(DEFINITIONS)
        )
    return word


HANDLERS = [list_workflow_runs, get_workflow_run, list_workflow_steps, cancel_workflow_run, rerun_workflow_run]
