"""/v1/runs."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from mainspring.api.answers import REPEATS_A_RUN, SEARCHES, Answer
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.routes.paging import (
    DEFAULT_PAGE,
    MAX_GENERATION,
    ListView,
    PageLimit,
    label_filter,
    link_header,
    payload_filter,
    several,
    time_filter,
    worker_filter,
)
from mainspring.api.routes.versions import IfTag, etag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.domain.errors import NotFound
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.permissions import OPERATORS, OWNERS, READERS
from mainspring.operations.paging.search import RunQuery
from mainspring.wire.formats import Moment
from mainspring.wire.jobs import Nothing
from mainspring.wire.runs import ReplayRequest, RunList, RunRows, RunView, TimelineEntry, Why
from mainspring.wire.states import RunStateFilter

Http = Request
Generation = Annotated[int | None, QueryParameter(ge=1, le=MAX_GENERATION)]


@get(
    "/v1/runs", summary="Search runs, newest first", operation="runs.list", reach=Reach.FILTERED,
    roles=READERS, problems=SEARCHES,
    payload_keys=True,
    answers={200: Answer("The runs; with `view=row`, their rows.", body=RunList, or_body=RunRows)},
)  # fmt: skip
async def list_runs(
    request: Http,
    status: list[RunStateFilter] | None = None,
    job: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    error: str | None = None,
    label: str | None = None,
    worker: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    scheduled_after: Moment | None = None,
    scheduled_before: Moment | None = None,
    created_after: Moment | None = None,
    created_before: Moment | None = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
    generation: Generation = None,
    created_by: str | None = None,
    view: ListView = "full",
) -> Response[Any]:
    """Live runs and ended ones, page by page. All filters that are given must match. `since` and `until` are other
    names of `scheduled_after` and `scheduled_before`: when the run was due. `created_after` and `created_before`: when
    it was fired or submitted. Times from `_after` on, and before `_before`. `worker`: the id of the worker that runs
    the last attempt, or has run it. `payload.account=42`: the value of a key of the payload that the job or its task
    declares with `search`."""
    query = RunQuery(
        several(status),
        job,
        queue,
        task,
        error,
        time_filter(since, "since"),
        time_filter(until, "until"),
        cursor,
        limit,
        label=label_filter(label),
        scheduled_after=time_filter(scheduled_after, "scheduled_after"),
        scheduled_before=time_filter(scheduled_before, "scheduled_before"),
        created_after=time_filter(created_after, "created_after"),
        created_before=time_filter(created_before, "created_before"),
        generation=generation,
        worker_id=worker_filter(worker),
        created_by=created_by,
        payload=payload_filter(request.query_pairs()),
    )
    reader = services_of(request).run_reader
    read = reader.rows if view == "row" else reader.runs
    page = await read(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/runs/{run_id:str}", summary="Get a run", operation="runs.read", reach=Reach.OBJECT, roles=READERS)
async def get_run(request: Http, run_id: str) -> Response[RunView]:
    """A live run or an ended one. Ended runs are kept for 30 days, or as the server is set. The ETag is for
    If-Match."""
    view = await services_of(request).run_reader.run(caller_of(request), run_id_of(run_id))
    return Response(view, headers=etag(view.etag))


@get("/v1/runs/{run_id:str}/why", summary="Explain why a run is not running", operation="runs.why", roles=READERS)
async def explain_run(request: Http, run_id: str) -> Why:
    """One sentence: what the run waits for, or how it ended."""
    return await services_of(request).run_reader.why(caller_of(request), run_id_of(run_id))


@get(
    "/v1/runs/{run_id:str}/timeline", summary="List the states of a run with time, node and worker",
    operation="runs.timeline", reach=Reach.OBJECT, roles=READERS,
)  # fmt: skip
async def get_run_timeline(request: Http, run_id: str) -> list[TimelineEntry]:
    """From the submission to the end, with every attempt, oldest first."""
    return await services_of(request).run_reader.timeline(caller_of(request), run_id_of(run_id))


@post(
    "/v1/runs/{run_id:str}/cancel", verb="cancel", status_code=202,
    summary="Cancel a run", operation="runs.cancel", reach=Reach.OBJECT, roles=OWNERS,
    answers={202: Answer("The run. It is CANCELLED, or its worker has been told to stop it.")},
    problems=("run_ended", "version_mismatch"),
)  # fmt: skip
async def cancel_run(
    request: Http, run_id: str, data: Nothing | None = None, if_tag: IfTag = None
) -> Response[RunView]:
    """A run that waits ends at once. One that runs is stopped by its worker. Cancelling a cancelled run changes
    nothing."""
    services, caller, found = services_of(request), caller_of(request), run_id_of(run_id)
    await services.amender.cancel_run(caller, found, if_match=tag_of(if_tag))
    view = await services.run_reader.run(caller, found)
    return Response(view, status_code=202, headers=etag(view.etag))


@post(
    "/v1/runs/{run_id:str}/retry", verb="retry", status_code=202,
    summary="Run an ended run again", operation="runs.retry", reach=Reach.OBJECT,
    roles=OPERATORS, answers={202: Answer("The new run.")},
    problems=(*REPEATS_A_RUN, "run_alive", "version_mismatch"), examples=examples.REPLAYS,
)  # fmt: skip
async def retry_run(
    request: Http, run_id: str, data: ReplayRequest | None = None, if_tag: IfTag = None
) -> Response[RunView]:
    """A new run for the same fire time, with the payload of the old one, or with another if one is given."""
    services, caller, again = services_of(request), caller_of(request), data or ReplayRequest()
    services.quota_guard.check_payload(caller, again.payload)
    replay_id = await services.replayer.retry_run(caller, run_id_of(run_id), again.payload, tag_of(if_tag))
    view = await services.run_reader.run(caller, replay_id)
    return Response(view, status_code=202, headers=etag(view.etag))


def run_id_of(text: str) -> UUID:
    run_id = parse_uuid(text)
    if run_id is None:
        raise NotFound(f"there is no run {text!r}", hint="a run_id is a UUID; see GET /v1/runs")
    return run_id


HANDLERS = [list_runs, get_run, explain_run, get_run_timeline, cancel_run, retry_run]
