"""What follows for jobs that depend on other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.lifecycle.events import RunsCreated
from mainspring.operations.signals import Signals
from mainspring.store.pool import Connection


class DependencyEffects(Part):
    """check: whether it must be found out what runs wait for. due: whether jobs have become due."""

    check: bool = False
    due: bool = False

    def merge(self, other: Self, /) -> None:
        self.check |= other.check
        self.due |= other.due

    def publish(self, signals: Signals, /) -> None:
        if self.check:
            signals.waits.publish()
        if self.due:
            signals.due.publish()


class RunsWithParents:
    """Runs were created that wait for other jobs."""

    def wants(self, event: RunsCreated, /) -> bool:
        return event.with_parents > 0

    async def handle(self, _connection: Connection, _events: Sequence[RunsCreated], effects: Effects, /) -> None:
        effects.of(DependencyEffects).check = True
