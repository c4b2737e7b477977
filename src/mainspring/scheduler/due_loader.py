"""The due-scan: puts jobs that fire within the look-ahead into the wheel, once a second and on a hint.

A scan reads the first due jobs of every shard in one statement. Only if a shard has more of them, it reads on: first
the urgent jobs of these shards, so that critical ones do not wait until a storm is read, then all of them, a few shards
at a time. While many jobs wait for their fire, it reads the urgent ones alone. The others would wait behind them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mainspring.domain.job import Priority
from mainspring.kernel.config import Timing
from mainspring.scheduler.due_queue import DueQueue
from mainspring.scheduler.timing_wheel import TimingWheel
from mainspring.store import fires
from mainspring.store.fires import DueJob, JobKey
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store

_FIRST = 50  # jobs of a shard in the first statement of a scan
_URGENT = 200  # urgent jobs of a shard in a scan
_PER_SHARD = 2000  # jobs of a shard in a scan
_SHARDS = 4  # at a time, if they have many due jobs: the rows of one statement are decoded in one go
_ENOUGH = 20_000  # waiting jobs: they are fired in a second or two, and the next scan comes before


Wheel = TimingWheel[JobKey, DueJob]


class DueLoader:
    name = "due_loader"

    def __init__(
        self,
        store: Store,
        lanes: LaneRegistry,
        wheel: Wheel,
        queue: DueQueue,
        held: Callable[[], Mapping[int, int]],
        in_flight: Callable[[JobKey], bool],
        timing: Timing,
    ) -> None:
        self.interval = timing.due_scan
        self._store = store
        self._lanes = lanes
        self._wheel = wheel
        self._queue = queue
        self._held = held
        self._in_flight = in_flight
        self._ahead = timing.look_ahead
        self._read_up_to = -1  # shard
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
            first = await fires.due_scan(connection, shards, self._ahead, _FIRST)
            loaded = await self._load_all(connection, first)
            counts = Counter(job.shard for job in first)
            if more := [shard for shard in shards if counts[shard] >= _FIRST]:
                loaded += await self._load_urgent(connection, more)
                loaded += await self._load_rest(connection, more)
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

    async def _load_urgent(self, connection: Connection, shards: Sequence[int]) -> int:
        await self._lanes.refresh(connection)
        loaded = 0
        for priority in (Priority.CRITICAL, Priority.HIGH):
            if self._queue.at_least(priority) >= _ENOUGH:
                break
            if lane_ids := self._lanes.of_priority(priority):
                urgent = await fires.due_scan_of_lanes(connection, shards, self._ahead, _URGENT, lane_ids)
                loaded += await self._load_all(connection, urgent)
        return loaded

    async def _load_rest(self, connection: Connection, shards: Sequence[int]) -> int:
        loaded = 0
        # It goes on after the shard where the last scan had enough, so that all shards get their turn.
        first = bisect_right(shards, self._read_up_to)
        turn = [*shards[first:], *shards[:first]]
        for start in range(0, len(turn), _SHARDS):
            if len(self._queue) >= _ENOUGH:
                break
            chosen = turn[start : start + _SHARDS]
            loaded += await self._load_all(
                connection, await fires.due_scan(connection, chosen, self._ahead, _PER_SHARD)
            )
            self._read_up_to = chosen[-1]
        return loaded

    async def _load_all(self, connection: Connection, due: Sequence[DueJob]) -> int:
        if any(self._lanes.peek(lane_id) is None for lane_id in {job.lane_id for job in due}):
            await self._lanes.refresh(connection)
        loaded = sum(map(self._load, due))
        if loaded:
            self.loaded()
        return loaded

    def _load(self, job: DueJob) -> bool:
        known = self._wheel.get(job.key)
        if (
            known is not None
            and known.version == job.version
            and known.next_fire_at == job.next_fire_at
            and (known.written_by == job.written_by or not job.one_time)
        ):
            return False
        if self._in_flight(job.key):
            return False
        self._wheel.add(job.key, job, job.next_fire_at.timestamp())
        return True
