"""Asks workers for the unstarted runs of paused queues."""

from __future__ import annotations

from mainspring.operations.exchange.exchange import Exchange
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.store import gates
from mainspring.store.pool import Store

_AGAIN = 0.5  # seconds until a worker is asked again: whether a short run has started is not known


class PausedRuns:
    def __init__(self, store: Store, registry: GateRegistry) -> None:
        self._store = store
        self._registry = registry

    async def recall(self, exchange: Exchange, now: float) -> None:
        """Put into the reply which runs the worker must hand back if it has not started them. At once after a change of
        a gate, and then twice a second."""
        worker = exchange.worker
        paused = [lane.lane_id for lane in worker.lanes if self._registry.is_paused(lane)]
        checked_at, revision = worker.pauses_checked_at
        if not paused or (now - checked_at < _AGAIN and revision == self._registry.revision):
            return
        worker.pauses_checked_at = (now, self._registry.revision)
        async with self._store.for_short_reads().acquire() as connection:
            found = await gates.unstarted_of(connection, exchange.request.worker_id, paused)
        given = {order.run_id for order in exchange.reply.runs}
        exchange.reply.give_back += [run_id for run_id in found if run_id not in given]
