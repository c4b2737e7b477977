"""What every process with a database does on the side."""

from __future__ import annotations

import os
import random

from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import Timing
from mainspring.kernel.lifecycle import Duty
from mainspring.operations.parking import Parking
from mainspring.operations.signals import Signals
from mainspring.store.lanes import LaneBook
from mainspring.store.pool import Store
from mainspring.upkeep.beat_sweeper import BeatSweeper
from mainspring.upkeep.partition_keeper import HistoryPruner, PartitionKeeper
from mainspring.upkeep.run_rescuer import RunRescuer

HISTORY_DAYS = int(os.environ.get("MAINSPRING_HISTORY_DAYS", "30"))


class ClockKeeper:
    """Keeps the offset to the database's clock fresh."""

    name = "clock_keeper"
    interval = 1.0

    def __init__(self, store: Store, clock: Clock, database_clock: DatabaseClock) -> None:
        self._store = store
        self._clock = clock
        self._database_clock = database_clock

    async def run_once(self) -> None:
        async with self._store.reads.acquire() as connection:
            sent = self._clock.monotonic()
            moment = await connection.fetchval("select clock_timestamp()")
            self._database_clock.observe(moment, sent, self._clock.monotonic())


class LanePoll:
    """Backs up the hints: new lanes, and one look a second for every parked worker."""

    name = "lane_poll"

    def __init__(self, lanes: LaneBook, parking: Parking, interval: float) -> None:
        self.interval = interval
        self._lanes = lanes
        self._parking = parking

    async def run_once(self) -> int:
        await self._lanes.refresh()
        self._parking.see_lanes()
        self._parking.wake_all()
        return len(self._parking)


def upkeep_duties(store: Store, signals: Signals, clock: Clock, timing: Timing) -> list[Duty]:
    return [
        RunRescuer(store, signals, clock, timing, random.random),
        BeatSweeper(store),
        PartitionKeeper(store),
        HistoryPruner(store, HISTORY_DAYS),
    ]
