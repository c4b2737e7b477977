"""The admitter: looks after lines that a transaction could not deal with itself.

- lines that must be locked together, because one run needs all of them, or in which a run was locked (`knock`);
- runs whose backoff is over;
- lines that have room although runs are HELD in them: the process that had to look at them was killed, or a limit was
  raised. Every process looks, without waiting for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import asyncpg

from mainspring.kernel.logs import get_logger
from mainspring.operations.limits.admission import Admitted, hand_over
from mainspring.operations.signals import Signals
from mainspring.store import limits
from mainspring.store.pool import AWAY, Connection, Store

log = get_logger("admitter")

_WOKEN = 500  # runs per round
_LOOKED_AT = 1000  # lines per round
_TOGETHER = 100  # lines that are locked in one transaction
_ROUNDS = 20  # of one call; what is left is for the next
_TRIES = 5


class Admitter:
    name = "admitter"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals
        self._after = limits.FIRST_LINE
        self._knocked: set[frozenset[int]] = set()
        self._knocking: asyncio.Task[None] | None = None
        signals.on_knock(self.knock)

    def knock(self, lines: Iterable[frozenset[int]]) -> None:
        """Look at these lines soon, those of a set together. An empty set: where a backoff is over."""
        self._knocked.update(lines)
        if self._knocked and (self._knocking is None or self._knocking.done()):
            self._knocking = asyncio.create_task(self._answer())

    async def run_once(self) -> int:
        """One round. Returns how many runs were admitted."""
        admitted = await self._wake()
        async with self._store.hot.acquire() as connection:
            lines, last = await limits.lines_with_room(connection, self._after, _LOOKED_AT)
        self._after = limits.FIRST_LINE if last is None else last
        return admitted + await self._admit({frozenset({line}) for line in lines})

    async def close(self) -> None:
        if self._knocking is not None:
            self._knocking.cancel()
            await asyncio.gather(self._knocking, return_exceptions=True)

    async def _answer(self) -> None:
        try:
            while self._knocked:
                knocked, self._knocked = self._knocked, set()
                if frozenset() in knocked:
                    knocked.discard(frozenset())
                    await self._wake()
                await self._admit(knocked)
        except AWAY as error:
            log.warning("lines could not be looked at; the next round does it", error=repr(error))

    async def _wake(self) -> int:
        """Let runs whose backoff is over stand in their lines, and admit them."""
        async with self._store.hot.acquire() as connection:
            lines = set(await limits.wake(connection, _WOKEN))
        return await self._admit({frozenset({line}) for line in lines})

    async def _admit(self, waiting: set[frozenset[int]]) -> int:
        """Look at these lines, and at those that follow from it."""
        admitted = 0
        for _ in range(_ROUNDS):
            if not waiting:
                break
            following: set[frozenset[int]] = set()
            for group in _groups(waiting):
                done = await self._hand_over(group)
                self._signals.ready(done.lanes)
                admitted += done.lanes.total()
                following.update(done.again)
            waiting = following
        return admitted

    async def _hand_over(self, lines: frozenset[int]) -> Admitted:
        for attempt in range(_TRIES):
            try:
                async with self._store.hot.acquire() as connection, connection.transaction():
                    return await _knock(connection, lines)
            except asyncpg.DeadlockDetectedError:
                if attempt == _TRIES - 1:
                    raise
                log.info("deadlock: looking at lines again", lines=len(lines))
        raise AssertionError


async def _knock(connection: Connection, lines: frozenset[int]) -> Admitted:
    return await hand_over(connection, {}, lines)


def _groups(waiting: set[frozenset[int]]) -> Iterable[frozenset[int]]:
    """Single lines travel together, to save transactions."""
    singles = sorted(line for group in waiting if len(group) == 1 for line in group)
    for start in range(0, len(singles), _TOGETHER):
        yield frozenset(singles[start : start + _TOGETHER])
    yield from (group for group in waiting if len(group) > 1)
