"""Heartbeats: one appended row for all workers heard since the last one, acknowledged after its commit.

A beat younger than `beat_slack` is not recorded again: the worker counts its lease from the moment it sent, the
rescuer from the recorded beat, and the slack is paid for in `Timing`.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from mainspring.kernel.clock import Clock
from mainspring.kernel.config import Timing
from mainspring.store import workers
from mainspring.store.pool import Store

TABLE_TURN = 60.0  # seconds for which one of the two tables is written to


class Beats:
    def __init__(self, store: Store, server_id: UUID, clock: Clock, timing: Timing) -> None:
        self._store = store
        self._server_id = server_id
        self._clock = clock
        self._slack = timing.beat_slack
        self._recorded: dict[UUID, float] = {}
        self._waiting: dict[UUID, asyncio.Future[None]] = {}
        self._flush: asyncio.Task[None] | None = None

    async def record(self, worker_id: UUID) -> None:
        """Return once a beat of this worker, no older than the slack, is committed."""
        now = self._clock.monotonic()
        if now - self._recorded.get(worker_id, float("-inf")) < self._slack:
            return
        future = self._waiting.get(worker_id)
        if future is None:
            future = self._waiting[worker_id] = asyncio.get_running_loop().create_future()
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._write())
        await asyncio.shield(future)

    def forget(self, worker_id: UUID) -> None:
        self._recorded.pop(worker_id, None)

    async def _write(self) -> None:
        """One row for everybody who waits; those who come meanwhile go into the next."""
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            asked = self._clock.monotonic()
            try:
                async with self._store.reads.acquire() as connection:
                    await workers.beat(connection, self._table(), self._server_id, list(batch))
            except Exception as error:  # noqa: BLE001 - handed on to every waiting exchange
                for future in batch.values():
                    if not future.done():
                        future.set_exception(error)
                        future.exception()  # a waiter that has gone must not make noise
                continue
            for worker_id, future in batch.items():
                self._recorded[worker_id] = asked
                if not future.done():
                    future.set_result(None)

    def _table(self) -> int:
        return int(self._clock.wall().timestamp() // TABLE_TURN) % 2
