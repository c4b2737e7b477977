"""/v1/runs, /v1/queues and the list of /v1/workers."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Response, get, post
from litestar.params import QueryParameter

from mainspring.api.bodies import ReplayBody
from mainspring.api.routes.paging import (
    DEFAULT_PAGE,
    MAX_GENERATION,
    MAX_PAGE,
    label_filter,
    link_header,
    several,
    time_filter,
)
from mainspring.api.services import caller_of, services_of
from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.read.search import RunQuery
from mainspring.wire.runs import QueueList, QueueView, ReplayRequest, RunList, RunView, TimelineEntry, Why, WorkerList

Http = Request[Any, Any, Any]
_VERBS = {"cancel": "runs.cancel", "retry": "runs.retry"}
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)]
Generation = Annotated[int | None, QueryParameter(ge=1, le=MAX_GENERATION)]


@get(
    "/v1/runs",
    summary="Search runs, newest first",
    description="`since` and `until` are other names of `scheduled_after` and `scheduled_before`: when the run was "
    "due. `created_after` and `created_before`: when it was fired or submitted. Times from `_after` on, and before "
    "`_before`.",
    tags=["runs"],
    operation="runs.list",
)
async def list_runs(
    request: Http,
    status: list[str] | None = None,
    job: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    error: str | None = None,
    label: str | None = None,
    since: str | None = None,
    until: str | None = None,
    scheduled_after: str | None = None,
    scheduled_before: str | None = None,
    created_after: str | None = None,
    created_before: str | None = None,
    cursor: str | None = None,
    limit: Limit = DEFAULT_PAGE,
    generation: Generation = None,
) -> Response[RunList]:
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
    )
    page = await services_of(request).run_reader.runs(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/runs/{run_id:str}", summary="Get a run", tags=["runs"], operation="runs.read")
async def get_run(request: Http, run_id: str) -> RunView:
    return await services_of(request).run_reader.run(caller_of(request), run_id_of(run_id))


@get(
    "/v1/runs/{run_id:str}/why",
    summary="Explain in one sentence why a run is not running",
    tags=["runs"],
    operation="runs.why",
)
async def why(request: Http, run_id: str) -> Why:
    return await services_of(request).run_reader.why(caller_of(request), run_id_of(run_id))


@get(
    "/v1/runs/{run_id:str}/timeline",
    summary="List the states of a run with time, node and worker",
    tags=["runs"],
    operation="runs.timeline",
)
async def timeline(request: Http, run_id: str) -> list[TimelineEntry]:
    return await services_of(request).run_reader.timeline(caller_of(request), run_id_of(run_id))


@post(
    "/v1/runs/{run_and_verb:str}", dto=ReplayBody, return_dto=None, status_code=202, tags=["runs"],
    summary="Cancel or retry a run: run_id:cancel, run_id:retry",
    verbs=_VERBS,
)  # fmt: skip
async def act_on_run(request: Http, run_and_verb: str, data: ReplayRequest | None = None) -> RunView:
    run_id, _, verb = run_and_verb.rpartition(":")
    match verb:
        case "cancel":
            refuse_payload(data, ":cancel")
            return await _cancel(request, run_id)
        case "retry":
            return await _retry(request, run_id, data or ReplayRequest())
        case _:
            raise NotFound(f"a run has no verb {verb!r}", code="no_such_route", hint="use :cancel or :retry")


@post(
    "/v1/runs/{run_id:str}/retry", dto=ReplayBody, return_dto=None, status_code=202, tags=["runs"],
    summary="Retry a run",
    operation="runs.retry",
)  # fmt: skip
async def retry_by_path(request: Http, run_id: str, data: ReplayRequest | None = None) -> RunView:
    return await _retry(request, run_id, data or ReplayRequest())


@post(
    "/v1/runs/{run_id:str}/cancel",
    status_code=202,
    summary="Cancel a run",
    tags=["runs"],
    operation="runs.cancel",
)
async def cancel_by_path(request: Http, run_id: str) -> RunView:
    return await _cancel(request, run_id)


@get("/v1/queues", summary="List queues", tags=["queues"], operation="queues.list")
async def list_queues(request: Http) -> QueueList:
    return await services_of(request).queue_reader.queues(caller_of(request))


@get(
    "/v1/queues/{name:str}",
    summary="Get a queue: depth, age of the oldest run, rate",
    tags=["queues"],
    operation="queues.read",
)
async def get_queue(request: Http, name: str) -> QueueView:
    return await services_of(request).queue_reader.queue(caller_of(request), name)


@get(
    "/v1/workers",
    summary="List live workers, and workers that ended within the last hour",
    tags=["workers"],
    operation="workers.list",
)
async def list_workers(request: Http) -> WorkerList:
    return await services_of(request).worker_reader.workers(caller_of(request))


async def _cancel(request: Http, run_id: str) -> RunView:
    services, caller = services_of(request), caller_of(request)
    found = run_id_of(run_id)
    await services.amender.cancel_run(caller, found)
    return await services.run_reader.run(caller, found)


async def _retry(request: Http, run_id: str, data: ReplayRequest) -> RunView:
    services, caller = services_of(request), caller_of(request)
    return await services.run_reader.run(
        caller, await services.replayer.retry_run(caller, run_id_of(run_id), data.payload)
    )


def refuse_payload(data: ReplayRequest | None, verb: str) -> None:
    """Refuse a payload for a verb that would ignore it."""
    if data is not None and memoryview(data.payload):
        raise InvalidInput(f"{verb} takes no payload", field="payload", hint="leave it out")


def run_id_of(text: str) -> UUID:
    run_id = parse_uuid(text)
    if run_id is None:
        raise NotFound(f"there is no run {text!r}", hint="a run_id is a UUID; see GET /v1/runs")
    return run_id


HANDLERS = [
    list_runs, get_run, why, act_on_run, cancel_by_path, list_queues, get_queue, list_workers, timeline,
    retry_by_path,
]  # fmt: skip
