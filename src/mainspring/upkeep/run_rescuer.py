"""Takes runs from lost workers. A worker counts as lost only if its heartbeats could have been recorded."""

from __future__ import annotations

from uuid import UUID

from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.lifecycle.rescue import rescue
from mainspring.operations.signals import Signals
from mainspring.store import runs, workers
from mainspring.store.pool import Store

log = get_logger("run_rescuer")

_BATCH = 500
_INTERRUPTED_INTERVAL = 5.0  # seconds between checks for interrupted rescues


class RunRescuer:
    name = "run_rescuer"

    def __init__(self, store: Store, signals: Signals, clock: Clock, timing: Timing, random: Random) -> None:
        self.interval = timing.rescue_sweep
        self._store = store
        self._signals = signals
        self._clock = clock
        self._silence = timing.rescue
        self._random = random
        self._witness_id = uuid7()
        self._writable_since: float | None = None
        self._interrupted_checked_at = float("-inf")

    async def run_once(self) -> int:
        """Sweep once. Return how many runs were taken from lost workers."""
        try:
            if not await self._may_judge():
                return 0
            lost = await self._mark_lost()
            now = self._clock.monotonic()
            if now - self._interrupted_checked_at >= _INTERRUPTED_INTERVAL:
                self._interrupted_checked_at = now
                async with self._store.reads.acquire() as connection:
                    lost += [worker for worker in await workers.ended_with_runs(connection) if worker not in lost]
            rescued = 0
            for worker_id in lost:
                rescued += await self._rescue(worker_id)
            if lost:
                self._interrupted_checked_at = float("-inf")  # some runs may be locked: the next sweep checks again
            return rescued
        except Exception:
            self._writable_since = None
            raise

    async def _may_judge(self) -> bool:
        """Whether silent workers may be marked as lost. Workers cannot send heartbeats while the database is
        unavailable, and a crash deletes recorded ones. So the database must have been writable for a full lease."""
        async with self._store.reads.acquire() as connection:
            writable = not await connection.fetchval("select pg_is_in_recovery()")
            forgotten = writable and await workers.beats_forgotten(connection, self._witness_id)
        now = self._clock.monotonic()
        if not writable:
            self._writable_since = None
            return False
        if forgotten:
            self._writable_since = now
        if self._writable_since is None:
            self._writable_since = now
        return now - self._writable_since >= self._silence

    async def _mark_lost(self) -> list[UUID]:
        async with self._store.reads.acquire() as connection:
            silent = await workers.silent(connection, self._silence)
            if not silent:
                return []
            marked = await workers.mark_lost(connection, [row.worker_id for row in silent])
        lost = [row for row in silent if row.worker_id in marked]
        for row in lost:
            log.warning("worker lost", worker=str(row.worker_id), name=row.name)
        return [row.worker_id for row in lost]

    async def _rescue(self, worker_id: UUID) -> int:
        rescued = 0
        while True:
            async with self._store.hot.acquire() as connection, connection.transaction():
                held = await runs.held_by(connection, worker_id, _BATCH)
                if not held:
                    break
                effects = await rescue(connection, held, self._random)
            created: dict[int, int] = {}
            for lane_id, _ in effects.requeued:
                created[lane_id] = created.get(lane_id, 0) + 1
            self._signals.ready(created)
            rescued += len(held)
        if rescued:
            metrics.rescued.inc(rescued)
            log.info("runs rescued", worker=str(worker_id), runs=rescued)
        return rescued
