"""One verb on many: /v1/jobs:act, /v1/runs:act, /v1/dead-letters:act; and /v1/operations."""

from __future__ import annotations

from typing import Annotated

from mainspring.api.answers import LISTS, SEARCHES, Answer
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header, several
from mainspring.api.routes.versions import IfTag, etag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.domain.bulk import Target
from mainspring.operations.access.permissions import OPERATORS, READERS
from mainspring.wire.bulk import Act, Counted, DeadLettersAct, JobsAct, OperationList, OperationView, RunsAct
from mainspring.wire.jobs import Nothing
from mainspring.wire.states import BulkStateFilter

Http = Request
States = Annotated[list[BulkStateFilter] | None, QueryParameter(name="state")]
_ACTS = (*SEARCHES, "count_changed", "too_many_operations")
_ANSWERS = {
    202: Answer("The operation. It is carried out from now on.", headers=("Location",), body=OperationView),
    200: Answer("A dry run: how many are chosen.", body=Counted),
}


@post(
    ["/v1/jobs:act", "/jobs:act"], status_code=202, summary="Act on many jobs",
    operation="jobs.act", reach=Reach.FILTERED,
    roles=OPERATORS, answers=_ANSWERS, problems=_ACTS, examples=examples.JOBS_ACTS,
)  # fmt: skip
async def act_on_jobs(request: Http, data: JobsAct) -> Response[OperationView | Counted]:
    """Pause, resume, cancel or run now what a filter matches, or what `ids` name. Count it first with `dry_run`. The
    filter is applied when the turn of a job comes; jobs that are created later are not touched."""
    return await _act(request, Target.JOBS, data)


@post(
    "/v1/runs:act", status_code=202, summary="Act on many runs",
    operation="runs.act", reach=Reach.FILTERED,
    roles=OPERATORS, answers=_ANSWERS, problems=_ACTS, examples=examples.RUNS_ACTS,
)  # fmt: skip
async def act_on_runs(request: Http, data: RunsAct) -> Response[OperationView | Counted]:
    """Cancel runs that have not ended, or run ended ones again."""
    return await _act(request, Target.RUNS, data)


@post(
    "/v1/dead-letters:act", status_code=202, summary="Act on many dead letters",
    operation="dead_letters.act", reach=Reach.FILTERED,
    roles=OPERATORS, answers=_ANSWERS, problems=_ACTS, examples=examples.LETTERS_ACTS,
)  # fmt: skip
async def act_on_dead_letters(request: Http, data: DeadLettersAct) -> Response[OperationView | Counted]:
    """Replay or discard them."""
    return await _act(request, Target.DEAD_LETTERS, data)


@get(
    "/v1/operations",
    summary="List operations, newest first",
    operation="operations.list",
    reach=Reach.FILTERED,
    roles=READERS,
    problems=LISTS,
)
async def list_operations(
    request: Http, in_state: States = None, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[OperationList]:
    """All, or those in some states."""
    states = several(in_state, "state")
    page = await services_of(request).bulk.operations(caller_of(request), states, cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/v1/operations/{operation_id:str}",
    summary="Get an operation and its progress",
    operation="operations.read",
    reach=Reach.FILTERED,
    roles=READERS,
)
async def get_operation(request: Http, operation_id: str) -> Response[OperationView]:
    """What is done is stored together with these numbers. The ETag is for If-Match."""
    view = await services_of(request).bulk.operation(caller_of(request), operation_id)
    return Response(view, headers=etag(view.etag))


@post(
    "/v1/operations/{operation_id:str}/cancel",
    verb="cancel",
    status_code=200,
    summary="Cancel an operation",
    operation="operations.cancel",
    reach=Reach.FILTERED,
    roles=OPERATORS,
    problems=("operation_ended", "version_mismatch"),
)
async def cancel_operation(
    request: Http, operation_id: str, data: Nothing | None = None, if_tag: IfTag = None
) -> Response[OperationView]:
    """What is done stays done, and the rest is left as it is. A second call changes nothing."""
    view = await services_of(request).bulk.cancel(caller_of(request), operation_id, tag_of(if_tag))
    return Response(view, status_code=200, headers=etag(view.etag))


async def _act(request: Http, target: Target, data: Act) -> Response[OperationView | Counted]:
    answer = await services_of(request).bulk.act(caller_of(request), target, data)
    if isinstance(answer, Counted):
        return Response(answer, status_code=200)
    return Response(answer, status_code=202, headers={"Location": f"/v1/operations/{answer.id}"})


HANDLERS = [act_on_jobs, act_on_runs, act_on_dead_letters, list_operations, get_operation, cancel_operation]
