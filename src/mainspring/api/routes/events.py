"""/v1/events: what applications emit."""

from __future__ import annotations

from typing import Annotated

from mainspring.api.answers import LISTS, QUOTAS, Answer
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header, time_filter
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import QueryParameter, Request, Response
from mainspring.kernel.config import MAX_BODY_BYTES
from mainspring.operations.access.permissions import READERS, SUBMITTERS
from mainspring.operations.events.reader import EventQuery
from mainspring.wire.events import (
    EventAccepted,
    EventBatch,
    EventList,
    EventRequest,
    EventsAccepted,
    EventTest,
    EventTestResult,
    EventView,
)
from mainspring.wire.formats import Moment

Http = Request
Text = Annotated[str | None, QueryParameter(max_length=200)]
_EMITS = (*QUOTAS, "unstorable_value")


@post(
    "/v1/events", summary="Emit an event", operation="events.emit", roles=SUBMITTERS, problems=_EMITS,
    examples=examples.EVENTS,
    answers={201: Answer("The event is stored"), 200: Answer("An event with this id was stored before")},
)  # fmt: skip
async def emit_event(request: Http, data: EventRequest) -> Response[EventAccepted]:
    """It is stored before the answer. Jobs and workflows with `"schedule": {"event": name}` start, and steps that wait
    for it continue. The same `id` changes nothing, for as long as events are kept."""
    done = await services_of(request).emitter.emit(caller_of(request), data)
    return Response(EventAccepted(done.ids[0], bool(done.repeated)), status_code=200 if done.repeated else 201)


@post(
    "/v1/events:batch", summary="Emit up to 1,000 events, all or none", operation="events.emit_batch",
    roles=SUBMITTERS, problems=_EMITS, examples=examples.EVENT_BATCHES, request_max_body_size=MAX_BODY_BYTES,
    answers={201: Answer("All events are stored, or were stored before under their ids")},
)  # fmt: skip
async def emit_events(request: Http, data: EventBatch) -> EventsAccepted:
    """They are dealt with in this order."""
    return await services_of(request).emitter.emit_batch(caller_of(request), data.events)


@post(
    "/v1/events:test", status_code=200, summary="Try a condition with stored events", operation="events.test",
    roles=READERS, problems=(*LISTS, "invalid_condition"), examples=examples.EVENT_TESTS,
)  # fmt: skip
async def test_condition(request: Http, data: EventTest) -> EventTestResult:
    """With the newest events of the name: which of them would start a run, and for which the condition has no answer.
    Nothing is stored."""
    return await services_of(request).event_reader.test(caller_of(request), data)


@get("/v1/events", summary="List events, newest first", operation="events.list", roles=READERS,
     problems=(*LISTS, "invalid_time", "missing_timezone"))  # fmt: skip
async def list_events(
    request: Http,
    name: Text = None,
    key: Text = None,
    since: Moment | None = None,
    until: Moment | None = None,
    cursor: str | None = None,
    limit: PageLimit = DEFAULT_PAGE,
) -> Response[EventList]:
    """Without their payloads. `key` needs `name`. `since`, `until`: when they were stored."""
    query = EventQuery(name, key, time_filter(since, "since"), time_filter(until, "until"), cursor, limit)
    page = await services_of(request).event_reader.events(caller_of(request), query)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/events/{event_id:str}", summary="Get an event, with what it has caused", operation="events.read",
     roles=READERS)  # fmt: skip
async def get_event(request: Http, event_id: str) -> EventView:
    """With its payload and the runs that it has started."""
    return await services_of(request).event_reader.event(caller_of(request), event_id)


HANDLERS = [emit_event, emit_events, test_condition, list_events, get_event]
