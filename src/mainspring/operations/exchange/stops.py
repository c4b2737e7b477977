"""The check for runs that a worker has to stop, and for a request to drain."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring.kernel.clock import Clock
from mainspring.kernel.config import Timing
from mainspring.operations.exchange.batched_reads import BatchedReads
from mainspring.operations.exchange.exchange import Exchange
from mainspring.operations.exchange.worker_registry import CHECK_INTERVAL
from mainspring.store import runs, workers
from mainspring.store.pool import Store


class StopCheck:
    def __init__(self, store: Store, clock: Clock, timing: Timing) -> None:
        self._store = store
        self._clock = clock
        self._timing = timing
        self._to_stop = BatchedReads(self._read)

    async def _read(self, worker_ids: Sequence[UUID]) -> dict[UUID, list[UUID]]:
        async with self._store.for_short_reads().acquire() as connection:
            return await runs.to_stop(connection, worker_ids)

    def is_due(self, exchange: Exchange) -> bool:
        """Whether to check: after a hint, and every second in case the hint was lost."""
        if exchange.waiter.stop_requested:
            return True
        return self._clock.monotonic() - exchange.worker.checked_at >= CHECK_INTERVAL

    async def run(self, exchange: Exchange) -> None:
        """Put the runs to stop into the reply, and read the worker's state again if there was a hint."""
        worker, worker_id = exchange.worker, exchange.request.worker_id
        hinted = exchange.waiter.take_stop_request()
        now = worker.checked_at = self._clock.monotonic()
        to_stop = await self._to_stop.get(worker_id) or []
        if hinted:  # A request to drain sends the same hint. Without a hint the row was read as the exchange arrived.
            async with self._store.for_short_reads().acquire() as connection:
                row = await workers.registration(connection, exchange.tenant, worker_id)
            if row is not None:
                worker.state = row.state
        # Each run is sent once, and again every beat until it has ended: the reply may have been lost.
        sent = {run_id: worker.stops_sent.get(run_id, 0.0) for run_id in to_stop}
        exchange.reply.stop = [run_id for run_id in to_stop if now - sent[run_id] >= self._timing.beat]
        sent.update(dict.fromkeys(exchange.reply.stop, now))
        worker.stops_sent = sent
