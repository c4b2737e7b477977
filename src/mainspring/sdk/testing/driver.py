"""Drives the engine of a box: by plain calls with its own loop for async tasks, or awaited on the caller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

from mainspring.sdk.app.worker_hooks import HookFailed, WorkerHooks
from mainspring.sdk.testing.attempt import Steps
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.records import BoxRun

T = TypeVar("T")


class Driver:
    """`hooks` are started before the first steps."""

    def __init__(self, engine: Engine, hooks: WorkerHooks) -> None:
        self.engine = engine
        self._hooks = hooks
        self._runner: asyncio.Runner | None = None
        self._started = False

    def drive(self, steps: Steps[T]) -> T:
        """Execute the steps. Awaitables run on a loop of the driver."""
        return self._drive(self._after_start(steps))

    def _drive(self, steps: Steps[T]) -> T:
        try:
            awaited = next(steps)
            while True:
                loop = self._own_loop(awaited)
                try:
                    value = loop.run_until_complete(awaited)
                except BaseException as error:  # noqa: BLE001 - passed on to the run that raised it
                    awaited = steps.throw(error)
                else:
                    awaited = steps.send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def drive_async(self, steps: Steps[T]) -> T:
        """Execute the steps. Awaitables run on the current loop."""
        return await self._drive_async(self._after_start(steps))

    async def _drive_async(self, steps: Steps[T]) -> T:
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                awaited = steps.send(sent) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            sent, error = None, None
            try:
                sent = await awaited
            except asyncio.CancelledError as cancelled:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # the test itself is cancelled, not the task in the box
                    raise
                error = cancelled
            except BaseException as raised:  # noqa: BLE001 - passed on to the run that raised it
                error = raised

    def start(self) -> None:
        """Run the start hooks, unless this is an async test: then they run before its first steps."""
        if not _loop_is_running():
            self.drive(_nothing())

    async def start_async(self) -> None:
        await self.drive_async(_nothing())

    def stop(self) -> None:
        """Run the stop hooks, if the start hooks have run. Raises the first error."""
        if self._started:
            self._started = False
            _raise_first(self._drive(self._hooks.stop_steps()))

    async def stop_async(self) -> None:
        if self._started:
            self._started = False
            _raise_first(await self._drive_async(self._hooks.stop_steps()))

    def _after_start(self, steps: Steps[T]) -> Steps[T]:
        if not self._started:
            try:
                yield from self._hooks.start_steps()
            except HookFailed:
                yield from self._hooks.stop_steps()
                raise
            self._started = True
        return (yield from steps)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    # -- steps

    def until(self, target: datetime) -> Steps[list[BoxRun]]:
        """Everything until `target`. Returns the runs that ended."""
        before = len(self.engine.ended)
        yield from self.engine.until(target)
        return self.engine.ended[before:]

    def settling(self, deadline: datetime) -> Steps[list[BoxRun]]:
        """Everything until no run is live. Returns the runs that ended."""
        before = len(self.engine.ended)
        while self.engine.waiting:
            moment = self.engine.next_moment()
            if moment is None or moment > deadline:
                raise TimeoutError(
                    f"runs that are still live at {deadline.isoformat()}: {list(self.engine.waiting.values())}"
                )
            yield from self.engine.step()
        return self.engine.ended[before:]

    def moment(self, within: float) -> Steps[None]:
        """Everything at the next time at which something happens, at most `within` seconds ahead."""
        moment = self.engine.next_moment()
        if within == float("inf"):
            if moment is None:
                raise TimeoutError("nothing will happen in the box any more, so the wait would never end")
            yield from self.engine.until(moment)
        else:
            deadline = self.engine.now + timedelta(seconds=within)
            yield from self.engine.until(deadline if moment is None else min(moment, deadline))

    def _own_loop(self, awaited: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        if not _loop_is_running():
            self._runner = self._runner or asyncio.Runner()
            return self._runner.get_loop()
        awaited.close()
        raise RuntimeError(
            "an event loop is running here. Use await box.advance_async(...), or a handle of submit_async. If the "
            "application has async hooks, open the box with `async with`."
        )


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _nothing() -> Steps[None]:
    yield from ()


def _raise_first(failures: list[HookFailed]) -> None:
    if failures:
        raise failures[0]
