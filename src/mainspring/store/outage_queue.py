"""Submissions that wait while PostgreSQL is away. They continue oldest first when it is back.

Their number and their bytes are bounded. They continue a few at a time: thousands at once would hold up the exchanges
of workers. Whether a token is valid that the server has not seen shows only when PostgreSQL is back: requests with such
tokens have a quarter of the places and of the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from mainspring.kernel.lifecycle import Outage
from mainspring.kernel.patience import OutagePatience, patience_here

T = TypeVar("T")

MOST_WAITING = 20_000
MOST_BYTES = 64 * 1024 * 1024
_FOR_STRANGERS = 4  # the part of both that they have: one of so many
_AT_ONCE = 50
_BETWEEN = 0.005  # seconds: at most 10,000 a second continue
_LOOK_AGAIN = 0.1  # seconds until the next try while the outage is not known yet

_OUTAGES = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,
)


def is_outage(error: BaseException) -> bool:
    """Whether PostgreSQL was away, so that the same statement may succeed later. The driver also raises an
    InterfaceError for a value that it cannot encode."""
    return isinstance(error, _OUTAGES) and not isinstance(error, ValueError)


class _Load:
    """How many requests wait, and their bytes."""

    def __init__(self) -> None:
        self.number = self.bytes = 0

    def has_room(self, size: int, part: int = 1) -> bool:
        return self.number < max(MOST_WAITING // part, 1) and self.bytes + size <= MOST_BYTES // part

    def add(self, number: int, size: int) -> None:
        self.number += number
        self.bytes += size


class OutageQueue:
    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._waiting: dict[asyncio.Future[None], None] = {}  # oldest first
        self._all, self._strangers = _Load(), _Load()
        self._releasing = False
        outage.on_answer(self._release)

    @property
    def away(self) -> bool:
        return self._outage.is_likely

    def note(self, error: BaseException) -> None:
        """The error of a statement."""
        self._outage.note(error)

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, patience: OutagePatience) -> bool:
        """Wait until PostgreSQL is back. False if the time is over, or if too much waits already."""
        loop = asyncio.get_running_loop()
        if loop.time() >= patience.until:
            return False
        if not self.away:  # an error can come before the outage is known
            await asyncio.sleep(min(_LOOK_AGAIN, patience.until - loop.time()))
        return not self.away or await self._wait_in_line(patience)

    async def _wait_in_line(self, patience: OutagePatience) -> bool:
        size = patience.size()
        loads = [self._all] if patience.is_known() else [self._all, self._strangers]
        if not self._all.has_room(size) or not loads[-1].has_room(size, _FOR_STRANGERS if len(loads) > 1 else 1):
            return False
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        for load in loads:
            load.add(1, size)
        try:
            async with asyncio.timeout_at(patience.until):
                await turn
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(turn, None)
            for load in loads:
                load.add(-1, -size)
        return True

    def _release(self) -> None:
        if self._waiting and not self._releasing:
            self._release_some()

    def _release_some(self) -> None:
        released = 0
        while self._waiting and released < _AT_ONCE and not self.away:
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            if not turn.done():
                turn.set_result(None)
                released += 1
        self._releasing = bool(self._waiting) and not self.away
        if self._releasing:
            asyncio.get_running_loop().call_later(_BETWEEN, self._release_some)


async def despite_outages(queue: OutageQueue, action: Callable[[], Awaitable[T]]) -> T:
    """Run what may be repeated, again when PostgreSQL is back, for as long as the request of this context may wait."""
    patience = patience_here.get()
    while True:
        try:
            return await action()
        except Exception as error:
            queue.note(error)
            if patience is None or not is_outage(error) or not await queue.wait(patience):
                raise
