"""Entries of the audit for what the system decides by itself: workers that are lost, and breakers that open."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import BreakerOpened, LostWorker
from mainspring.store import audit
from mainspring.store.pool import Connection


class LostWorkersAudited:
    def wants(self, _: LostWorker, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[LostWorker], _: Effects, /) -> None:
        await audit.insert_lost_workers(connection, [(event.worker_id, event.silent_for) for event in events])


class OpenedBreakersAudited:
    def wants(self, _: BreakerOpened, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[BreakerOpened], _: Effects, /) -> None:
        await audit.insert_opened_breakers(connection, [event.line for event in events])
