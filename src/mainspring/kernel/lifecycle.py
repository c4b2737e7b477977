"""Runs the periodic tasks of a process until it stops. A periodic task is a small class with `run_once()`.

Tests call `run_once()` directly, so they need no sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from mainspring.kernel.logs import get_logger

log = get_logger("lifecycle")

_EXPLAINED_FAILURES = 10


class Outage:
    """Whether something is away on which everything in this process depends. Its errors are then expected. The part
    that notices that it is away logs one line every few seconds, and the others log nothing."""

    def __init__(self, *errors: type[Exception], refusal: type[Exception] | None = None) -> None:
        self._errors = errors
        self._refusal = refusal
        self.away = False
        self.suspected = False  # there is no answer yet, and it is later than usual
        self._followers: list[Callable[[], None]] = []
        self._on_return: list[Callable[[], None]] = []
        self._on_refusal: list[Callable[[], None]] = []

    @property
    def is_likely(self) -> bool:
        return self.away or self.suspected

    def end(self) -> None:
        """There is an answer."""
        was_away = self.away
        self.away = self.suspected = False
        for follower in (*self._followers, *(self._on_return if was_away else ())):
            follower()

    def on_answer(self, follower: Callable[[], None]) -> None:
        """Register a callback. It is called after each answer, in the thread that has got it."""
        self._followers.append(follower)

    def on_return(self, follower: Callable[[], None]) -> None:
        """Register a callback. It is called after the first answer, in the thread that has got it."""
        self._on_return.append(follower)

    def on_refusal(self, follower: Callable[[], None]) -> None:
        """Register a callback. It is called after each error which says that changes are not accepted there any
        more."""
        self._on_refusal.append(follower)

    def note(self, error: BaseException) -> None:
        """An error of what may be away. Everything that catches one tells it."""
        if self._refusal is not None and isinstance(error, self._refusal):
            for follower in self._on_refusal:
                follower()

    def explains(self, error: Exception, failures: int) -> bool:
        """Whether the outage explains the nth consecutive failure. The first failures may come before `away` is set."""
        self.note(error)
        return isinstance(error, self._errors) and (self.away or failures < _EXPLAINED_FAILURES)


NO_OUTAGE = Outage()


class PeriodicTask(Protocol):
    """A task that a process repeats every `interval` seconds."""

    name: str
    interval: float

    async def run_once(self) -> object:
        """Run the task once and return what was done. The result is falsy if there was nothing to do."""


class Loops:
    """Runs periodic tasks concurrently. An error is logged and the task is repeated after a backoff, or at the end of
    an outage. The errors of an outage are logged as details."""

    def __init__(self, outage: Outage = NO_OUTAGE) -> None:
        self._outage = outage
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._backing_off: set[asyncio.Event] = set()
        outage.on_return(self._cut_backoffs)

    def start(self, *tasks: PeriodicTask) -> None:
        for task in tasks:
            self._tasks.append(asyncio.create_task(self._run(task), name=task.name))

    def start_task(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        """Run a long-lived coroutine that does its own waiting, such as a listener. It is restarted after an error."""

        async def guarded() -> None:
            failures = 0
            while not self._stopping.is_set():
                try:
                    await body()
                    return
                except asyncio.CancelledError:
                    raise
                except Exception as error:  # noqa: BLE001 - the loop must survive any single failure
                    failures += 1
                    self._log_failure("task failed", name, error, failures)
                    await self._back_off(backoff(failures))

        self._tasks.append(asyncio.create_task(guarded(), name=name))

    async def stop(self) -> None:
        self._stopping.set()
        self._cut_backoffs()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    async def _run(self, task: PeriodicTask) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                await task.run_once()
                failures = 0
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the loop must survive any single failure
                failures += 1
                self._log_failure("periodic task failed", task.name, error, failures)
            if failures:
                await self._back_off(backoff(failures, floor=task.interval))
            else:
                await self._pause(task.interval)

    def _log_failure(self, event: str, task: str, error: Exception, failures: int) -> None:
        say = log.debug if self._outage.explains(error, failures) else log.warning
        say(event, task=task, error=repr(error), failures=failures)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _back_off(self, seconds: float) -> None:
        cut = asyncio.Event()
        self._backing_off.add(cut)
        try:
            async with asyncio.timeout(seconds):
                await cut.wait()
        except TimeoutError:
            pass
        finally:
            self._backing_off.discard(cut)

    def _cut_backoffs(self) -> None:
        for cut in self._backing_off:
            cut.set()


def backoff(failures: int, *, floor: float = 0.1, cap: float = 2.0) -> float:
    """Seconds to wait after the nth consecutive failure."""
    return min(cap, max(floor, 0.1 * (1 << min(failures, 10))))
