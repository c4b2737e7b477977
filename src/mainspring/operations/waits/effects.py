"""What follows for waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self

import msgspec

from mainspring.domain.transitions import Follows
from mainspring.kernel.ids import TenantId
from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.lifecycle.events import EventEmitted, RunEnded
from mainspring.operations.signals import Signals
from mainspring.store import child_runs, waits
from mainspring.store.pool import Connection
from mainspring.store.waits import CalledWaits

_WAIT, _CHILD = int(Follows.WAIT), int(Follows.CHILD)


class WaitEffects(Part):
    """wakes: in how many seconds the times of waits come that have begun."""

    wakes: list[float] = msgspec.field(default_factory=list)

    def merge(self, other: Self, /) -> None:
        self.wakes += other.wakes

    def publish(self, signals: Signals, /) -> None:
        if self.wakes:
            signals.wakes.publish(min(self.wakes))


class EndedWaits:
    """Runs have ended that waited, however they did: their waits end with them."""

    def wants(self, end: RunEnded, /) -> bool:
        return bool(end.follows & _WAIT)

    async def handle(self, connection: Connection, ends: Sequence[RunEnded], _: Effects, /) -> None:
        await waits.close(connection, sorted(end.run_id for end in ends))


class EndedChildren:
    """Workflow runs have ended for which steps wait."""

    def wants(self, end: RunEnded, /) -> bool:
        return bool(end.follows & _CHILD)

    async def handle(self, connection: Connection, ends: Sequence[RunEnded], effects: Effects, /) -> None:
        if await child_runs.ended(connection, sorted(end.run_id for end in ends)):
            effects.of(WaitEffects).wakes.append(0.0)


class CalledByEvents:
    """Events were emitted: the steps that wait for them are due. The sweeper ends them, each with its first event."""

    def wants(self, _: EventEmitted, /) -> bool:
        return True

    async def handle(self, connection: Connection, emitted: Sequence[EventEmitted], effects: Effects, /) -> None:
        newest: dict[tuple[TenantId, str, str], datetime] = {}
        for event in emitted:
            of = event.tenant_id, event.name, event.key
            newest[of] = max(event.at, newest.get(of, event.at))
        if await waits.mark(connection, [CalledWaits(*of, at) for of, at in sorted(newest.items())]):
            effects.of(WaitEffects).wakes.append(0.0)
