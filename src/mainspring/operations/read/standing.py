"""The current numbers of queues, workers and dead letters, for the metrics."""

from __future__ import annotations

import msgspec

from mainspring.domain.worker_state import WorkerState
from mainspring.operations.access.caller import Caller
from mainspring.operations.read.queues import QueueReader
from mainspring.store import dead_letters, workers
from mainspring.store.pool import Store
from mainspring.wire.runs import QueueView


class Standing(msgspec.Struct, frozen=True):
    """`workers`: how many are in each state. `slots`: the slots of the live workers."""

    queues: list[QueueView]
    workers: dict[str, int]
    slots: int
    dead_letters: int


class StandingReader:
    def __init__(self, store: Store, queues: QueueReader) -> None:
        self._store = store
        self._queues = queues

    async def standing(self, caller: Caller) -> Standing:
        queues = await self._queues.queues_at_once(caller)
        async with self._store.reads.acquire() as connection:
            counts = await workers.counts(connection, caller.tenant)
            dead = await dead_letters.count(connection, caller.tenant)
        return Standing(
            queues.queues,
            {WorkerState(row.state).name: row.count for row in counts},
            sum(row.slots for row in counts if row.state in (WorkerState.LIVE, WorkerState.DRAINING)),
            dead,
        )
