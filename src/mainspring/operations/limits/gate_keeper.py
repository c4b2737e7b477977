"""Once a second: notices changes of gates whose hint was lost, finishes interrupted ones, and counts what waits."""

from __future__ import annotations

from mainspring.operations.limits.depths import Depths
from mainspring.operations.limits.gate_counting import RunningCount
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.limits.gate_waker import GateWaker
from mainspring.store import gates
from mainspring.store.pool import Store


class GateKeeper:
    name = "gate_keeper"
    interval = 1.0

    def __init__(
        self, store: Store, registry: GateRegistry, waker: GateWaker, running: RunningCount, depths: Depths
    ) -> None:
        self._store = store
        self._registry = registry
        self._waker = waker
        self._running = running
        self._depths = depths

    async def run_once(self) -> int:
        """Return how many changes were finished."""
        async with self._store.reads.acquire() as connection:
            changed = await gates.revision(connection) > self._registry.revision
        if changed:
            self._waker.changed()
        await self._depths.count()
        if not self._registry and not changed:
            return 0
        return await self._running.finish_left()
