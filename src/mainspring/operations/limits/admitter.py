"""The admitter admits the runs that a transaction could not admit itself. It processes

- lines that must be locked together, because one run needs all of them, or in which a run was locked (`wake`);
- runs whose backoff is over;
- lines whose `next_at` has come: the next token of a rate, the probe of a circuit breaker;
- runs that were admitted before a circuit breaker opened: they are put back into its line;
- lines that have room although runs are HELD in them, because the process that had to admit them was killed, or because
  a limit was raised. Every process polls for them, without waiting for the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from mainspring.kernel.logs import get_logger
from mainspring.operations.limits.admission import Admitted, release_and_admit
from mainspring.operations.signals import Signals
from mainspring.store import limits
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.pool import NOT_NOW, Connection, Store

T = TypeVar("T")

log = get_logger("admitter")

_WOKEN = 500  # runs per round
_PER_ROUND = 1000  # lines
_TOGETHER = 100  # lines that are locked in one transaction
_ROUNDS = 20  # rounds of one call; the next call does the rest
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
        self._woken: set[frozenset[int]] = set()
        self._waking: asyncio.Task[None] | None = None
        signals.admission.subscribe(self.wake)

    def wake(self, lines: Iterable[frozenset[int]]) -> None:
        """Admit runs in these lines soon. The lines of a set are locked together. An empty set stands for the lines in
        which a backoff is over."""
        self._woken.update(lines)
        if self._woken and (self._waking is None or self._waking.done()):
            self._waking = asyncio.create_task(self._answer())

    async def run_once(self) -> int:
        """One round. Returns how many runs were admitted."""
        admitted = await self._admit_due()
        async with self._store.hot.acquire() as connection:
            lines, last = await limits.lines_with_room(connection, self._after, _PER_ROUND)
            breakers = await limits.open_breakers(connection, self._after_breaker, _OPEN)
        self._after = limits.FIRST_LINE if last is None else last
        self._after_breaker = breakers[-1] if len(breakers) == _OPEN else limits.FIRST_LINE
        await self._take_back(breakers)
        return admitted + await self._admit({frozenset({line}) for line in lines})

    async def close(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            await asyncio.gather(self._waking, return_exceptions=True)

    async def _answer(self) -> None:
        try:
            while self._woken:
                woken, self._woken = self._woken, set()
                if frozenset() in woken:
                    woken.discard(frozenset())
                    await self._admit_due()
                await self._admit(woken)
        except NOT_NOW as error:
            log.warning("no runs could be admitted; the next round does it", error=repr(error))

    async def _admit_due(self) -> int:
        """Put runs whose backoff is over into their lines, and admit runs in these lines and in those that are due."""
        async with self._store.hot.acquire() as connection:
            lines = {*await limits.wake(connection, _WOKEN), *await limits.due_lines(connection, _PER_ROUND)}
        return await self._admit({frozenset({line}) for line in lines}, several=True)

    async def _admit(self, waiting: set[frozenset[int]], *, several: bool = False) -> int:
        """Admit runs in these lines, and in the lines that this affects."""
        admitted = 0
        opened: set[int] = set()
        for _ in range(_ROUNDS):
            if not waiting:
                break
            following: set[frozenset[int]] = set()
            for group in _groups(waiting):
                done = await self._release_and_admit(group, several=several)
                admitted += self._publish(done)
                following.update(done.again)
                opened |= done.open
            waiting = following
        await self._take_back(opened)
        return admitted

    def _publish(self, done: Admitted) -> int:
        self._signals.ready.publish(done.lanes)
        done.publish(self._signals)
        return done.lanes.total() + len(done.later)

    async def _take_back(self, breakers: Iterable[int]) -> None:
        """Put runs that wait for a worker behind an open breaker back into its line."""
        for line in breakers:
            taken = _TAKEN_BACK
            while taken == _TAKEN_BACK:
                taken, done = await self._retried(partial(_take_back, line=line))
                self._publish(done)
                self.wake(done.again)

    async def _release_and_admit(self, lines: frozenset[int], *, several: bool) -> Admitted:
        return await self._retried(partial(release_and_admit, freed={}, woken=lines, several=several))

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
    return len(taken), await release_and_admit(connection, freed, several=any(len(slots) > 1 for slots in taken))


def _groups(waiting: set[frozenset[int]]) -> Iterable[frozenset[int]]:
    """Single lines are locked together, to save transactions."""
    singles = sorted(line for group in waiting if len(group) == 1 for line in group)
    for start in range(0, len(singles), _TOGETHER):
        yield frozenset(singles[start : start + _TOGETHER])
    yield from (group for group in waiting if len(group) > 1)
