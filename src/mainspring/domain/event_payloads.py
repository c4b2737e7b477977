"""Payloads of runs that events start: that of the job with `event`, or with the list `events` if they share one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from mainspring.domain.job import JobDefinition
from mainspring.domain.run_key import rfc3339
from mainspring.domain.schedules.schedule import Schedule

_encode = msgspec.json.encode


class StartingEvent(msgspec.Struct, frozen=True):
    """An event as a run gets it. payload_text: JSON. key: '' if it has none."""

    event_id: str
    name: str
    key: str
    at: datetime
    payload_text: str | None


_ANY = StartingEvent("event", "event", "", datetime(2000, 1, 1, tzinfo=UTC), None)


def with_events(own: str | None, schedule: Schedule, events: Sequence[StartingEvent]) -> str:
    """The payload of the job with its events. `own`: a JSON object, or None."""
    if schedule.batch is None:
        member = f'"event":{event_as_json(events[-1])}'
    else:
        member = f'"events":[{",".join(map(event_as_json, events))}]'
    inner = "" if own is None else own.strip()[1:-1].strip()
    return f"{{{inner},{member}}}" if inner else f"{{{member}}}"


def payload_with_an_event(definition: JobDefinition) -> str | None:
    """The payload of a job as its runs have it, for checks: with some event if events start it."""
    if definition.schedule.event is None:
        return definition.payload
    return with_events(definition.payload, definition.schedule, [_ANY])


def event_as_json(event: StartingEvent) -> str:
    """An event as runs and results have it."""
    named = {"id": event.event_id, "name": event.name, "key": event.key or None, "at": rfc3339(event.at)}
    return f'{_encode(named).decode()[:-1]},"payload":{event.payload_text or "null"}}}'
