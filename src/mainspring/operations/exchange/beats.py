"""Heartbeats: one appended row for all workers heard since the last row. They are acknowledged after its commit.

A heartbeat younger than `beat_slack` is not recorded again. The worker counts its lease from the moment it sent the
exchange, and the rescuer from the recorded heartbeat; `Timing` includes the slack in between. Heartbeats have a
connection of their own, so they do not wait for others.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.config import Timing
from mainspring.kernel.late_times import LateTimes, Period
from mainspring.store import workers
from mainspring.store.pool import Store

TABLE_TURN = 60.0  # seconds for which one of the two tables is written to


class Beats:
    def __init__(
        self, store: Store, server_id: UUID, clock: Clock, database_clock: DatabaseClock, timing: Timing
    ) -> None:
        self._store = store
        self._server_id = server_id
        self._clock = clock
        self._database_clock = database_clock
        self._slack = timing.beat_slack
        self._recorded_at: dict[UUID, float] = {}
        self._pending: dict[UUID, asyncio.Future[None]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._late = LateTimes(timing.beat_slack)

    def is_fresh(self, worker_id: UUID) -> bool:
        """Whether a heartbeat of this worker is recorded that is no older than the slack."""
        return self._clock.monotonic() - self._recorded_at.get(worker_id, float("-inf")) < self._slack

    async def record(self, worker_id: UUID) -> None:
        """Return once a heartbeat of this worker, no older than the slack, is committed."""
        if self.is_fresh(worker_id):
            return
        future = self._pending.get(worker_id)
        if future is None:
            future = self._pending[worker_id] = asyncio.get_running_loop().create_future()
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        await asyncio.shield(future)

    def late_periods(self, now: float) -> list[Period]:
        """When heartbeats took longer than the slack to be written."""
        return self._late.until(now)

    def forget(self, worker_id: UUID) -> None:
        self._recorded_at.pop(worker_id, None)

    async def _write(self) -> None:
        """Write one row for all pending heartbeats, and another one for those that arrive meanwhile."""
        while self._pending:
            batch, self._pending = self._pending, {}
            started_at = self._clock.monotonic()
            self._late.begin(started_at)
            try:
                async with self._store.urgent.acquire() as connection:
                    await workers.beat(connection, self._table(), self._server_id, list(batch))
            except Exception as error:  # noqa: BLE001 - handed on to every waiting exchange
                for future in batch.values():
                    if not future.done():
                        future.set_exception(error)
                        future.exception()  # asyncio logs nothing if the exchange has gone
                continue
            finally:
                self._late.end(self._clock.monotonic())
            for worker_id, future in batch.items():
                self._recorded_at[worker_id] = started_at
                if not future.done():
                    future.set_result(None)

    def _table(self) -> int:
        """The table of this minute of the database's clock. With servers on their own clocks, 60 s apart, both tables
        were always written to, and none was ever truncated."""
        return int(self._database_clock.timestamp() // TABLE_TURN) % 2
