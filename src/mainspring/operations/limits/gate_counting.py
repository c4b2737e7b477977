"""Counts the runs that were claimed before a gate got a limit of concurrency. The gate lets no run pass until they are
counted, also if the server dies in between: any server finishes the count."""

from __future__ import annotations

from functools import partial

from mainspring.kernel.clock import Clock
from mainspring.operations.limits.barrier import wait_for_older_claims
from mainspring.operations.signals import Signals
from mainspring.store import gates
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.pool import Store


class RunningCount:
    def __init__(self, store: Store, signals: Signals, clock: Clock) -> None:
        self._store = store
        self._signals = signals
        self._clock = clock

    async def count(self, gate_id: int) -> None:
        """Count the runs of a gate. The caller makes sure that no claim that does not know the gate is under way."""
        if await despite_deadlocks(partial(self._count, gate_id)) is not None:
            self._signals.gates_freed.publish({gate_id: 1})

    async def _count(self, gate_id: int) -> int | None:
        async with self._store.change() as connection:
            return await gates.adopt_running(connection, gate_id)

    async def finish_left(self) -> int:
        """Count the runs of gates whose change was interrupted. Return how many gates there were."""
        async with self._store.reads.acquire() as connection:
            left = await gates.uncounted(connection)
        if left:
            await wait_for_older_claims(self._store, self._clock)
        for gate_id in left:
            await self.count(gate_id)
        return len(left)
