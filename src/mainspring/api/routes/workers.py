"""/v1/workers/{id}: read and drain one worker."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Request, get, post

from mainspring.api.services import caller_of, services_of
from mainspring.domain.errors import NotFound
from mainspring.kernel.ids import parse_uuid
from mainspring.wire.runs import WorkerView

Http = Request[Any, Any, Any]
_VERBS = {"drain": "workers.drain"}


@get("/v1/workers/{worker_id:str}", summary="Get a worker", tags=["workers"], operation="workers.read")
async def get_worker(request: Http, worker_id: str) -> WorkerView:
    return await services_of(request).drainer.worker(caller_of(request), _worker_id(worker_id))


@post(
    "/v1/workers/{worker_and_verb:str}",
    status_code=202,
    summary="Drain a worker: worker_id:drain",
    tags=["workers"],
    verbs=_VERBS,
)
async def act_on_worker(request: Http, worker_and_verb: str) -> WorkerView:
    worker_id, _, verb = worker_and_verb.rpartition(":")
    if verb != "drain":
        raise NotFound(f"a worker has no verb {verb!r}", code="no_such_route", hint="use :drain")
    return await services_of(request).drainer.drain(caller_of(request), _worker_id(worker_id))


def _worker_id(text: str) -> UUID:
    worker_id = parse_uuid(text)
    if worker_id is None:
        raise NotFound(f"there is no worker {text!r}", hint="a worker_id is a UUID; see GET /v1/workers")
    return worker_id


HANDLERS = [get_worker, act_on_worker]
