"""Takes runs from lost workers, and the ordinary runs of workers that may still have exclusive ones (silence_judge.py).
A worker counts as silent only if its heartbeats could have been recorded."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.decide import Random
from mainspring.operations.lifecycle.dispatch import WORKERS_LOST
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import LostWorker
from mainspring.operations.lifecycle.rescue_worker import WorkerRescue
from mainspring.operations.signals import Signals
from mainspring.store import workers
from mainspring.store.pool import Store
from mainspring.store.workers import StillSilent
from mainspring.upkeep.silence_judge import SilenceJudge

log = get_logger("run_rescuer")

_INTERRUPTED_INTERVAL = 5.0  # seconds between checks for interrupted rescues


class RunRescuer:
    name = "run_rescuer"

    def __init__(
        self,
        store: Store,
        signals: Signals,
        clock: Clock,
        timing: Timing,
        random: Random,
        judge: SilenceJudge | None = None,
    ) -> None:
        self.interval = timing.rescue_sweep
        self._store = store
        self._signals = signals
        self._clock = clock
        self._judge = judge or SilenceJudge(clock, timing)
        self._random = random
        self._witness_id = uuid7()
        self._writable_since: float | None = None
        self._interrupted_checked_at = float("-inf")

    async def run_once(self) -> int:
        """Sweep once. Return how many runs were taken from workers."""
        try:
            writable_for = await self._writable_for()
            if writable_for is None:
                return 0
            async with self._store.reads.acquire() as connection:
                verdicts = await self._judge.judge(connection, writable_for)
            lost = await self._mark_lost(verdicts.lost)
            lost += [worker_id for worker_id in await self._ended_with_runs() if worker_id not in lost]
            rescued = 0
            for worker_id in lost:
                rescued += await self._rescue(worker_id)
            for silent in verdicts.ordinary:
                rescued += await self._rescue_ordinary(silent)
            if lost:
                self._interrupted_checked_at = float("-inf")  # some runs may be locked: the next sweep checks again
            return rescued
        except Exception:
            self._writable_since = None
            raise

    async def _writable_for(self) -> float | None:
        """For how many seconds the database has been writable, as far as this rescuer knows. None if it is not. Workers
        cannot send heartbeats while it is unavailable, and a crash deletes recorded ones."""
        async with self._store.reads.acquire() as connection:
            writable = not await connection.fetchval("select pg_is_in_recovery()")
            forgotten = writable and await workers.beats_forgotten(connection, self._witness_id)
        now = self._clock.monotonic()
        if not writable:
            self._writable_since = None
            return None
        if forgotten or self._writable_since is None:
            self._writable_since = now
        return now - self._writable_since

    async def _mark_lost(self, judged: Sequence[StillSilent]) -> list[UUID]:
        if not judged:
            return []
        effects = Effects()
        async with self._store.reads.acquire() as connection, connection.transaction():
            marked = await workers.mark_lost(connection, judged)
            lost = [each for each in judged if each.worker_id in marked]
            if lost:
                events = [LostWorker(each.worker_id, each.seconds) for each in lost]
                await WORKERS_LOST.happened(connection, events, effects)
        effects.publish(self._signals)
        for each in lost:
            log.warning("worker lost", worker=str(each.worker_id), silent_for=round(each.seconds, 1))
        return [each.worker_id for each in lost]

    async def _ended_with_runs(self) -> list[UUID]:
        """Workers that are known to have ended and still hold runs. These do not depend on any judgement."""
        now = self._clock.monotonic()
        if now - self._interrupted_checked_at < _INTERRUPTED_INTERVAL:
            return []
        self._interrupted_checked_at = now
        async with self._store.reads.acquire() as connection:
            return await workers.ended_with_runs(connection)

    async def _rescue(self, worker_id: UUID) -> int:
        """Take all runs of a worker that has ended."""
        return await WorkerRescue(self._signals, self._random, worker_id).take_all(self._store)

    async def _rescue_ordinary(self, silent: StillSilent) -> int:
        """Take the ordinary runs of a silent worker that holds exclusive ones. It stays alive. Its row is locked, so it
        cannot claim runs meanwhile."""
        worker = WorkerRescue(self._signals, self._random, silent.worker_id, ordinary_only=True)
        while True:
            async with self._store.hot.acquire() as connection, connection.transaction():
                if not await workers.lock_silent(connection, silent):
                    break
                effects = await worker.take_batch(connection)
                if effects is None:
                    break
            worker.publish(effects)
        if worker.rescued:
            metrics.rescued.inc(worker.rescued)
            metrics.partly_rescued.inc()
            log.warning(
                "ordinary runs rescued; the worker is silent, and its exclusive runs have a longer lease",
                worker=str(silent.worker_id), silent_for=round(silent.seconds, 1), runs=worker.rescued,
            )  # fmt: skip
        return worker.rescued
