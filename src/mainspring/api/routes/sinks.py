"""/v1/sinks."""

from __future__ import annotations

from mainspring.api.answers import LISTS, Answer
from mainspring.api.handlers import delete, get, post, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.routes.versions import IfMatch, etag, version_of
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import ADMINS, READERS
from mainspring.wire.jobs import Nothing
from mainspring.wire.sinks import SinkList, SinkRequest, SinkTested, SinkView

Http = Request


@get("/v1/sinks", summary="List sinks, by name", operation="sinks.list", roles=READERS, problems=LISTS)
async def list_sinks(request: Http, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE) -> Response[SinkList]:
    """Where changes of jobs and runs are sent, and how far each is. Values of secret fields are not shown."""
    page = await services_of(request).sinks.sinks(caller_of(request), cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/sinks/{name:str}", summary="Get a sink", operation="sinks.read", roles=READERS, problems=LISTS)
async def get_sink(request: Http, name: str) -> Response[SinkView]:
    """The ETag is its version, for If-Match."""
    return await _shown(request, name, 200)


@put(
    "/v1/sinks/{name:str}", summary="Create or change a sink",
    operation="sinks.put", roles=ADMINS, examples=examples.SINKS,
    problems=(
        "changed_meanwhile", "extra_missing", "invalid_duration", "invalid_size", "tables_held", "version_mismatch",
    ),
    answers={200: Answer("The sink as it is now"), 201: Answer("The new sink")},
)  # fmt: skip
async def put_sink(request: Http, name: str, data: SinkRequest, if_match: IfMatch = None) -> Response[SinkView]:
    """The body has all settings: those that it leaves out are removed. A secret that it leaves out keeps its value, if
    the kind, the address and the user stay the same. Changes from now on are sent, those before are not."""
    created = await services_of(request).sinks.put(caller_of(request), name, data, version_of(if_match))
    return await _shown(request, name, 201 if created else 200)


@delete(
    "/v1/sinks/{name:str}", status_code=200, summary="Delete a sink",
    operation="sinks.delete", roles=ADMINS, problems=("changed_meanwhile", "version_mismatch"),
)  # fmt: skip
async def delete_sink(request: Http, name: str, if_match: IfMatch = None) -> SinkView:
    """What it has not sent yet is not sent."""
    return await services_of(request).sinks.delete(caller_of(request), name, version_of(if_match))


@post(
    "/v1/sinks/{name:str}/pause", verb="pause", status_code=200, summary="Pause a sink",
    operation="sinks.pause", roles=ADMINS, problems=("changed_meanwhile",),
)  # fmt: skip
async def pause_sink(request: Http, name: str, data: Nothing | None = None) -> SinkView:
    """Send nothing until it is resumed. What changes meanwhile waits, for as long as the sink keeps it."""
    return await services_of(request).sinks.pause(caller_of(request), name, paused=True)


@post(
    "/v1/sinks/{name:str}/resume", verb="resume", status_code=200, summary="Resume a sink",
    operation="sinks.resume", roles=ADMINS, problems=("changed_meanwhile",),
)  # fmt: skip
async def resume_sink(request: Http, name: str, data: Nothing | None = None) -> SinkView:
    """Send what has waited."""
    return await services_of(request).sinks.pause(caller_of(request), name, paused=False)


@post(
    "/v1/sinks/{name:str}/test", verb="test", status_code=200, summary="Send a test event",
    operation="sinks.test", roles=ADMINS,
)  # fmt: skip
async def test_sink(request: Http, name: str, data: Nothing | None = None) -> SinkTested:
    """Send an event of the type `mainspring.sink.test` to the sink now, once. The answer says whether the receiver took
    it, and otherwise why not. It takes 30 seconds at most."""
    return await services_of(request).sinks.test(caller_of(request), name)


async def _shown(request: Http, name: str, status: int) -> Response[SinkView]:
    view = await services_of(request).sinks.sink(caller_of(request), name)
    return Response(view, status_code=status, headers=etag(view.version))


HANDLERS = [list_sinks, get_sink, put_sink, delete_sink, pause_sink, resume_sink, test_sink]
