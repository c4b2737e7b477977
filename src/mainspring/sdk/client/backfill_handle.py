"""A handle of a backfill: reads its progress, waits for its end, pauses, resumes and cancels it."""

from __future__ import annotations

import time
from collections.abc import Callable

from mainspring.domain.durations import format_duration
from mainspring.kernel.clock import Clock, SystemClock
from mainspring.sdk.client import calls
from mainspring.sdk.client.blocking_waits import warn_in_coroutine
from mainspring.sdk.client.sender import AsyncSender, Sender
from mainspring.wire.backfills import BackfillView

_CLOCK = SystemClock()
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0  # the server counts once a second
Seen = Callable[[BackfillView], None]


class BackfillWait:
    """When to look again, and when to stop."""

    def __init__(self, timeout: float | None, seen: Seen | None, clock: Clock = _CLOCK) -> None:
        self._clock = clock
        self._timeout = timeout
        self._deadline = float("inf") if timeout is None else self._clock.monotonic() + timeout
        self._seen = seen
        self._pause = _FIRST_PAUSE
        self.answered = False

    @property
    def left(self) -> float:
        return max(0.0, self._deadline - self._clock.monotonic())

    def over(self, view: BackfillView) -> bool:
        """Whether nothing of the backfill changes any more. Raises TimeoutError after the timeout."""
        self.answered = True
        if self._seen is not None:
            self._seen(view)
        if not view.over and self.left <= 0:
            raise TimeoutError(
                f"backfill {view.id} is still {view.state} after {format_duration(self._timeout or 0)}:"
                f" {view.remaining} of {view.total} fires are left"
            )
        return view.over

    def pause(self) -> float:
        pause = min(self._pause, self.left)
        self._pause = min(_LONGEST_PAUSE, self._pause * 1.5)
        return pause


class Backfill:
    """A backfill. `id` is its id."""

    def __init__(self, client: Sender, backfill_id: str) -> None:
        self._client = client
        self.id = backfill_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def view(self) -> BackfillView:
        """Its progress."""
        return self._client.send(calls.read_backfill(self.id))

    def wait(self, timeout: float | None = None, *, seen: Seen | None = None) -> BackfillView:
        """Wait until it is completed, or cancelled and its last run has ended. A paused one is waited for. `seen` is
        called with each answer. Raises TimeoutError after `timeout` seconds."""
        warn_in_coroutine("await backfill.wait() of the AsyncClient")
        watch = BackfillWait(timeout, seen)
        while True:
            call = calls.read_backfill(self.id)
            view = self._client.send(call, patience=watch.left, persist=watch.answered)
            if watch.over(view):
                return view
            time.sleep(watch.pause())

    def pause(self) -> BackfillView:
        """Create no more runs."""
        return self._client.send(calls.pause_backfill(self.id))

    def resume(self) -> BackfillView:
        """Continue."""
        return self._client.send(calls.resume_backfill(self.id))

    def cancel(self, *, running: bool = False) -> BackfillView:
        """End it. With `running` workers are told to stop its runs."""
        return self._client.send(calls.cancel_backfill(self.id, running=running))

    def set_concurrency(self, concurrency: int) -> BackfillView:
        """How many of its runs are alive at once."""
        return self._client.send(calls.change_backfill(self.id, concurrency))


class AsyncBackfill:
    """A backfill, for async code. `id` is its id."""

    def __init__(self, client: AsyncSender, backfill_id: str) -> None:
        self._client = client
        self.id = backfill_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def view(self) -> BackfillView:
        """Its progress."""
        return await self._client.send(calls.read_backfill(self.id))

    async def wait(self, timeout: float | None = None, *, seen: Seen | None = None) -> BackfillView:
        """Wait until it is completed, or cancelled and its last run has ended. A paused one is waited for. `seen` is
        called with each answer. Raises TimeoutError after `timeout` seconds."""
        from asyncio import sleep

        watch = BackfillWait(timeout, seen)
        while True:
            call = calls.read_backfill(self.id)
            view = await self._client.send(call, patience=watch.left, persist=watch.answered)
            if watch.over(view):
                return view
            await sleep(watch.pause())

    async def pause(self) -> BackfillView:
        """Create no more runs."""
        return await self._client.send(calls.pause_backfill(self.id))

    async def resume(self) -> BackfillView:
        """Continue."""
        return await self._client.send(calls.resume_backfill(self.id))

    async def cancel(self, *, running: bool = False) -> BackfillView:
        """End it. With `running` workers are told to stop its runs."""
        return await self._client.send(calls.cancel_backfill(self.id, running=running))

    async def set_concurrency(self, concurrency: int) -> BackfillView:
        """How many of its runs are alive at once."""
        return await self._client.send(calls.change_backfill(self.id, concurrency))
