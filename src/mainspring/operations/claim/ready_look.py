"""One look at ready lanes for all exchanges that ask at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection


class ReadyLook:
    """`look` is called with all lanes that were asked for since its last call began. It returns those that have runs to
    claim."""

    def __init__(self, look: Callable[[Collection[int]], Awaitable[Collection[int]]]) -> None:
        self._look = look
        self._wanted: set[int] = set()
        self._next: asyncio.Future[frozenset[int]] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def any_of(self, lanes: Collection[int]) -> bool:
        """Whether a look that begins from now on finds a run in one of these lanes."""
        self._wanted.update(lanes)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_all())
        return not (await asyncio.shield(self._next)).isdisjoint(lanes)

    async def _look_for_all(self) -> None:
        while (answer := self._next) is not None:
            wanted, self._wanted, self._next = self._wanted, set(), None
            try:
                found = frozenset(await self._look(wanted))
            except Exception as error:  # noqa: BLE001 - handed on to all that wait for it
                answer.set_exception(error)
                answer.exception()  # asyncio logs nothing if all of them have gone
            else:
                answer.set_result(found)
