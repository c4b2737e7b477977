"""Long work on the event loop, cut into slices: between two slices all other tasks have a turn.

Those that work at the same time take turns: each turn of the loop has one slice, however many there are. So an exchange
that needs ten turns of the loop is late by ten slices, and not by ten for each of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from weakref import WeakKeyDictionary

from mainspring.kernel.can_wait import TURNS, can_wait

SLICE = 0.01  # seconds


class _Turns:
    """The tasks that pause on one loop. Exchanges and background work come first."""

    def __init__(self) -> None:
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()
        self._turn = 0
        self._scheduled = False

    def wait(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        mine = loop.create_future()
        (self._others if can_wait.get() else self._urgent).append(mine)
        if not self._scheduled:
            self._schedule(loop)
        return mine

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = True
        loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """One of those that have paused longest goes on."""
        self._scheduled = False
        self._turn = (self._turn + 1) % TURNS
        order = (self._urgent, self._others) if self._turn else (self._others, self._urgent)
        for paused in order:
            while paused:
                first = paused.popleft()
                if not first.done():  # it was not cancelled meanwhile
                    first.set_result(None)
                    if self._urgent or self._others:
                        self._schedule(loop)
                    return


# A loop is not kept alive: nothing here refers to it.
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


class TimeSlices:
    """Ask `over` after each small piece of work; when it is true, await `pause`.

    A piece of work that does not fill its first slice never pauses, so small requests cost nothing more.
    """

    __slots__ = ("_end", "_length")

    def __init__(self, length: float = SLICE) -> None:
        self._length = length
        self._end = perf_counter() + length

    @property
    def over(self) -> bool:
        return perf_counter() >= self._end

    async def pause(self) -> None:
        """Let the loop serve the others."""
        loop = asyncio.get_running_loop()
        turns = _turns.get(loop)
        if turns is None:
            turns = _turns[loop] = _Turns()
        await turns.wait(loop)
        self._end = perf_counter() + self._length
