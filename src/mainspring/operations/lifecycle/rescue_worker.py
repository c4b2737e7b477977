"""Takes runs from a worker in batches: all of them from one that has ended."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from mainspring.domain.losses import Death
from mainspring.kernel import metrics
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.rescue import rescue
from mainspring.operations.signals import Signals
from mainspring.store import runs
from mainspring.store.pool import Connection, Store

log = get_logger("run_rescuer")

_BATCH = 500


class WorkerRescue:
    """The rescue of one worker's runs. Nothing may be claimed for it meanwhile: its incarnation has ended, or the
    caller holds its row (`ordinary_only`: its exclusive runs go on)."""

    def __init__(
        self,
        signals: Signals,
        random: Random,
        worker_id: UUID,
        started: Collection[tuple[UUID, int]] | None = None,
        *,
        ordinary_only: bool = False,
        death: Death | None = None,
    ) -> None:
        self._signals = signals
        self._random = random
        self._worker_id = worker_id
        self._started = started
        self._ordinary_only = ordinary_only
        self._death = death
        self.rescued = 0

    async def take_batch(self, connection: Connection) -> Effects | None:
        """Take some runs in the caller's transaction; None if none is left. Call `publish` after the commit."""
        held = await runs.held_by(connection, self._worker_id, _BATCH, ordinary_only=self._ordinary_only)
        if not held:
            return None
        effects = await rescue(connection, held, self._random, started=self._started, death=self._death)
        self.rescued += len(held)
        return effects

    def publish(self, effects: Effects) -> None:
        """Offer the runs to other workers."""
        effects.publish(self._signals)

    async def take_all(self, store: Store) -> int:
        """Take the runs that are left. Returns how many were taken in all."""
        while True:
            async with store.hot.acquire() as connection, connection.transaction():
                effects = await self.take_batch(connection)
            if effects is None:
                break
            self.publish(effects)
        if self.rescued:
            metrics.rescued.inc(self.rescued)
            log.info("runs rescued", worker=str(self._worker_id), runs=self.rescued)
        return self.rescued
