"""What follows for backfills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self
from uuid import UUID

import msgspec

from mainspring.domain.transitions import Follows
from mainspring.operations.lifecycle.dispatch import BACKFILLS_ENDED
from mainspring.operations.lifecycle.effects import Effects, Part
from mainspring.operations.lifecycle.events import BackfillEnded, RunEnded
from mainspring.operations.signals import Signals
from mainspring.store.backfills import LockedBackfill
from mainspring.store.pool import Connection

_BACKFILL = int(Follows.BACKFILL)


class BackfillEffects(Part):
    """ended: the runs of backfills that have ended. They are counted after the commit."""

    ended: list[UUID] = msgspec.field(default_factory=list)

    def merge(self, other: Self, /) -> None:
        self.ended += other.ended

    def publish(self, signals: Signals, /) -> None:
        if self.ended:
            signals.backfills.publish(self.ended)


async def backfill_ended(connection: Connection, row: LockedBackfill, effects: Effects) -> None:
    """The caller has written that it ended."""
    event = BackfillEnded(row.tenant_id, row.backfill_id, row.job_id, row.state)
    await BACKFILLS_ENDED.happened(connection, [event], effects)


class BackfilledRuns:
    """Runs of backfills have ended."""

    def wants(self, end: RunEnded, /) -> bool:
        return bool(end.follows & _BACKFILL)

    async def handle(self, _: Connection, ends: Sequence[RunEnded], effects: Effects, /) -> None:
        effects.of(BackfillEffects).ended += [end.run_id for end in ends]
