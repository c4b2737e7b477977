"""/v1/backfills, and /v1/jobs/{id}:backfill."""

from __future__ import annotations

from typing import Annotated

from mainspring.api.answers import CHANGES_A_JOB, LISTS, Answer
from mainspring.api.handlers import get, patch, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header, several
from mainspring.api.routes.versions import IfTag, etag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.operations.access.permissions import OPERATORS, READERS
from mainspring.wire.backfills import BackfillCancel, BackfillList, BackfillPatch, BackfillRequest, BackfillView
from mainspring.wire.jobs import Nothing
from mainspring.wire.states import BackfillStateFilter

Http = Request
States = Annotated[list[BackfillStateFilter] | None, QueryParameter(name="state")]
_CHANGES = (*CHANGES_A_JOB, "backfill_ended", "version_mismatch")


@post(
    "/{job_id:str}/backfill", verb="backfill", 
    summary="Make up for fires of the past", operation="jobs.backfill", reach=Reach.OBJECT, roles=OPERATORS,
    answers={201: Answer("The backfill. Its runs are created from now on.", headers=("Location",))},
    problems=(
        *CHANGES_A_JOB, "has_references", "invalid_range", "invalid_time", "job_cancelled", "missing_timezone",
        "is_a_step", "no_fires", "not_recurring", "too_many_backfills", "too_many_fires",
    ),
    examples=examples.BACKFILLS,
)  # fmt: skip
async def create_backfill(request: Http, job_id: str, data: BackfillRequest) -> Response[BackfillView]:
    """Every fire of the job's schedule from `from` on and before `to` becomes a run, unless it has one already,
    whatever became of that. At most `concurrency` of these runs are alive at once."""
    view = await services_of(request).backfills.create(caller_of(request), job_id, data)
    return Response(view, status_code=201, headers={"Location": f"/v1/backfills/{view.id}", **etag(view.etag)})


@get("/v1/backfills", summary="List backfills, newest first", operation="backfills.list", roles=READERS, problems=LISTS)
async def list_backfills(
    request: Http,
    job: str | None = None,
    in_state: States = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
) -> Response[BackfillList]:
    """All, those of a job, or those in some states."""
    states = several(in_state, "state")
    page = await services_of(request).backfills.backfills(caller_of(request), job, states, cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get(
    "/v1/backfills/{backfill_id:str}",
    summary="Get a backfill and its progress",
    operation="backfills.read",
    reach=Reach.OBJECT,
    roles=READERS,
)
async def get_backfill(request: Http, backfill_id: str) -> Response[BackfillView]:
    """The numbers are at most a second old. The ETag is for If-Match."""
    return _shown(await services_of(request).backfills.backfill(caller_of(request), backfill_id))


@patch(
    "/v1/backfills/{backfill_id:str}", 
    summary="Change a backfill's concurrency", operation="backfills.update", reach=Reach.OBJECT,
    roles=OPERATORS, problems=_CHANGES,
    examples=examples.BACKFILL_CHANGES,
)  # fmt: skip
async def patch_backfill(
    request: Http, backfill_id: str, data: BackfillPatch, if_tag: IfTag = None
) -> Response[BackfillView]:
    """If more of its runs are alive than the new number, no more are created until fewer are."""
    changes = services_of(request).backfills
    return _shown(await changes.change(caller_of(request), backfill_id, data.concurrency, tag_of(if_tag)))


@post(
    "/v1/backfills/{backfill_id:str}/pause", verb="pause", status_code=200,
    summary="Pause a backfill", operation="backfills.pause", reach=Reach.OBJECT, roles=OPERATORS, problems=_CHANGES,
)  # fmt: skip
async def pause_backfill(
    request: Http, backfill_id: str, data: Nothing | None = None, if_tag: IfTag = None
) -> Response[BackfillView]:
    """It creates no more runs. Those that exist continue. Pausing a paused backfill changes nothing."""
    return _shown(await services_of(request).backfills.pause(caller_of(request), backfill_id, tag_of(if_tag)))


@post(
    "/v1/backfills/{backfill_id:str}/resume", verb="resume", status_code=200,
    summary="Resume a backfill", operation="backfills.resume", reach=Reach.OBJECT, roles=OPERATORS, problems=_CHANGES,
)  # fmt: skip
async def resume_backfill(
    request: Http, backfill_id: str, data: Nothing | None = None, if_tag: IfTag = None
) -> Response[BackfillView]:
    """It continues where it was. Resuming one that is not paused changes nothing."""
    return _shown(await services_of(request).backfills.resume(caller_of(request), backfill_id, tag_of(if_tag)))


@post(
    "/v1/backfills/{backfill_id:str}/cancel", verb="cancel", status_code=200,
    summary="Cancel a backfill", operation="backfills.cancel", reach=Reach.OBJECT, roles=OPERATORS, problems=_CHANGES,
    examples=examples.BACKFILL_CANCELS,
)  # fmt: skip
async def cancel_backfill(
    request: Http, backfill_id: str, data: BackfillCancel | None = None, if_tag: IfTag = None
) -> Response[BackfillView]:
    """It creates no more runs, and those that no worker has taken end as CANCELLED. With `running` workers are told to
    stop the others too. A second call changes nothing else."""
    running, changes = data is not None and data.running, services_of(request).backfills
    return _shown(await changes.cancel(caller_of(request), backfill_id, running=running, if_match=tag_of(if_tag)))


def _shown(view: BackfillView) -> Response[BackfillView]:
    return Response(view, status_code=200, headers=etag(view.etag))


HANDLERS = [list_backfills, get_backfill, patch_backfill, pause_backfill, resume_backfill, cancel_backfill]
