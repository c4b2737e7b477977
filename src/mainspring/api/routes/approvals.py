"""/v1/approvals: steps of workflows that wait for a person."""

from __future__ import annotations

from mainspring.api.answers import LISTS, Answer
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.routes.runs import run_id_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import OWNERS, READERS
from mainspring.wire.approvals import ApprovalList, Approve, Decided, Reject

Http = Request
_DECISIONS = ("no_approval", "not_for_you", "run_ended")


@get(
    "/v1/approvals", summary="List steps that wait for you", operation="approvals.list", roles=READERS,
    reach=Reach.FILTERED, problems=LISTS,
)  # fmt: skip
async def list_approvals(
    request: Http, everybody: bool = False, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[ApprovalList]:
    """Newest first. With `everybody=true` also those that others decide. A page may have fewer than `limit`, or none,
    while `next` says that more may follow."""
    approvals = services_of(request).approvals
    page = await approvals.approvals(caller_of(request), everybody=everybody, cursor=cursor, limit=limit)
    return Response(page, headers=link_header(request, page.next))


@post(
    "/v1/approvals/{run_id:str}/approve", verb="approve", status_code=200, summary="Approve",
    operation="approvals.approve", roles=OWNERS, reach=Reach.OBJECT, problems=_DECISIONS,
    answers={200: Answer("The step has succeeded, and what follows it starts")}, examples=examples.APPROVES,
)  # fmt: skip
async def approve_step(request: Http, run_id: str, data: Approve | None = None) -> Decided:
    """Only one decision counts. Who has approved, why, and the fields are the result of the step."""
    return await services_of(request).approvals.approve(caller_of(request), run_id_of(run_id), data or Approve())


@post(
    "/v1/approvals/{run_id:str}/reject", verb="reject", status_code=200, summary="Reject",
    operation="approvals.reject", roles=OWNERS, reach=Reach.OBJECT, problems=_DECISIONS,
    answers={200: Answer("The step has failed")}, examples=examples.REJECTS,
)  # fmt: skip
async def reject_step(request: Http, run_id: str, data: Reject | None = None) -> Decided:
    """The step fails. Its reason says who has rejected it, and why. What follows it is skipped, by its rules."""
    return await services_of(request).approvals.reject(caller_of(request), run_id_of(run_id), data or Reject())


HANDLERS = [list_approvals, approve_step, reject_step]
