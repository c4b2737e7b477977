"""The due-scan: what fires within the look-ahead goes into the wheel. Once a second, and when somebody hints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from mainspring.kernel.config import Timing
from mainspring.scheduler.timing_wheel import TimingWheel
from mainspring.store import fires
from mainspring.store.pool import Record, Store

JobKey = tuple[int, str]
_PER_SHARD = 2000


class DueJob(msgspec.Struct, frozen=True):
    """A job as the due-scan saw it. The fire compares all of this with the row, and builds the run from the row."""

    tenant_id: int
    job_id: str
    version: int
    shard: int
    next_fire_at: datetime
    one_time: bool
    id_generated: bool
    overlap: int
    schedule_text: str
    spec_text: str | None

    @property
    def key(self) -> JobKey:
        return (self.tenant_id, self.job_id)


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
        """Something inside the window may have changed."""
        self._hint.set()

    async def run_once(self) -> int:
        """Scan once; returns how many jobs went into the wheel."""
        shards = sorted(self._held())
        if not shards:
            return 0
        async with self._store.hot.acquire() as connection:
            rows = await fires.due_scan(connection, shards, self._ahead, _PER_SHARD)
        loaded = 0
        for row in rows:
            loaded += self._load(row)
        if loaded:
            self.loaded()
        return loaded

    async def run_forever(self) -> None:
        """Scan every interval, sooner on a hint (hints are gathered for 5 ms)."""
        while True:
            await self.run_once()
            try:
                await asyncio.wait_for(self._hint.wait(), self.interval)
                await asyncio.sleep(0.005)
            except TimeoutError:
                pass
            self._hint.clear()

    def _load(self, row: Record) -> bool:
        key = (row["tenant_id"], row["job_id"])
        known = self._wheel.get(key)
        if known is not None and known.version == row["version"] and known.next_fire_at == row["next_fire_at"]:
            return False
        if self._in_flight(key):
            return False
        job = DueJob(
            row["tenant_id"],
            row["job_id"],
            row["version"],
            row["shard"],
            row["next_fire_at"],
            row["one_time"],
            row["id_generated"],
            row["overlap"],
            row["schedule_text"],
            row["spec_text"],
        )
        self._wheel.add(key, job, job.next_fire_at.timestamp())
        return True
