"""A process executor in this process, with real children."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvloop

from mainspring.wire.exchange import RunOrder
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Stop, key_of
from mainspring.worker.executors.process.child import WarmChild
from mainspring.worker.executors.process.executor import ProcessExecutor
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.eventually import PATIENCE

from .exchange_server import an_order
from .process_app import app
from .processes import ended_within

APP = "tests.worker.process_app:app"
KILL_GRACE = 0.4


class Sink:
    """A log in memory, which takes `room_for` bytes at a time."""

    def __init__(self, room_for: int) -> None:
        self.data = b""
        self.finished = False
        self.most = 0
        self._room_for = room_for
        self._waiting = 0

    @property
    def full(self) -> bool:
        return self._waiting >= self._room_for

    async def room(self) -> None:
        await asyncio.sleep(0)
        self._waiting = 0

    def write(self, data: bytes) -> None:
        assert not self.finished
        self.data += data
        self._waiting += len(data)
        self.most = max(self.most, self._waiting)

    async def finish(self) -> None:
        self.finished = True


class SlowSink(Sink):
    """It is `finishing`, and not done before it is `stored`."""

    def __init__(self) -> None:
        super().__init__(64 * 1024)
        self.finishing = asyncio.Event()
        self.stored = asyncio.Event()

    async def finish(self) -> None:
        self.finishing.set()
        await self.stored.wait()


class Executor(ProcessExecutor):
    """Remembers what it was told about its runs."""

    def __init__(self, watchdog: WatchdogClient, slots: int, **options: Any) -> None:
        self.progress: list[tuple[float | None, str | None]] = []
        super().__init__(
            app.tasks,
            slots,
            app=options.pop("app", APP),
            watchdog=watchdog,
            kill_grace=KILL_GRACE,
            note_progress=lambda _, fraction, message: self.progress.append((fraction, message)),
            open_log=self._open_log,
            **options,
        )

    @property
    def size(self) -> int:
        return self._pool.size

    def children_die_young(self) -> None:
        """From now on each is killed as soon as it is ready, and given out before anybody knows."""
        start = self._pool._start

        async def start_and_kill() -> WarmChild:
            child = await start()
            os.kill(child.command.pid, signal.SIGKILL)
            assert ended_within(child.command.pid, 30.0)
            return child

        self._pool._start = start_and_kill

    async def run(self, task: str, payload: object = None, **fields: Any) -> AttemptEnding:
        return await self.execute(an_attempt(task, payload, **fields))

    async def result(self, task: str, payload: object = None, **fields: Any) -> Any:
        return result(await self.run(task, payload, **fields))

    def begin(self, task: str, payload: object = None, **fields: Any) -> tuple[Attempt, asyncio.Task[AttemptEnding]]:
        attempt = an_attempt(task, payload, **fields)
        return attempt, asyncio.create_task(self.execute(attempt))

    def _open_log(self, attempt: Attempt) -> Any:
        attempt.log = attempt.log or Sink(64 * 1024)
        return attempt.log


def an_attempt(task: str, payload: object = None, **fields: Any) -> Attempt:
    order: RunOrder = an_order(task, payload=payload or {}, **fields)
    return Attempt(order, key_of(order), 0.0)


def result(ending: AttemptEnding) -> Any:
    assert ending.status == "SUCCESS", ending.error
    return None if ending.result is None else msgspec.json.decode(ending.result)


def stop(attempt: Attempt, why: Stop = Stop.CANCEL) -> None:
    attempt.stopping = why
    assert attempt.on_stop is not None
    attempt.on_stop()


@asynccontextmanager
async def an_executor(slots: int = 1, **options: Any) -> AsyncIterator[Executor]:
    watchdog = WatchdogClient()
    watchdog.start()
    executor = Executor(watchdog, slots, **options)
    try:
        async with asyncio.timeout(PATIENCE):
            yield executor
    finally:
        executor.close()
        watchdog.stop()


def with_an_executor(test: Callable[[Executor], Awaitable[None]], slots: int = 1, **options: Any) -> None:
    async def run() -> None:
        async with an_executor(slots, **options) as executor:
            await test(executor)

    uvloop.run(run())
