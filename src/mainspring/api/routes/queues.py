"""/v1/queues."""

from __future__ import annotations

from typing import Any

from litestar import Request, get

from mainspring.api.answers import LISTS
from mainspring.api.services import caller_of, services_of
from mainspring.wire.runs import QueueList, QueueView

Http = Request[Any, Any, Any]


@get("/v1/queues", summary="List queues", operation="queues.list", problems=LISTS)
async def list_queues(request: Http) -> QueueList:
    """Every queue that has a job or a worker. The largest come first; `left_out` counts those that are not shown."""
    return await services_of(request).queue_reader.queues(caller_of(request))


@get(
    "/v1/queues/{name:str}", summary="Get a queue: depth, age of the oldest run, rate", operation="queues.read",
    problems=LISTS,
)  # fmt: skip
async def get_queue(request: Http, name: str) -> QueueView:
    """A queue exists as soon as it has a job or a worker."""
    return await services_of(request).queue_reader.queue(caller_of(request), name)


HANDLERS = [list_queues, get_queue]
