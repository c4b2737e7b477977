"""Ships the output of all attempts to a server: in batches, a few times a second, in order.

One shipment is in flight at a time. It is repeated unchanged until a server has acknowledged it, so the stored part is
always the beginning of the output. A log that no server accepts is given up without affecting the others. The memory
for waiting output is bounded: beyond that, sinks are `full`, and writers that can wait pause. An attempt that prints
nothing has no sink, and does not use this module.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import msgspec

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.lifecycle import backoff
from mainspring.kernel.logs import get_logger
from mainspring.wire.logs import LogChunk, LogReceipt, LogShipment
from mainspring.worker.about_order import about
from mainspring.worker.exchange.server_client import ExchangeRefused, LogStoreDown, ServerClient, ServerClientError
from mainspring.worker.execution.attempt import Attempt
from mainspring.worker.incarnation import Incarnation
from mainspring.worker.output.attempt_log import AttemptLog

MOST_WAITING = 4 * 1024 * 1024
_MOST_SHIPMENT = 2 * 1024 * 1024
_MOST_CHUNKS = 1000
_SOON = 256 * 1024  # this much output is shipped at once
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 1.0
_QUIET = 2.0  # after this many seconds without output, the next output is shipped soon again
_TRY_ONCE_SECONDS = 2.0

_encode = msgspec.json.Encoder().encode
log = get_logger("log_shipper")

Taken = tuple[AttemptLog, LogChunk]


class LogShipper:
    """`open` is the `OpenLog` of the worker, and may be called from any thread. `speaks_for` is called on the loop, and
    tells how to find the present incarnation."""

    def __init__(self, server_client: ServerClient, clock: LoopClock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self._server_client = server_client
        self._incarnation: Callable[[], Incarnation] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dirty: dict[AttemptLog, None] = {}
        self._bytes = 0  # waiting and in flight
        self._task: asyncio.Task[None] | None = None
        self._notified = False  # the loop knows that there is output
        self._hurried = False  # and that it is urgent
        self._thread = 0
        self._urgent = asyncio.Event()
        self._room = asyncio.Event()
        self._pause = _FIRST_PAUSE
        self._shipped_at = 0.0
        self._refused_at: float | None = None
        self._unanswered = 0  # shipments in a row

    def speaks_for(self, incarnation: Callable[[], Incarnation]) -> None:
        self._incarnation = incarnation
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def open(self, attempt: Attempt) -> AttemptLog:
        with self.lock:
            if attempt.log is None:
                attempt.log = AttemptLog(self, attempt)
            assert isinstance(attempt.log, AttemptLog)
            return attempt.log

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._server_client.close()

    # -- for the sinks, under the lock

    @property
    def full(self) -> bool:
        return self._bytes >= MOST_WAITING

    async def room(self) -> None:
        while self.full:
            self._room.clear()
            await self._room.wait()

    def add(self, sink: AttemptLog, size: int) -> None:
        self._bytes += size
        self._dirty[sink] = None
        hurry = (sink.ending or self._bytes >= _SOON) and not self._hurried
        if self._loop is None or (self._notified and not hurry):
            return
        self._notified, self._hurried = True, self._hurried or hurry
        if threading.get_ident() == self._thread:
            self._start_shipping(hurry)
            return
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._start_shipping, hurry)

    def forget(self, size: int) -> None:
        self._bytes -= size
        if not self.full:
            self._room.set()

    # -- on the loop

    def refused_since(self, began: float) -> float:
        """For how many seconds the server has answered that it cannot store logs, since `began` at the earliest."""
        return 0.0 if self._refused_at is None else self.clock.monotonic() - max(began, self._refused_at)

    async def try_once(self, chunk: LogChunk) -> None:
        """Send one chunk outside the order, to any server that accepts it, for a short time."""
        assert self._incarnation is not None
        worker_id, secret = self._incarnation()
        body = _encode(LogShipment(worker_id, [chunk]))
        with suppress(TimeoutError):
            async with self.clock.timeout(_TRY_ONCE_SECONDS):
                for _ in range(self._server_client.servers):
                    with suppress(ServerClientError):
                        await self._server_client.ship(body, secret)
                        return

    def _start_shipping(self, hurry: bool) -> None:
        if hurry:
            self._urgent.set()
        if self._task is None or self._task.done():
            assert self._loop is not None
            self._task = self._loop.create_task(self._ship())

    async def _ship(self) -> None:
        """Runs while there is something to ship."""
        try:
            await self._ship_all()
        except Exception as error:  # a bug must cost one shipment, not all that follow
            log.error("a shipment failed", exc_info=error)
            with self.lock:
                self._notified = self._hurried = False

    async def _ship_all(self) -> None:
        while True:
            await self._wait_for_more()
            while chunks := self._take():
                await self._deliver(chunks)
                if not self._urgent.is_set():
                    break
            with self.lock:
                if not self._dirty:
                    self._notified = False
                    return

    async def _wait_for_more(self) -> None:
        """Wait for more output to send together: longer while output goes on, not at all if much waits or a run
        ends."""
        resting = self.clock.monotonic() - self._shipped_at > _QUIET
        self._pause = _FIRST_PAUSE if resting else min(_LONGEST_PAUSE, self._pause * 1.5)
        with suppress(TimeoutError):
            async with self.clock.timeout(self._pause):
                await self._urgent.wait()

    def _take(self) -> list[Taken]:
        """The next shipment. It contains one log per run, because a receipt names runs."""
        taken: list[Taken] = []
        runs: set[UUID] = set()
        size = 0
        with self.lock:
            self._urgent.clear()
            self._hurried = False
            for sink in list(self._dirty):
                run_id = sink.order.run_id
                if run_id in runs:
                    continue
                runs.add(run_id)
                while sink.has_news and size < _MOST_SHIPMENT and len(taken) < _MOST_CHUNKS:
                    chunk = sink.take(_MOST_SHIPMENT - size)
                    size += len(chunk.data)
                    taken.append((sink, chunk))
                del self._dirty[sink]
                if sink.has_news:
                    self._dirty[sink] = None  # behind the others, which must not wait for an endless log
            if any(sink.ending for sink in self._dirty) or self._bytes - size >= _SOON:
                self._hurried = True
                self._urgent.set()
        return taken

    async def _deliver(self, chunks: list[Taken]) -> None:
        """Send a shipment. If its contents are rejected, it is sent in halves until the rejected log is found. That log
        is given up, and the others are stored."""
        try:
            parts = [chunks]
            while parts:
                part = parts.pop()
                if await self._send(part):
                    continue
                sinks = list(dict.fromkeys(sink for sink, _ in part))
                if len(sinks) == 1:
                    await sinks[0].give_up()
                    continue
                ahead = set(sinks[: len(sinks) // 2])
                parts.append([taken for taken in part if taken[0] not in ahead])
                parts.append([taken for taken in part if taken[0] in ahead])
        finally:
            self._shipped_at = self.clock.monotonic()
            with self.lock:
                self.forget(sum(len(chunk.data) for _, chunk in chunks))

    async def _send(self, chunks: list[Taken]) -> bool:
        """Repeat one shipment until it is acknowledged or no attempt waits for it any more. False if its contents are
        rejected."""
        assert self._incarnation is not None
        worker_id, secret = self._incarnation()
        body = _encode(LogShipment(worker_id, [chunk for _, chunk in chunks]))
        receipt: LogReceipt | None = None
        failures = 0
        while receipt is None and not all(sink.over for sink, _ in chunks):
            try:
                receipt = await self._server_client.ship(body, secret)
                self._refused_at, self._unanswered = None, 0
            except ServerClientError as error:
                failures += 1
                if failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, 8th...
                    log.warning("logs are not accepted", error=str(error), failures=failures)
                if isinstance(error, ExchangeRefused) and error.contents:
                    return False
                self._note(error)
                if isinstance(error, ExchangeRefused) and error.final:
                    break
                await self.clock.sleep(backoff(failures))
        self._settle(chunks, receipt)
        return True

    def _note(self, error: ServerClientError) -> None:
        """Only an answer counts. Servers that do not answer may come back."""
        if isinstance(error, LogStoreDown | ExchangeRefused):
            self._unanswered = 0
            self._refused_at = self._refused_at or self.clock.monotonic()
            return
        self._unanswered += 1
        if self._unanswered >= self._server_client.servers:
            self._refused_at = None

    def _settle(self, chunks: list[Taken], receipt: LogReceipt | None) -> None:
        refused: set[UUID] = set()
        if receipt is not None:
            refused = {*receipt.fenced, *receipt.gaps}
            orders = {sink.order.run_id: sink.order for sink, _ in chunks}
            for run_id in receipt.gaps:
                run = about(orders[run_id]) if run_id in orders else {"run": str(run_id)}
                log.error("the server misses output that it had acknowledged; the rest of the log is dropped", **run)
        for sink, chunk in chunks:
            if receipt is None or chunk.run_id in refused:
                sink.drop()
            else:
                sink.stored(chunk)
