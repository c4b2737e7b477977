"""Events that applications emit, as clients see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mainspring.wire.formats import DurationIn

MOST_EVENTS = 1000  # in a batch
LONGEST_CONDITION = 2000  # characters
MOST_TESTED = 100

EventName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="What has happened: one line of text.",
        extra_json_schema={"examples": ["order.paid"]},
    ),
]
EventId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="One line of text. The same id is stored once, for as long as events are kept.",
        extra_json_schema={"examples": ["evt-1"]},
    ),
]
EventKey = Annotated[str, Meta(max_length=200, description="What it happened to, such as the number of an order.")]
Condition = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_CONDITION,
        description="A condition in CEL over payload, name, key and id of the event.",
        extra_json_schema={"examples": ["payload.total > 100 && payload.country in ['DE', 'FR']"]},
    ),
]


class EventsTogether(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Events that share a run: up to `size` of them, or those of `wait` after the first one. by_key: those of a key."""

    size: Annotated[int, Meta(ge=2, le=1000)]
    wait: DurationIn
    by_key: bool = False


class EventRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/events`. Without an id it gets a new one."""

    name: EventName
    key: EventKey | None = None
    id: EventId | None = None
    payload: Annotated[msgspec.Raw, Meta(description="A JSON object.")] = msgspec.Raw()


class EventBatch(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/events:batch`."""

    events: Annotated[list[EventRequest], Meta(min_length=1, max_length=MOST_EVENTS)]


class EventAccepted(msgspec.Struct):
    """The response to `POST /v1/events`. repeated: an event with this id was stored before, and nothing was changed."""

    id: str
    repeated: bool


class EventsAccepted(msgspec.Struct):
    """The response to `POST /v1/events:batch`. ids: in the order of the request. repeated: how many were stored
    before."""

    ids: list[str]
    repeated: int


class EventCause(msgspec.Struct, omit_defaults=True):
    """What an event has caused: a run of a job. run_id: left out while the run is still to start, or if it never will.
    starts_by: when it starts at the latest. reason: why it never will."""

    job_id: str
    run_id: str | None = None
    starts_by: datetime | None = None
    reason: str | None = None


class EventRow(msgspec.Struct, omit_defaults=True):
    """An event in a list. matched: what it causes is known. caused: of how many jobs it starts a run."""

    id: str
    name: str
    at: datetime
    key: str | None = None
    matched: bool = False
    caused: int = 0


class EventView(EventRow, omit_defaults=True):
    """An event with its payload and what it has caused, 1,000 jobs at most. created_by: the name of the token, or the
    person."""

    created_by: str | None = None
    payload: Any = None
    causes: list[EventCause] = []


class EventList(msgspec.Struct, omit_defaults=True):
    """A page of events, newest first. next: the cursor of the next page."""

    events: list[EventRow]
    next: str | None = None


class EventTest(msgspec.Struct, forbid_unknown_fields=True, rename={"condition": "if"}):
    """The body of `POST /v1/events:test`. It tries a condition with the newest stored events of the name, `limit` at
    most."""

    event: EventName
    condition: Condition
    limit: Annotated[int, Meta(ge=1, le=MOST_TESTED)] = 20


class TestedEvent(msgspec.Struct, omit_defaults=True):
    """matches: whether the event would start a run. error: why the condition has no answer, which counts as no."""

    id: str
    at: datetime
    matches: bool
    key: str | None = None
    error: str | None = None


class EventTestResult(msgspec.Struct):
    """matched: how many of the tested events match."""

    tested: int
    matched: int
    events: list[TestedEvent]
