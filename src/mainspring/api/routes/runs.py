"""/v1/runs, /v1/queues, /v1/workers, /v1/dead-letters."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Response, get, post
from litestar.params import QueryParameter

from mainspring.api.routes.paging import DEFAULT_PAGE, MAX_PAGE, link_header, several
from mainspring.api.services import services_of, tenant_of
from mainspring.domain.errors import NotFound
from mainspring.domain.intake import parse_time
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.reader import RunQuery
from mainspring.wire.runs import DeadLetterList, DeadLetterView, QueueList, QueueView, RunList, RunView, Why, WorkerList

Http = Request[Any, Any, Any]
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)]


@get("/v1/runs", summary="Search runs, newest first", tags=["runs"])
async def list_runs(
    request: Http,
    status: list[str] | None = None,
    job: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    error: str | None = None,
    since: str | None = None,
    until: str | None = None,
    cursor: str | None = None,
    limit: Limit = DEFAULT_PAGE,
) -> Response[RunList]:
    query = RunQuery(
        several(status),
        job,
        queue,
        task,
        error,
        None if since is None else parse_time(since, "since"),
        None if until is None else parse_time(until, "until"),
        cursor,
        limit,
    )
    page = await services_of(request).reader.runs(tenant_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/runs/{run_id:str}", summary="One run", tags=["runs"])
async def get_run(request: Http, run_id: str) -> RunView:
    return await services_of(request).reader.run(tenant_of(request), _run_id(run_id))


@get("/v1/runs/{run_id:str}/why", summary="Why a run is not running, in a sentence", tags=["runs"])
async def why(request: Http, run_id: str) -> Why:
    return await services_of(request).reader.why(tenant_of(request), _run_id(run_id))


@post("/v1/runs/{run_and_verb:str}", status_code=202, summary="run_id:cancel", tags=["runs"])
async def act_on_run(request: Http, run_and_verb: str) -> RunView:
    run_id, _, verb = run_and_verb.rpartition(":")
    if verb != "cancel":
        raise NotFound(f"a run has no verb {verb!r}", code="no_such_route", hint="there is :cancel")
    return await _cancel(request, run_id)


@post("/v1/runs/{run_id:str}/cancel", status_code=202, summary="The same, as a path", tags=["runs"])
async def cancel_by_path(request: Http, run_id: str) -> RunView:
    return await _cancel(request, run_id)


@get("/v1/queues", summary="All queues", tags=["queues"])
async def list_queues(request: Http) -> QueueList:
    return await services_of(request).reader.queues(tenant_of(request))


@get("/v1/queues/{name:str}", summary="One queue: depth, oldest, rate", tags=["queues"])
async def get_queue(request: Http, name: str) -> QueueView:
    return await services_of(request).reader.queue(tenant_of(request), name)


@get("/v1/workers", summary="Workers that live, and those that ended within the hour", tags=["workers"])
async def list_workers(request: Http) -> WorkerList:
    return await services_of(request).reader.workers(tenant_of(request))


@get("/v1/dead-letters", summary="Runs that failed for good", tags=["dead letters"])
async def list_dead_letters(
    request: Http, cursor: str | None = None, limit: Limit = DEFAULT_PAGE
) -> Response[DeadLetterList]:
    page = await services_of(request).reader.dead_letters(tenant_of(request), cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/dead-letters/{run_id:str}", summary="One dead letter", tags=["dead letters"])
async def get_dead_letter(request: Http, run_id: str) -> DeadLetterView:
    return await services_of(request).reader.dead_letter(tenant_of(request), _run_id(run_id))


async def _cancel(request: Http, run_id: str) -> RunView:
    services, tenant = services_of(request), tenant_of(request)
    found = _run_id(run_id)
    await services.amender.cancel_run(tenant, found)
    return await services.reader.run(tenant, found)


def _run_id(text: str) -> UUID:
    run_id = parse_uuid(text)
    if run_id is None:
        raise NotFound(f"there is no run {text!r}", hint="a run_id is a UUID; see GET /v1/runs")
    return run_id


HANDLERS = [
    list_runs, get_run, why, act_on_run, cancel_by_path, list_queues, get_queue, list_workers, list_dead_letters,
    get_dead_letter,
]  # fmt: skip
