"""SIGTERM and SIGINT from the start of a process on. A start can last: it waits for PostgreSQL."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from mainspring.kernel.logs import get_logger

log = get_logger("start")

T = TypeVar("T")
_HEARD = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Listens to the signals until `release`. `asked` is set by the first of them."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for number in _HEARD:
            self._loop.add_signal_handler(number, self.asked.set)

    async def unless_asked(self, start: Coroutine[Any, Any, T]) -> T | None:
        """The result of `start`. None if a signal arrives before there is one: the start is then cancelled."""
        starting, asked = self._loop.create_task(start), self._loop.create_task(self.asked.wait())
        try:
            await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                return starting.result()
            log.info("stopped before the start was complete")
            return None
        finally:
            for task in (starting, asked):
                task.cancel()
            await asyncio.gather(starting, asked, return_exceptions=True)

    def release(self) -> None:
        for number in _HEARD:
            self._loop.remove_signal_handler(number)
