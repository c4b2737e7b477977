"""Sends changes to sinks. Each server does: one at a time holds the lease of a sink.

At least once, and in order: a batch is sent after the one before was taken, and the position moves when the receiver
has taken it, guarded by the epoch of the lease. If a process dies in between, the next one sends the batch again with
the same ids. A sink that hangs or fails delays only its own changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.sinks.cloud_events import CloudEvent, NotTaken, Producer, cloud_event
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import uuid7
from mainspring.kernel.logs import get_logger
from mainspring.operations.sinks.horizon import Horizon
from mainspring.operations.sinks.producers import Producers
from mainspring.store import sinks
from mainspring.store.pool import Store
from mainspring.store.sinks import ChangeRow, ClaimedSink

log = get_logger("sinks")

LEASE = 10.0  # seconds; renewed while a batch is under way
_RENEWALS = 4  # in the time of a lease
_AT_ONCE = 256
_BATCH = 500
_FIRST_RETRY, _LAST_RETRY = 1.0, 60.0
_KEPT_OPEN = 30.0
_settings = msgspec.json.Decoder(dict[str, Any]).decode


class _Open(msgspec.Struct):
    """A connection that is kept for the next changes."""

    version: int
    producer: Producer
    used_at: float


class SinkSender:
    name = "sink_sender"

    def __init__(
        self, store: Store, clock: Clock, producers: Producers, *, interval: float = 0.5, lease: float = LEASE
    ) -> None:
        self.interval = interval
        self._store = store
        self._clock = clock
        self._producers = producers
        self._lease = lease
        self._renewed_at = 0.0
        self._holder: UUID = uuid7()
        self._horizon = Horizon()
        self._open: dict[int, _Open] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run_once(self) -> int:
        """Begin to send for sinks that have something to send. Returns for how many."""
        try:
            async with self._store.reads.acquire() as connection:
                there_are, _ = await sinks.exist(connection)
                last = await self._horizon.advance(connection) if there_are else 0
        except BaseException:
            self._horizon.reset()
            raise
        await self._close_idle()
        await self._renew()
        if not there_are or len(self._tasks) >= _AT_ONCE:
            return 0
        async with self._store.change() as connection:
            claimed = await sinks.claim(
                connection, self._holder, self._lease, list(self._tasks), _AT_ONCE - len(self._tasks), last
            )
        for claim in claimed:
            task = asyncio.create_task(self._drain(claim), name=f"sink {claim.name}")
            self._tasks[claim.sink_id] = task
            task.add_done_callback(partial(self._done, claim.sink_id))
        return len(claimed)

    async def _renew(self) -> None:
        """A receiver may need longer for a batch than a lease lasts. A server that is killed renews nothing, so that
        another one soon takes over."""
        now = self._clock.monotonic()
        if not self._tasks or now - self._renewed_at < self._lease / _RENEWALS:
            return
        async with self._store.change() as connection:
            await sinks.renew(connection, self._holder, list(self._tasks), self._lease)
        self._renewed_at = now

    def _done(self, sink_id: int, _task: asyncio.Task[None]) -> None:
        self._tasks.pop(sink_id, None)

    async def settle(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values())

    async def close(self) -> None:
        """Stop. What is under way is sent again by another process."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sink_id in list(self._open):
            await self._shut(sink_id)

    async def _drain(self, claim: ClaimedSink) -> None:
        """Send what may be sent of a sink."""
        rows: list[ChangeRow] = []
        try:
            position = claim.position
            producer = await self._producer(claim)
            while rows := await self._read(claim, position):
                taken = await producer.send([_event(row, claim.tenant) for row in rows])
                position = rows[taken - 1].seq
                if not await self._move(claim, position, taken):
                    break
            async with self._store.change() as connection:
                await sinks.release(connection, claim, self._holder)
        except NotTaken as error:
            await self._failed(claim, rows if error.taken else [], error)
        except Exception as error:  # noqa: BLE001 - the lease ends by itself, and another server goes on
            log.warning("changes were not sent", sink=claim.name, tenant=claim.tenant_id, error=repr(error))
            await self._shut(claim.sink_id)

    async def _read(self, claim: ClaimedSink, position: int) -> list[ChangeRow]:
        async with self._store.reads.acquire() as connection:
            return await sinks.changes(connection, claim.sink_id, position, self._horizon.last, _BATCH)

    async def _move(self, claim: ClaimedSink, position: int, count: int) -> bool:
        async with self._store.change() as connection:
            return await sinks.move(connection, claim, self._holder, position, count, self._lease)

    async def _failed(self, claim: ClaimedSink, rows: list[ChangeRow], error: NotTaken) -> None:
        """Note what was taken of the batch, and when to try the rest."""
        await self._shut(claim.sink_id)
        try:
            if rows:
                await self._move(claim, rows[error.taken - 1].seq, error.taken)
            async with self._store.change() as connection:
                failures = await sinks.failed(connection, claim, self._holder, str(error), _FIRST_RETRY, _LAST_RETRY)
        except Exception as failure:  # noqa: BLE001 - the lease ends by itself, and another server goes on
            log.warning("the failure of a sink was not noted", sink=claim.name, error=repr(failure))
            return
        if failures == 1:
            log.warning("a sink takes nothing", sink=claim.name, tenant=claim.tenant_id, error=str(error))

    async def _producer(self, claim: ClaimedSink) -> Producer:
        known = self._open.get(claim.sink_id)
        if known is not None and known.version == claim.version:
            known.used_at = self._clock.monotonic()
            return known.producer
        await self._shut(claim.sink_id)
        async with self._store.reads.acquire() as connection:
            secrets: Mapping[str, str] = await sinks.secrets(connection, claim.sink_id)
        producer = await self._producers.open(claim.kind, _settings(claim.settings_text), secrets)
        self._open[claim.sink_id] = _Open(claim.version, producer, self._clock.monotonic())
        return producer

    async def _close_idle(self) -> None:
        now = self._clock.monotonic()
        for sink_id, one in list(self._open.items()):
            if sink_id not in self._tasks and now - one.used_at > _KEPT_OPEN:
                await self._shut(sink_id)

    async def _shut(self, sink_id: int) -> None:
        one = self._open.pop(sink_id, None)
        if one is not None:
            await one.producer.close()


def _event(row: ChangeRow, tenant: str) -> CloudEvent:
    return cloud_event(row.seq, row.at, row.change, tenant, row.subject, row.job_id, row.data_text.encode())
