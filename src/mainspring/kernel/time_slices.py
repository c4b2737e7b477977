"""Long work on the event loop, cut into slices: between two slices everybody else has a turn.

Those that work at the same time take turns: each turn of the loop has one slice, however many there are. So an exchange
that needs ten turns of the loop is late by ten slices, and not by ten for each of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from weakref import WeakKeyDictionary

SLICE = 0.01  # seconds

_Paused = deque[asyncio.Future[None]]
_paused: WeakKeyDictionary[asyncio.AbstractEventLoop, _Paused] = WeakKeyDictionary()


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
        paused = _paused.setdefault(loop, deque())
        mine = loop.create_future()
        paused.append(mine)
        if len(paused) == 1:
            loop.call_soon(_go_on, loop, paused)
        await mine
        self._end = perf_counter() + self._length


def _go_on(loop: asyncio.AbstractEventLoop, paused: _Paused) -> None:
    """The one that has paused longest goes on."""
    while paused:
        first = paused.popleft()
        if not first.done():  # it was not cancelled meanwhile
            first.set_result(None)
            break
    if paused:
        loop.call_soon(_go_on, loop, paused)
