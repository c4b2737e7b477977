"""Dispatch: features handle events in the transaction that causes them.

A module that changes something calls `happened` of the kind of event, with one array for the transaction. The kinds
know no feature: `operations/handlers.py` lists the handlers of each kind. A handler is called only for events that it
wants. It decides that from memory: by bits that the row of a run has, or by the numbers of the event. So an event that
nobody wants costs no statement. Decision 0074 says where a cache of subscriptions goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from mainspring.domain.limits import is_gate
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import (
    ApprovalAsked,
    BackfillEnded,
    BreakerClosed,
    BreakerOpened,
    ContainerStopped,
    EventEmitted,
    FireMissed,
    LostWorker,
    QueuePaused,
    RunEnded,
    RunsCreated,
    SlotsReleased,
)
from mainspring.operations.signals import Signals
from mainspring.store.pool import Connection, Store

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Handler(Protocol[E_contra]):
    def wants(self, event: E_contra, /) -> bool: ...

    async def handle(self, connection: Connection, events: Sequence[E_contra], effects: Effects, /) -> None: ...


class EventKind(Generic[E]):
    """A kind of event."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._listed: tuple[Handler[E], ...] | None = None

    def handled_by(self, *handlers: Handler[E]) -> None:
        if self._listed is not None:
            raise RuntimeError(f"the handlers of {self._name} are listed already")
        self._listed = handlers

    @property
    def handlers(self) -> tuple[Handler[E], ...]:
        if self._listed is None:
            raise RuntimeError(f"no handlers of {self._name} are listed: import mainspring.operations.handlers")
        return self._listed

    def wanted(self, events: Sequence[E]) -> bool:
        """Whether a handler wants one of these. Otherwise a single statement needs no transaction around it."""
        return any(handler.wants(event) for event in events for handler in self.handlers)

    async def happened(self, connection: Connection, events: Sequence[E], effects: Effects) -> None:
        """Let the handlers deal with the events, one handler after another."""
        for handler in self.handlers:
            if wanted := [event for event in events if handler.wants(event)]:
                await handler.handle(connection, wanted, effects)


class Finisher(Protocol):
    async def finish(self, effects: Effects, store: Store, signals: Signals, /) -> None: ...


RUNS_ENDED = EventKind[RunEnded]("runs that ended")
RUNS_CREATED = EventKind[RunsCreated]("runs that were created")
SLOTS_RELEASED = EventKind[SlotsReleased]("slots that were released")
FIRES_MISSED = EventKind[FireMissed]("fires that were missed")
WORKERS_LOST = EventKind[LostWorker]("workers that were lost")
BREAKERS_OPENED = EventKind[BreakerOpened]("breakers that opened")
BREAKERS_CLOSED = EventKind[BreakerClosed]("breakers that closed")
QUEUES_PAUSED = EventKind[QueuePaused]("queues that were paused")
BACKFILLS_ENDED = EventKind[BackfillEnded]("backfills that ended")
APPROVALS_ASKED = EventKind[ApprovalAsked]("steps that began to wait for people")
CONTAINERS_STOPPED = EventKind[ContainerStopped]("containers that have to end")
EVENTS_EMITTED = EventKind[EventEmitted]("events that were emitted")
FINISHERS: list[Finisher] = []


async def runs_ended(connection: Connection, effects: Effects) -> None:
    """Deal with the ends in `effects`. A handler may end further runs; all handlers see these, too. Handlers are listed
    in the order in which they lock rows, and it begins anew with each new end. Without ends this costs one check."""
    if not effects.ended:
        return
    handlers, place = RUNS_ENDED.handlers, 0
    while place < len(handlers):
        handler = handlers[place]
        new = [end for end in effects.ended if handler.wants(end) and handler not in end.handled]
        if not new:
            place += 1
            continue
        for end in new:
            end.handled += (handler,)
        await handler.handle(connection, new, effects)
        place = 0


async def release(connection: Connection, effects: Effects) -> None:
    """The last step of a transaction that ended or requeued runs: what they gave back goes to those who wait for it.
    Others pay only for this check."""
    released, effects.released = effects.released, None
    if released is not None:
        effects.contended |= not all(map(is_gate, released.slots))  # gates are given back without a lock
        await SLOTS_RELEASED.happened(connection, [released], effects)


async def finish(effects: Effects, store: Store, signals: Signals) -> None:
    """After the commit: publish the effects, and do what the caller waits for."""
    effects.publish(signals)
    for finisher in FINISHERS:
        await finisher.finish(effects, store, signals)
