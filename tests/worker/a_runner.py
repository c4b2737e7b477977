"""A runner with tasks of every manner, and what it reported."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import uvloop

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.tasks.context import Context
from mainspring.wire.exchange import RunOrder
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, key_of
from mainspring.worker.execution.runner import Runner
from mainspring.worker.executors.python.executor import PythonExecutor
from tests.eventually import PATIENCE

from .exchange_server import an_order

app = Mainspring()
colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
release = threading.Event()
deeds: list[str] = []


@pytest.fixture(autouse=True)
def no_thread_waits_for_ever() -> Iterator[None]:
    release.clear()
    deeds.clear()
    yield
    release.set()


@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
def add_in_thread(a: int, b: int = 1) -> dict[str, Any]:
    return {"sum": a + b, "thread": threading.current_thread().name}


@app.task
async def after_a_pause(value: str) -> str:
    await asyncio.sleep(0.01)
    return value


@app.task
async def noop() -> None: ...


@app.task
async def fails() -> None:
    raise ValueError("no such account")


@app.task
def fails_in_thread() -> None:
    raise ValueError("no such account")


@app.task
async def leaves() -> None:
    raise SystemExit(3)


@app.task
def leaves_in_thread() -> None:
    raise SystemExit(3)


@app.task
async def ends_like_a_generator() -> None:
    raise GeneratorExit


@dataclass
class Leaves:
    code: int

    def __post_init__(self) -> None:
        raise SystemExit(self.code)


@app.task
async def takes_what_leaves(what: Leaves) -> None: ...


@app.task
def takes_what_leaves_in_thread(what: Leaves) -> None: ...


@app.task
async def returns_much() -> str:
    return "x" * 70_000


@app.task
async def returns_an_object() -> object:
    return object()


@app.task
def returns_a_coroutine() -> Any:
    return noop()


@app.task
async def sleeps() -> None:
    await asyncio.sleep(60)


@app.task
async def waits_for_the_release() -> None:
    while not release.is_set():
        await asyncio.sleep(0.01)


@app.task
async def ignores_cancellation() -> None:
    while not release.is_set():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue


@app.task
def blocks() -> None:
    release.wait(30)


@app.task
def spins(ctx: Context) -> None:
    ctx.add_cleanup(deeds.append, "cleaned up")
    try:
        while not ctx.cancelled:
            pass
        deeds.append("flag True")
        while True:
            pass
    finally:
        deeds.append("finally")


@app.task
def swallows() -> None:
    for _ in range(2):
        try:
            while True:
                pass
        except BaseException as error:  # noqa: BLE001 - as careless code does
            deeds.append(f"swallowed {type(error).__name__}")


@app.task
def looks_at_the_flag(ctx: Context) -> str:
    return f"cancelled: {ctx.wait_for_cancel(30)}"


@app.task
async def tells_its_context(ctx: Context) -> list[Any]:
    return [ctx.job_id, ctx.run_id, ctx.attempt, ctx.idempotency_key, ctx.task, ctx.name]


@app.task
async def paints(value: str) -> str:
    before = colour.get()
    colour.set(value)
    return before


@app.task
async def paints_and_waits(value: str) -> list[str]:
    before = colour.get()
    colour.set(value)
    await asyncio.sleep(0)
    return [before, colour.get()]


@app.task
async def uses_a_timeout() -> str:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
    except TimeoutError:
        return "timed out inside"
    return "never"


@app.task
async def uses_a_group() -> int:
    async with asyncio.TaskGroup() as group:
        parts = [group.create_task(add(number, 0)) for number in range(5)]
    return sum(part.result() for part in parts)


@app.task
async def cancels_itself_without_waiting() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


class Bench:
    """A runner, and what it reported."""

    def __init__(self, slots: int, kill_grace: float, clock: LoopClock) -> None:
        self.clock = clock
        self.endings: dict[Any, AttemptEnding] = {}
        self.reports = 0
        self.changed = asyncio.Event()
        executor = PythonExecutor(app.tasks, slots)
        self.runner = Runner(
            slots, [executor], kill_grace=kill_grace, report=self._report, notify=self._tell, clock=clock
        )

    def _report(self, attempt: Attempt, ending: AttemptEnding) -> None:
        self.endings[attempt.order.run_id] = ending
        self.reports += 1

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def take(self, *orders: RunOrder) -> list[Attempt]:
        attempts = [Attempt(order, key_of(order), self.clock.monotonic()) for order in orders]
        self.runner.take(attempts)
        return attempts

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await self.changed.wait()

    async def ending(self, order: RunOrder) -> AttemptEnding:
        await self.until(lambda: order.run_id in self.endings)
        return self.endings[order.run_id]


def on_a_bench(
    test: Callable[[Bench], Awaitable[None]],
    slots: int = 4,
    kill_grace: float = 0.1,
    clock: LoopClock = SYSTEM_CLOCK,
) -> None:
    async def run() -> None:
        await test(Bench(slots, kill_grace, clock))

    uvloop.run(run())


def ended(task: str, payload: object = None, **fields: Any) -> AttemptEnding:
    """How a run of `task` ended."""
    found = []

    async def test(bench: Bench) -> None:
        order = an_order(task, payload=payload, **fields)
        bench.take(order)
        found.append(await bench.ending(order))

    on_a_bench(test)
    return found[0]


def result(ending: AttemptEnding) -> Any:
    assert ending.result is not None, ending
    return msgspec.json.decode(ending.result)
