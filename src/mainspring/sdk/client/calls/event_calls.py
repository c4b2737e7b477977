"""Calls for events that applications emit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NotRequired, TypedDict

from mainspring.kernel.ids import uuid7
from mainspring.sdk.client.calls.common import query_of
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.events import EventAccepted, EventList, EventsAccepted, EventTestResult, EventView

_accepted = json_of(EventAccepted)
_all_accepted = json_of(EventsAccepted)
_tested = json_of(EventTestResult)
_event = json_of(EventView)
_event_list = json_of(EventList)


class EventFields(TypedDict):
    """An event of a batch."""

    name: str
    key: NotRequired[str | None]
    id: NotRequired[str | None]
    payload: NotRequired[Mapping[str, Any] | None]


def emit(
    name: str, payload: Mapping[str, Any] | None = None, *, key: str | None = None, id: str | None = None
) -> Call[EventAccepted]:
    """Emit an event. Without an id it gets a new one, so that the request can be repeated safely."""
    return Call("POST", "/v1/events", _accepted, body=encode(_body(name, payload, key, id)))


def emit_batch(events: Iterable[EventFields]) -> Call[EventsAccepted]:
    """Emit up to 1,000 events, all or none, in this order."""
    bodies = [_body(one["name"], one.get("payload"), one.get("key"), one.get("id")) for one in events]
    return Call("POST", "/v1/events:batch", _all_accepted, body=encode({"events": bodies}))


def emitted_events(
    *,
    name: str | None = None,
    key: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[EventList]:
    """One page of events, newest first, without their payloads. `key` needs `name`."""
    given = {"name": name, "key": key, "since": since, "until": until, "limit": limit, "cursor": cursor}
    return Call("GET", "/v1/events", _event_list, params=query_of(given))


def emitted_event(event_id: str) -> Call[EventView]:
    """The event `event_id`, with its payload and what it has caused."""
    return Call("GET", f"/v1/events/{segment(event_id)}", _event)


def test_condition(event: str, if_: str, *, limit: int | None = None) -> Call[EventTestResult]:
    """Try a condition in CEL with the newest stored events of the name `event`: which of them would start a run."""
    given = {"event": event, "if": if_} | ({} if limit is None else {"limit": limit})
    return Call("POST", "/v1/events:test", _tested, body=encode(given))


def _body(name: str, payload: Mapping[str, Any] | None, key: str | None, event_id: str | None) -> dict[str, Any]:
    given = {"name": name, "key": key, "id": event_id or str(uuid7()), "payload": payload}
    return {member: value for member, value in given.items() if value is not None}
