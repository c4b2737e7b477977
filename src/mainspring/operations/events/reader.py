"""Reads events that applications have emitted, and what they have caused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.conditions.condition import Condition, NoAnswer
from mainspring.domain.errors import InvalidInput, MainspringError, NotFound
from mainspring.domain.texts import check_line
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.events.started_jobs import values_of
from mainspring.operations.paging.cursors import encode_cursor, missed_cursor
from mainspring.operations.paging.search import searching
from mainspring.store import events
from mainspring.store.events import Cause, ListedEvent
from mainspring.store.pool import Store
from mainspring.wire.events import EventCause, EventList, EventRow, EventTest, EventTestResult, EventView, TestedEvent


class EventQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/events`. since, until: when it was stored."""

    name: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    cursor: str | None = None
    limit: int = 50


class EventReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def events(self, caller: Caller, query: EventQuery) -> EventList:
        """A page of events, newest first."""
        for field in ("name", "key"):
            if (text := getattr(query, field)) is not None:
                check_line(text, field)
        if query.key is not None and query.name is None:
            raise InvalidInput(
                "a key needs the name of the event", code="invalid_parameter", field="name",
                hint="such as name=order.paid&key=42",
            )  # fmt: skip
        before = missed_cursor(query.cursor)
        async with searching(self._store, caller.tenant, "events") as connection:
            rows = await events.page(
                connection, caller.tenant, before, query.since, query.until, query.name, query.key, query.limit + 1
            )
        following = encode_cursor(str(rows[query.limit - 1].seq)) if len(rows) > query.limit else None
        return EventList([_row(row) for row in rows[: query.limit]], following)

    async def event(self, caller: Caller, event_id: str) -> EventView:
        """An event with its payload, and what it has caused."""
        check_line(event_id, "event_id")
        async with self._store.reads.acquire() as connection:
            row = await events.get(connection, caller.tenant, event_id)
            causes = [] if row is None else await events.causes(connection, caller.tenant, event_id)
        if row is None:
            raise NotFound(f"there is no event {event_id!r}", hint="see GET /v1/events; events are kept for some days")
        return EventView(
            row.event_id, row.name, row.at, row.key or None, row.matched, len(causes), row.creator,
            None if row.payload_text is None else msgspec.Raw(row.payload_text.encode()),
            [_cause(one) for one in causes],
        )  # fmt: skip

    async def test(self, caller: Caller, wanted: EventTest) -> EventTestResult:
        """Which of the newest events of a name a condition holds for. Nothing is changed."""
        check_line(wanted.event, "event")
        tried = Condition(wanted.condition, "if")
        async with searching(self._store, caller.tenant, "events") as connection:
            found = await events.newest(connection, caller.tenant, wanted.event, wanted.limit)
        slices = TimeSlices()
        tested: list[TestedEvent] = []
        for one in found:
            matches, error = _answer(tried, values_of(one.name, one.key, one.event_id, one.payload_text))
            tested.append(TestedEvent(one.event_id, one.at, matches, one.key or None, error))
            if slices.over:
                await slices.pause()
        return EventTestResult(len(tested), sum(one.matches for one in tested), tested)


def _answer(tried: Condition, values: dict[str, Any]) -> tuple[bool, str | None]:
    """Whether it holds, as the matcher decides it, and why there is no answer."""
    try:
        return tried.matches(values), None
    except (NoAnswer, MainspringError) as error:
        return False, str(error)
    except RecursionError:
        return False, "the payload is too deep"


def _row(row: ListedEvent) -> EventRow:
    return EventRow(row.event_id, row.name, row.at, row.key or None, row.matched, row.caused)


def _cause(one: Cause) -> EventCause:
    return EventCause(one.job_id, None if one.run_id is None else str(one.run_id), one.due_at, one.reason)
