"""/v1/workers."""

from __future__ import annotations

from uuid import UUID

from mainspring.api.answers import LISTS, Answer
from mainspring.api.handlers import get, post
from mainspring.api.routes.versions import IfTag, etag, tag_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.domain.errors import NotFound
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.permissions import OPERATORS, READERS
from mainspring.wire.jobs import Nothing
from mainspring.wire.runs import WorkerList, WorkerView

Http = Request


@get("/v1/workers", summary="List workers", operation="workers.list", roles=READERS, problems=LISTS)
async def list_workers(request: Http) -> WorkerList:
    """The live workers, and those that ended within the last hour."""
    return await services_of(request).worker_reader.workers(caller_of(request))


@get("/v1/workers/{worker_id:str}", summary="Get a worker", operation="workers.read", roles=READERS)
async def get_worker(request: Http, worker_id: str) -> Response[WorkerView]:
    """One incarnation of a worker. A worker that lost its lease continues as a new one. The ETag is for If-Match."""
    view = await services_of(request).drainer.worker(caller_of(request), _worker_id(worker_id))
    return Response(view, headers=etag(view.etag))


@post(
    "/v1/workers/{worker_id:str}/drain",
    verb="drain",
    status_code=202,
    summary="Drain a worker",
    operation="workers.drain",
    roles=OPERATORS,
    answers={202: Answer("The worker, which has been told.")},
    problems=("instance_admin_only", "version_mismatch", "worker_gone"),
)
async def drain_worker(
    request: Http, worker_id: str, data: Nothing | None = None, if_tag: IfTag = None
) -> Response[WorkerView]:
    """It takes no more runs, finishes those that it has started, hands back the others, and stops."""
    view = await services_of(request).drainer.drain(caller_of(request), _worker_id(worker_id), tag_of(if_tag))
    return Response(view, status_code=202, headers=etag(view.etag))


def _worker_id(text: str) -> UUID:
    worker_id = parse_uuid(text)
    if worker_id is None:
        raise NotFound(f"there is no worker {text!r}", hint="a worker_id is a UUID; see GET /v1/workers")
    return worker_id


HANDLERS = [list_workers, get_worker, drain_worker]
