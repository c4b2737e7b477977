"""Appends a row for events that are in no other table, if a rule of the tenant wants them. They are rare: one statement
each, in the transaction of the cause, that touches no row of others."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.backfills import BackfillState
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import (
    ApprovalAsked,
    BackfillEnded,
    BreakerClosed,
    BreakerOpened,
    LostWorker,
)
from mainspring.store import alerts
from mainspring.store.pool import Connection


class LostWorkerAlerts:
    def wants(self, _: LostWorker, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[LostWorker], _: Effects, /) -> None:
        for event in events:
            silent = event.silent_for
            reason = "its process ended" if silent is None else f"no heartbeat for {silent:.0f} s"
            await alerts.note_worker(connection, event.worker_id, reason)


class OpenBreakerAlerts:
    def wants(self, _: BreakerOpened, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[BreakerOpened], _: Effects, /) -> None:
        await alerts.note_breakers(connection, {event.line for event in events}, opened=True)


class ClosedBreakerAlerts:
    def wants(self, _: BreakerClosed, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[BreakerClosed], _: Effects, /) -> None:
        await alerts.note_breakers(connection, {event.line for event in events}, opened=False)


class EndedBackfillAlerts:
    def wants(self, _: BackfillEnded, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[BackfillEnded], _: Effects, /) -> None:
        for event in events:
            state = BackfillState(event.state).name.lower()
            await alerts.note_event(
                connection, event.tenant_id, "backfill_ended", f"backfill of job {event.job_id}",
                job_id=event.job_id, path=f"/ui/operations?backfill={event.backfill_id}", reason=f"it is {state}",
            )  # fmt: skip


class AskedApprovalAlerts:
    """The message has a link to the page of the run, on which a person decides. A GET decides nothing."""

    def wants(self, _: ApprovalAsked, /) -> bool:
        return True

    async def handle(self, connection: Connection, events: Sequence[ApprovalAsked], _: Effects, /) -> None:
        await alerts.note_approvals(connection, [event.run_id for event in events])
