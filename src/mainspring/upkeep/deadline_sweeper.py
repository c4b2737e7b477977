"""Ends waiting runs whose time is over. While a run is running, its worker watches the time."""

from __future__ import annotations

from mainspring.operations.lifecycle.expire import expire
from mainspring.operations.signals import Signals
from mainspring.store import runs
from mainspring.store.pool import Store

_BATCH = 500


class DeadlineSweeper:
    name = "deadline_sweeper"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals

    async def run_once(self) -> int:
        """End overdue runs. Return how many."""
        ended = 0
        while True:
            async with self._store.reads.acquire() as connection, connection.transaction():
                overdue = await runs.overdue(connection, _BATCH)
                effects = await expire(connection, overdue)
            effects.publish(self._signals)
            ended += len(overdue)
            if len(overdue) < _BATCH:
                return ended
