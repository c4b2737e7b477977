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
        self._asking: list[asyncio.Future[frozenset[int]]] = []
        self._looking: asyncio.Task[None] | None = None

    async def any_of(self, lanes: Collection[int]) -> bool:
        """Whether a look that begins from now on finds a run in one of these lanes."""
        found: asyncio.Future[frozenset[int]] = asyncio.get_running_loop().create_future()
        self._asking.append(found)
        self._wanted.update(lanes)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_all())
        return not (await found).isdisjoint(lanes)

    async def _look_for_all(self) -> None:
        while self._asking:
            asking, self._asking = self._asking, []
            wanted, self._wanted = self._wanted, set()
            try:
                found = frozenset(await self._look(wanted))
            except Exception as error:  # noqa: BLE001 - handed on to all that ask
                for each in asking:
                    if not each.done():
                        each.set_exception(error)
                        each.exception()  # asyncio logs nothing if the exchange has gone
                continue
            for each in asking:
                if not each.done():
                    each.set_result(found)
