"""The due-scan: puts jobs that fire within the look-ahead into the wheel, once a second and on a hint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from mainspring.kernel.config import Timing
from mainspring.scheduler.timing_wheel import TimingWheel
from mainspring.store import fires
from mainspring.store.fires import DueJob, JobKey
from mainspring.store.pool import Store

_PER_SHARD = 2000


Wheel = TimingWheel[JobKey, DueJob]


class DueLoader:
    name = "due_loader"

    def __init__(
        self,
        store: Store,
        wheel: Wheel,
        held: Callable[[], Mapping[int, int]],
        in_flight: Callable[[JobKey], bool],
        timing: Timing,
    ) -> None:
        self.interval = timing.due_scan
        self._store = store
        self._wheel = wheel
        self._held = held
        self._in_flight = in_flight
        self._ahead = timing.look_ahead
        self._hint = asyncio.Event()
        self.loaded: Callable[[], None] = lambda: None

    def hint(self) -> None:
        """Scan soon, because something inside the window may have changed."""
        self._hint.set()

    async def run_once(self) -> int:
        """Scan once. Return how many jobs were put into the wheel."""
        shards = sorted(self._held())
        if not shards:
            return 0
        async with self._store.hot.acquire() as connection:
            due = await fires.due_scan(connection, shards, self._ahead, _PER_SHARD)
        loaded = sum(map(self._load, due))
        if loaded:
            self.loaded()
        return loaded

    async def run_forever(self) -> None:
        """Scan every interval, or sooner on a hint. Hints are collected for 5 ms."""
        while True:
            await self.run_once()
            try:
                await asyncio.wait_for(self._hint.wait(), self.interval)
                await asyncio.sleep(0.005)
            except TimeoutError:
                pass
            self._hint.clear()

    def _load(self, job: DueJob) -> bool:
        known = self._wheel.get(job.key)
        if known is not None and known.version == job.version and known.next_fire_at == job.next_fire_at:
            return False
        if self._in_flight(job.key):
            return False
        self._wheel.add(job.key, job, job.next_fire_at.timestamp())
        return True
