"""Long work on the event loop, cut into slices: between two slices everybody else has a turn."""

from __future__ import annotations

import asyncio
from time import perf_counter

SLICE = 0.01  # seconds


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
        await asyncio.sleep(0)
        self._end = perf_counter() + self._length
