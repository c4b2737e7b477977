"""One check of ready lanes for all exchanges that ask at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection


class ReadyCheck:
    """`check` is called with all lanes that were asked for since its last call began. It returns those that have runs
    to claim."""

    def __init__(self, check: Callable[[Collection[int]], Awaitable[Collection[int]]]) -> None:
        self._check = check
        self._wanted: set[int] = set()
        self._asking: list[asyncio.Future[frozenset[int]]] = []
        self._checking: asyncio.Task[None] | None = None

    async def any_of(self, lanes: Collection[int]) -> bool:
        """Whether a check that begins from now on finds a run in one of these lanes."""
        found: asyncio.Future[frozenset[int]] = asyncio.get_running_loop().create_future()
        self._asking.append(found)
        self._wanted.update(lanes)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_for_all())
        return not (await found).isdisjoint(lanes)

    async def _check_for_all(self) -> None:
        while self._asking:
            asking, self._asking = self._asking, []
            wanted, self._wanted = self._wanted, set()
            try:
                found = frozenset(await self._check(wanted))
            except Exception as error:  # noqa: BLE001 - handed on to all that ask
                for each in asking:
                    if not each.done():
                        each.set_exception(error)
                        each.exception()  # asyncio logs nothing if the exchange has gone
                continue
            for each in asking:
                if not each.done():
                    each.set_result(found)
