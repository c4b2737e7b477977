"""Drives the engine of a box: by plain calls with its own loop for async tasks, or awaited on the caller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

from mainspring.sdk.testing.attempt import Steps
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.records import BoxRun

T = TypeVar("T")


class Driver:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._runner: asyncio.Runner | None = None

    def drive(self, steps: Steps[T]) -> T:
        """Execute the steps. Awaitables run on a loop of the driver."""
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
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._runner = self._runner or asyncio.Runner()
            return self._runner.get_loop()
        awaited.close()
        raise RuntimeError(
            "an event loop is running here. Use await box.advance_async(...), or a handle of submit_async."
        )
