"""The life of a loop: every duty is a small class with `run_once()`; this runs it until told to stop.

Tests call `run_once()` themselves, so nothing in here needs to be slept through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from mainspring.kernel.logs import get_logger

log = get_logger("lifecycle")


class Duty(Protocol):
    """One thing that a process does again and again."""

    name: str
    interval: float

    async def run_once(self) -> object:
        """Do it once and say what was done (something falsy for nothing)."""


class Loops:
    """Runs duties side by side; an error in one is logged, backed off and tried again, never fatal."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def start(self, *duties: Duty) -> None:
        for duty in duties:
            self._tasks.append(asyncio.create_task(self._run(duty), name=duty.name))

    def start_task(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        """A long-lived coroutine that waits by itself (a listener, the wheel's driver)."""

        async def guarded() -> None:
            failures = 0
            while not self._stopping.is_set():
                try:
                    await body()
                    return
                except asyncio.CancelledError:
                    raise
                except Exception as error:  # noqa: BLE001 - the loop must outlive any single failure
                    failures += 1
                    log.warning("task failed", task=name, error=repr(error), failures=failures)
                    await self._pause(backoff(failures))

        self._tasks.append(asyncio.create_task(guarded(), name=name))

    async def stop(self) -> None:
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    async def _run(self, duty: Duty) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                await duty.run_once()
                failures = 0
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the loop must outlive any single failure
                failures += 1
                log.warning("duty failed", duty=duty.name, error=repr(error), failures=failures)
            await self._pause(duty.interval if failures == 0 else backoff(failures, floor=duty.interval))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


def backoff(failures: int, *, floor: float = 0.1, cap: float = 2.0) -> float:
    """Seconds to wait after the nth failure in a row."""
    return min(cap, max(floor, 0.1 * (1 << min(failures, 10))))
