"""The admitter: looks after lines that a transaction could not deal with itself.

- lines that must be locked together, because one run needs all of them, or in which a run was locked (`knock`);
- runs whose backoff is over;
- lines that said when to look at them: the next token of a rate, the probe of a circuit breaker;
- runs that were admitted before a circuit breaker opened: they stand in its line again;
- lines that have room although runs are HELD in them: the process that had to look at them was killed, or a limit was
  raised. Every process looks, without waiting for the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from mainspring.kernel.logs import get_logger
from mainspring.operations.limits.admission import Admitted, hand_over
from mainspring.operations.signals import Signals
from mainspring.store import limits
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.pool import AWAY, Connection, Store

T = TypeVar("T")

log = get_logger("admitter")

_WOKEN = 500  # runs per round
_LOOKED_AT = 1000  # lines per round
_TOGETHER = 100  # lines that are locked in one transaction
_ROUNDS = 20  # of one call; what is left is for the next
_TAKEN_BACK = 500  # runs per transaction
_OPEN = 1000  # breakers per round


class Admitter:
    name = "admitter"
    interval = 1.0

    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals
        self._after = limits.FIRST_LINE
        self._after_breaker = limits.FIRST_LINE
        self._knocked: set[frozenset[int]] = set()
        self._knocking: asyncio.Task[None] | None = None
        signals.admission.subscribe(self.knock)

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
            breakers = await limits.open_breakers(connection, self._after_breaker, _OPEN)
        self._after = limits.FIRST_LINE if last is None else last
        self._after_breaker = breakers[-1] if len(breakers) == _OPEN else limits.FIRST_LINE
        await self._take_back(breakers)
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
        """Let runs whose backoff is over stand in their lines, and look at these and at the lines that are due."""
        async with self._store.hot.acquire() as connection:
            lines = {*await limits.wake(connection, _WOKEN), *await limits.due_lines(connection, _LOOKED_AT)}
        return await self._admit({frozenset({line}) for line in lines}, several=True)

    async def _admit(self, waiting: set[frozenset[int]], *, several: bool = False) -> int:
        """Look at these lines, and at those that follow from it."""
        admitted = 0
        opened: set[int] = set()
        for _ in range(_ROUNDS):
            if not waiting:
                break
            following: set[frozenset[int]] = set()
            for group in _groups(waiting):
                done = await self._hand_over(group, several=several)
                admitted += self._tell(done)
                following.update(done.again)
                opened |= done.open
            waiting = following
        await self._take_back(opened)
        return admitted

    def _tell(self, done: Admitted) -> int:
        self._signals.ready.publish(done.lanes)
        done.tell_later(self._signals)
        return done.lanes.total() + len(done.later)

    async def _take_back(self, breakers: Iterable[int]) -> None:
        """Let runs that wait for a worker behind an open breaker stand in its line again."""
        for line in breakers:
            taken = _TAKEN_BACK
            while taken == _TAKEN_BACK:
                taken, done = await self._retried(partial(_take_back, line=line))
                self._tell(done)
                self.knock(done.again)

    async def _hand_over(self, lines: frozenset[int], *, several: bool) -> Admitted:
        return await self._retried(partial(hand_over, freed={}, knocked=lines, several=several))

    async def _retried(self, write: Callable[[Connection], Awaitable[T]]) -> T:
        async def once() -> T:
            async with self._store.hot.acquire() as connection, connection.transaction():
                return await write(connection)

        return await despite_deadlocks(once)


async def _take_back(connection: Connection, line: int) -> tuple[int, Admitted]:
    taken = await limits.take_back(connection, line, _TAKEN_BACK)
    if not taken:
        return 0, Admitted()
    freed = Counter(key for slots in taken for key in slots)
    return len(taken), await hand_over(connection, freed, several=any(len(slots) > 1 for slots in taken))


def _groups(waiting: set[frozenset[int]]) -> Iterable[frozenset[int]]:
    """Single lines travel together, to save transactions."""
    singles = sorted(line for group in waiting if len(group) == 1 for line in group)
    for start in range(0, len(singles), _TOGETHER):
        yield frozenset(singles[start : start + _TOGETHER])
    yield from (group for group in waiting if len(group) > 1)
