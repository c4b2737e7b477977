"""A scheduler node: leases, timing wheel, due-scan and fire. Servers and scheduler processes both contain one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import uuid7
from mainspring.kernel.lifecycle import Loops
from mainspring.operations.signals import Signals
from mainspring.scheduler.due_loader import DueLoader, Wheel
from mainspring.scheduler.due_queue import DueQueue
from mainspring.scheduler.firer import Firer
from mainspring.scheduler.shard_leaser import LeaseThread, ShardLeaser
from mainspring.scheduler.timing_wheel import TimingWheel
from mainspring.store.fires import DueJob
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store

_LONGEST_WAIT = 0.5


class SchedulerNode:
    def __init__(
        self,
        store: Store,
        lanes: LaneRegistry,
        signals: Signals,
        clock: Clock,
        database_clock: DatabaseClock,
        timing: Timing,
    ) -> None:
        self.node_id: UUID = uuid7()
        self._clock = database_clock
        self.leaser = ShardLeaser(self.node_id, clock, database_clock, timing)
        self._thread = LeaseThread(self.leaser, store.database.direct, timing, store.outage)
        self._wheel: Wheel = TimingWheel(database_clock.timestamp())
        queue = DueQueue(lanes.priority_of)
        self.firer = Firer(
            store, self._wheel, queue, self.leaser.held, self.node_id, signals, clock, database_clock, timing.look_ahead
        )
        self.loader = DueLoader(store, lanes, self._wheel, queue, self.leaser.held, self.firer.in_flight, timing)
        self._woken = asyncio.Event()
        self.loader.loaded = self._woken.set
        signals.due.subscribe(self.loader.hint)

    async def start(self, loops: Loops) -> None:
        self._thread.start()
        await self._thread.first_round()
        loops.start_task("due_loader", self.loader.run_forever)
        loops.start_task("fire_driver", self._drive)

    async def stop(self) -> None:
        await self.firer.held_jobs.stop()
        await self._thread.stop()

    async def _drive(self) -> None:
        """Advance the timing wheel: fire what is due, then sleep until the next job can be due."""
        while True:
            due = self._due()
            if due:
                await self.firer.fire(due, self._due)
                continue
            self._woken.clear()
            pause = self._wheel.wait(self._clock.timestamp(), _LONGEST_WAIT)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), max(pause, 0.0005))

    def _due(self) -> list[DueJob]:
        return self._wheel.advance(self._clock.timestamp())
