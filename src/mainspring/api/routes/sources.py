"""/v1/sources: what connectors read from brokers."""

from __future__ import annotations

from mainspring.api.answers import LISTS, QUOTAS, Answer
from mainspring.api.handlers import delete, get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.kernel.config import MAX_BODY_BYTES
from mainspring.operations.access.permissions import OPERATORS, READERS, SUBMITTERS
from mainspring.wire.sources import DeadMessageList, SourceDeleted, SourceList, SourceTake, SourceTaken

Http = Request


@post(
    "/v1/sources/{name:str}/take", verb="take", status_code=200, summary="Take messages of a broker",
    operation="sources.take", roles=SUBMITTERS, problems=(*QUOTAS, "source_moved", "unstorable_value"),
    examples=examples.SOURCE_TAKES, request_max_body_size=MAX_BODY_BYTES,
    answers={200: Answer("The messages are stored, with the place of the source")},
)  # fmt: skip
async def take_messages(request: Http, name: str, data: SourceTake) -> SourceTaken:
    """What `mainspring connect` calls. Events and jobs are stored in one transaction with the offset, which must have
    been `after`, or with the ids of the messages: one that was taken before changes nothing. A message that cannot
    become an event or a job is kept as a dead message. Without messages the answer says which offset is stored."""
    return await services_of(request).source_taker.take(caller_of(request), name, data)


@get("/v1/sources", summary="List sources, by name and partition", operation="sources.list", roles=READERS,
     problems=LISTS)  # fmt: skip
async def list_sources(
    request: Http, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[SourceList]:
    """Where each is, how many messages wait at the broker, and what its connector cannot do now."""
    page = await services_of(request).source_reader.sources(caller_of(request), cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/sources/{name:str}/dead-messages", summary="List dead messages of a source, newest first",
     operation="sources.dead_messages", roles=READERS, problems=LISTS)  # fmt: skip
async def list_dead_messages(
    request: Http, name: str, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[DeadMessageList]:
    """Messages that could not become an event or a job, and why. The newest 1,000 of each source are kept."""
    page = await services_of(request).source_reader.dead(caller_of(request), name, cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@delete("/v1/sources/{name:str}", status_code=200, summary="Delete a source", operation="sources.delete",
        roles=OPERATORS)  # fmt: skip
async def delete_source(request: Http, name: str) -> SourceDeleted:
    """Its offsets, the ids of its messages and its dead messages. Its events and jobs stay. A connector that reads it
    begins anew: at the beginning of the stream, or at its end, as its file says."""
    return await services_of(request).source_reader.delete(caller_of(request), name)


HANDLERS = [take_messages, list_sources, list_dead_messages, delete_source]
