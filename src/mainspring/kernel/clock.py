"""Clocks are injected. Tests move time by hand, and no decision reads a hidden clock.

asyncio is imported when a clock waits: it takes 40 ms, and a program that only submits jobs needs none.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncio import Timeout, TimerHandle


class Clock(Protocol):
    def monotonic(self) -> float:
        """Monotonic seconds, for timeouts and for the validity of leases."""

    def wall(self) -> datetime:
        """Aware UTC time, for display and for the offset to the database's clock. Decisions use the database's time."""


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None: ...


class LoopClock(Clock, Protocol):
    """A clock that also sets timers on the running event loop. Its time is `monotonic`."""

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback(*args)` on the loop in `seconds`."""

    async def sleep(self, seconds: float) -> None:
        """Return in `seconds`."""

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Cancel the block in `seconds` and raise TimeoutError from it, as `asyncio.timeout` does."""


class SystemClock:
    # The builtin itself: a method around it would double the cost of a read on the hot path.
    monotonic = staticmethod(time.monotonic)

    def wall(self) -> datetime:
        return datetime.now(UTC)

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        import asyncio

        return asyncio.get_running_loop().call_later(seconds, callback, *args)

    async def sleep(self, seconds: float) -> None:
        from asyncio import sleep

        await sleep(seconds)

    def timeout(self, seconds: float) -> Timeout:
        import asyncio

        return asyncio.timeout(seconds)


SYSTEM_CLOCK: LoopClock = SystemClock()
"""What takes a clock uses this one unless it is given another."""


class ManualClock:
    """A clock that stands still until a test moves it. Timers fire within `advance`, each at its own time."""

    def __init__(self, start: datetime = datetime(2026, 11, 15, tzinfo=UTC)) -> None:
        self._wall = start
        self._monotonic = 1000.0
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> datetime:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`. Callbacks run here, in the order of their times; they may set further timers."""
        target = self._monotonic + seconds
        while (at := self.next_timer) is not None and at <= target:
            self._move_to(at)
            heapq.heappop(self._timers)[2].fire()
        self._move_to(target)

    @property
    def next_timer(self) -> float | None:
        """When the next timer fires."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = _ManualTimer(callback, args)
        heapq.heappush(self._timers, (self._monotonic + max(0.0, seconds), next(self._numbers), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        import asyncio

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        import asyncio

        async with asyncio.timeout(None) as scope:
            timer = self.call_later(seconds, lambda: scope.reschedule(0.0))
            try:
                yield
            finally:
                timer.cancel()

    def _move_to(self, moment: float) -> None:
        if moment > self._monotonic:
            self._wall += timedelta(seconds=moment - self._monotonic)
            self._monotonic = moment


class _ManualTimer:
    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.cancelled = False
        self._callback = callback
        self._args = args

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        self._callback(*self._args)


class DatabaseClock:
    """The database's time, stored as an offset to the local monotonic clock and corrected at each lease renewal.

    `observe` takes the database's time and the local times before and after the round trip that read it. The middle of
    the round trip is the estimate, and half of the trip is its error. The estimate with the shortest recent round trip
    is used. A longer trip replaces an old estimate only if that is outside of its error: on a machine that stalls, all
    trips of ten seconds can be long.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: float | None = None
        self._round_trip = float("inf")
        self._observed_at = 0.0

    def observe(self, database_time: datetime, sent: float, received: float) -> None:
        round_trip = received - sent
        stale = received - self._observed_at > 10.0
        offset = database_time.timestamp() - (sent + received) / 2
        agrees = self._offset is not None and abs(offset - self._offset) <= round_trip / 2
        if round_trip <= self._round_trip * 1.5 or (stale and not agrees):
            self._offset = offset
            # Not simply the newest one: a series of trips, each a little longer than the last, would drift away.
            self._round_trip = round_trip if stale else min(round_trip, self._round_trip)
            self._observed_at = received

    @property
    def known(self) -> bool:
        return self._offset is not None

    def timestamp(self) -> float:
        """Seconds since the epoch by the database's clock."""
        if self._offset is None:
            raise RuntimeError("the database's time has not been observed yet")
        return self._clock.monotonic() + self._offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp(), UTC)
