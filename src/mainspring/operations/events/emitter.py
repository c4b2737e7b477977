"""Emit: store events before the answer. The matcher finds out what they start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mainspring.domain.errors import InvalidInput, MainspringError, PayloadTooLarge
from mainspring.domain.intake.request import read_payload
from mainspring.domain.texts import check_line
from mainspring.kernel.ids import uuid7
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.limits.quota_guard import QuotaGuard
from mainspring.operations.signals import Signals
from mainspring.store import events
from mainspring.store.events import NewEvent
from mainspring.store.outage_queue import despite_outages
from mainspring.store.pool import Store
from mainspring.wire.events import EventRequest, EventsAccepted

MOST_BATCH_BYTES = 16 * 1024 * 1024  # of payloads


class Emitter:
    def __init__(self, store: Store, signals: Signals, quotas: QuotaGuard) -> None:
        self._store = store
        self._signals = signals
        self._quotas = quotas

    async def emit(self, caller: Caller, request: EventRequest) -> EventsAccepted:
        """Store one event. One with the id of a stored event changes nothing."""
        return await self._emit(caller, [read_event(request)], single=True)

    async def emit_batch(self, caller: Caller, requests: Sequence[EventRequest]) -> EventsAccepted:
        """Store events, all or none."""
        slices = TimeSlices()
        read: list[NewEvent] = []
        for index, request in enumerate(requests):
            try:
                read.append(read_event(request))
            except MainspringError as error:
                error.field = f"events[{index}].{error.field}"
                raise
            if slices.over:
                await slices.pause()
        if sum(len(event.payload or "") for event in read) > MOST_BATCH_BYTES:
            raise PayloadTooLarge(
                f"the payloads have more than {MOST_BATCH_BYTES} characters together", field="events",
                hint="send smaller batches",
            )  # fmt: skip
        return await self._emit(caller, read, single=False)

    async def _emit(self, caller: Caller, new: Sequence[NewEvent], *, single: bool) -> EventsAccepted:
        for index, event in enumerate(new):
            self._quotas.check_payload(caller, event.payload, "payload" if single else f"events[{index}].payload")
        await self._quotas.admit_request(caller, len(new))
        stored = await despite_outages(self._store.waiting, partial(self._store_events, caller, new))
        if stored:
            self._signals.emitted.publish()
        return EventsAccepted([event.event_id for event in new], len(new) - stored)

    async def _store_events(self, caller: Caller, new: Sequence[NewEvent]) -> int:
        """Repeated after an outage, it finds by their ids what it had stored."""
        async with self._store.change() as connection:
            return len(await events.insert(connection, caller.tenant, new, caller.created_by))


def read_event(request: EventRequest) -> NewEvent:
    if not request.name.strip():
        raise InvalidInput("the name of the event is empty", field="name", expected='a name such as "order.paid"')
    check_line(request.name, "name")
    if request.key is not None:
        check_line(request.key, "key")
    if request.id is not None:
        check_line(request.id, "id")
    return NewEvent(request.id or str(uuid7()), request.name, request.key or "", read_payload(request.payload))
