"""The log sink of one attempt: holds the output that has not been stored yet."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Protocol

from mainspring.kernel.clock import LoopClock
from mainspring.kernel.config import DEFAULT_LOG_BYTES, MAX_LOG_CHUNK
from mainspring.kernel.logs import get_logger
from mainspring.wire.logs import LogChunk
from mainspring.worker.about_order import about
from mainspring.worker.execution.attempt import Attempt

_GIVE_UP = 5.0  # while the server answers that it cannot store logs
_GIVE_UP_ANYWAY = 75.0  # a worker that is cut off for this long has lost its runs
_LOOK_EVERY = 0.25

log = get_logger("attempt_log")


class Shipper(Protocol):
    """What the log of an attempt needs of the shipper that sends it."""

    clock: LoopClock
    lock: threading.RLock

    @property
    def full(self) -> bool: ...
    async def room(self) -> None: ...
    def add(self, sink: AttemptLog, size: int) -> None: ...
    def forget(self, size: int) -> None: ...
    def refused_since(self, began: float) -> float: ...
    async def try_once(self, chunk: LogChunk) -> None: ...


class AttemptLog:
    """`write` may be called from any thread; bytes keep the order of the calls."""

    def __init__(self, shipper: Shipper, attempt: Attempt) -> None:
        self.order = attempt.order
        self._attempt: Attempt | None = attempt
        self.waiting = bytearray()
        self.over = False  # nothing more is accepted: stored completely, rejected, or given up
        self.offset = 0  # of the first waiting byte
        self._kept = 0  # bytes that the server has acknowledged
        self._shipper = shipper
        self._clock = shipper.clock
        self._left = _cap(attempt)
        self._truncated = False
        self._ending = False
        self._news = False  # a mark has to be sent, even without bytes
        self._done = asyncio.Event()
        self._hidden = None if attempt.redactor is None else attempt.redactor.stream()

    @property
    def full(self) -> bool:
        return self._shipper.full and not self.over

    async def room(self) -> None:
        """Wait until more can be written. A run does not wait longer for its log than it would at its end."""
        began = self._clock.monotonic()
        while self.full:
            with suppress(TimeoutError):
                async with self._clock.timeout(_LOOK_EVERY):
                    await self._shipper.room()
            await self._lose_patience(began)

    def write(self, data: bytes) -> None:
        with self._shipper.lock:
            if self.over or self._ending:
                return
            self._append(data if self._hidden is None else self._hidden.feed(data))

    def _append(self, data: bytes) -> None:
        """Call it under the lock."""
        if len(data) > self._left:
            data = data[: self._left]
            self._news = self._news or not self._truncated
            self._truncated = True
        self._left -= len(data)
        self.waiting += data
        if data or self._news:
            self._shipper.add(self, len(data))

    async def finish(self) -> None:
        if self._fenced:
            self.drop()
        with self._shipper.lock:
            if not self.over and not self._ending:
                if self._hidden is not None:
                    self._append(self._hidden.end())
                self._ending = self._news = True
                self._shipper.add(self, 0)
        try:
            await self._until_done(self._clock.monotonic())
        finally:
            self._attempt = None  # breaks a reference cycle

    async def _until_done(self, began: float) -> None:
        while not self._done.is_set():
            await self._lose_patience(began)
            with suppress(TimeoutError):
                async with self._clock.timeout(_LOOK_EVERY):
                    await self._done.wait()

    async def _lose_patience(self, began: float) -> None:
        """Give the log up if waiting does not help any more."""
        if self._fenced:
            self.drop()
        elif self._shipper.refused_since(began) >= _GIVE_UP or self._clock.monotonic() - began >= _GIVE_UP_ANYWAY:
            await self.give_up()

    @property
    def _fenced(self) -> bool:
        return self._attempt is not None and self._attempt.fenced

    async def give_up(self) -> None:
        """Mark the log as truncated, so that the outcome does not wait for it any longer."""
        order = self.order
        log.warning("the log of a run is incomplete", **about(order))
        self.drop()
        mark = LogChunk(order.run_id, order.fence, order.attempt, self._kept, b"", truncated=True, end=self._ending)
        await self._shipper.try_once(mark)

    # -- for the shipper

    @property
    def has_news(self) -> bool:
        return bool(self.waiting) or self._news

    @property
    def ending(self) -> bool:
        return self._ending

    def take(self, most: int) -> LogChunk:
        """Remove and return the next chunk. Call it under the lock."""
        size = min(most, len(self.waiting), MAX_LOG_CHUNK)
        with memoryview(self.waiting) as view:
            data = bytes(view[:size])
        del self.waiting[:size]
        order = self.order
        chunk = LogChunk(order.run_id, order.fence, order.attempt, self.offset, data)
        self.offset += size
        if not self.waiting:
            chunk.truncated, chunk.end = self._truncated, self._ending
            self._news = False
        return chunk

    def stored(self, chunk: LogChunk) -> None:
        self._kept = chunk.offset + len(chunk.data)
        if chunk.end:
            self.over = True
            self._done.set()

    def drop(self) -> None:
        """Drop the rest: no server will store it."""
        with self._shipper.lock:
            self.over, self._news = True, False
            self._shipper.forget(len(self.waiting))
            self.waiting.clear()
        self._done.set()


def _cap(attempt: Attempt) -> int:
    setup = attempt.order.setup
    if setup is None or setup.limits is None or setup.limits.output is None:
        return DEFAULT_LOG_BYTES
    return setup.limits.output
