"""Python tasks in slots: endings, timeouts, cancellation, and no run that disturbs another."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
import uvloop

from mainspring.sdk.app import Mainspring
from mainspring.sdk.context import Context
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import RunSetup
from mainspring.worker.attempt import Attempt, Ending, Stop, key_of
from mainspring.worker.executors.python import PythonExecutor
from mainspring.worker.runner import Runner

from .a_process_executor import SlowSink
from .exchange_server import an_order

app = Mainspring()
colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
release = threading.Event()
deeds: list[str] = []


@pytest.fixture(autouse=True)
def _no_thread_waits_for_ever() -> Iterator[None]:
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

    def __init__(self, slots: int) -> None:
        self.endings: dict[Any, Ending] = {}
        self.reports = 0
        self.changed = asyncio.Event()
        executor = PythonExecutor(app.tasks, slots)
        self.runner = Runner(slots, [executor], kill_grace=0.1, report=self._report, tell=self._tell)

    def _report(self, attempt: Attempt, ending: Ending) -> None:
        self.endings[attempt.order.run_id] = ending
        self.reports += 1

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def take(self, *orders: RunOrder) -> list[Attempt]:
        attempts = [Attempt(order, key_of(order), time.monotonic()) for order in orders]
        self.runner.take(attempts)
        return attempts

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await self.changed.wait()

    async def ending(self, order: RunOrder) -> Ending:
        await self.until(lambda: order.run_id in self.endings)
        return self.endings[order.run_id]


def on_a_bench(test: Callable[[Bench], Awaitable[None]], slots: int = 4) -> None:
    async def run() -> None:
        await test(Bench(slots))

    uvloop.run(run())


def ended(task: str, payload: object = None, **fields: Any) -> Ending:
    """How a run of `task` ended."""
    found = []

    async def test(bench: Bench) -> None:
        order = an_order(task, payload=payload, **fields)
        bench.take(order)
        found.append(await bench.ending(order))

    on_a_bench(test)
    return found[0]


def result(ending: Ending) -> Any:
    assert ending.result is not None, ending
    return msgspec.json.decode(ending.result)


def test_an_async_task_gets_its_payload_and_returns_its_result() -> None:
    assert result(ended("add", {"a": 41})) == 42


def test_an_async_task_that_waits_returns_its_result() -> None:
    assert result(ended("after_a_pause", {"value": "later"})) == "later"


def test_a_plain_function_runs_in_a_thread() -> None:
    found = result(ended("add_in_thread", {"a": 41}))
    assert found["sum"] == 42
    assert found["thread"].startswith("mainspring-")


def test_a_task_without_a_result_is_a_success_without_one() -> None:
    assert ended("noop") == Ending()


@pytest.mark.parametrize("task", ["fails", "fails_in_thread"])
def test_an_error_is_told_by_name_message_and_place(task: str) -> None:
    ending = ended(task)
    assert (ending.status, ending.retry) == ("FAILED", True)
    assert ending.error is not None
    assert ending.error.startswith("ValueError: no such account\n")
    assert 'raise ValueError("no such account")' in ending.error
    assert "executors/python.py" not in ending.error


@pytest.mark.parametrize("task", ["leaves", "leaves_in_thread"])
def test_a_task_that_exits_fails_and_takes_nobody_along(task: str) -> None:
    error = ended(task).error
    assert error is not None
    assert error.startswith("SystemExit: 3")


@pytest.mark.parametrize(
    ("task", "payload"),
    [("add", {"a": "x"}), ("add", {"c": 1}), ("add", None), ("add", [1]), ("add_in_thread", {"a": None})],
)
def test_a_payload_that_does_not_fit_fails_for_good(task: str, payload: object) -> None:
    ending = ended(task, payload)
    assert (ending.status, ending.retry) == ("FAILED", False)
    assert ending.error is not None
    assert ending.error.startswith(f"the payload does not fit {task}")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("returns_much", "the result has 70002 bytes, at most 65536 are kept"),
        ("returns_an_object", "the result cannot be kept as JSON"),
        ("returns_a_coroutine", "declare it with async def"),
    ],
)
def test_a_result_that_cannot_be_kept_fails_for_good(task: str, words: str) -> None:
    ending = ended(task)
    assert (ending.status, ending.retry) == ("FAILED", False)
    assert words in (ending.error or "")


def test_a_task_that_is_not_offered_fails() -> None:
    assert ended("nobody.knows").error == "this worker does not offer the task nobody.knows"


def test_the_context_tells_the_run() -> None:
    order = an_order("tells_its_context", job_id="nightly", attempt=2, name="Nightly")
    found = result(ended("tells_its_context", run_id=order.run_id, job_id="nightly", attempt=2, name="Nightly"))
    key = "nightly/2026-11-15T09:00:00Z"
    assert found == ["nightly", str(order.run_id), 2, key, "tells_its_context", "Nightly"]


def test_context_variables_do_not_leak_from_one_run_to_the_next() -> None:
    async def test(bench: Bench) -> None:
        orders = [an_order("paints", payload={"value": "red"}) for _ in range(3)]
        orders += [an_order("paints_and_waits", payload={"value": "blue"}) for _ in range(3)]
        bench.take(*orders)
        found = [result(await bench.ending(order)) for order in orders]
        assert found == ["none"] * 3 + [["none", "blue"]] * 3
        assert colour.get() == "none"

    on_a_bench(test)


@pytest.mark.parametrize(("task", "expected"), [("uses_a_timeout", "timed out inside"), ("uses_a_group", 10)])
def test_structured_concurrency_works_in_a_task(task: str, expected: object) -> None:
    assert result(ended(task)) == expected


def test_a_run_that_cancels_its_own_task_harms_no_other() -> None:
    async def test(bench: Bench) -> None:
        orders = [an_order("cancels_itself_without_waiting"), an_order("after_a_pause", payload={"value": "fine"})]
        bench.take(*orders)
        assert (await bench.ending(orders[0])).status == "SUCCESS"
        assert result(await bench.ending(orders[1])) == "fine"

    on_a_bench(test)


def test_no_more_run_at_once_than_there_are_slots() -> None:
    async def test(bench: Bench) -> None:
        orders = [an_order("after_a_pause", payload={"value": "x"}) for _ in range(20)]
        bench.take(*orders)
        most = 0

        def all_ended() -> bool:
            nonlocal most
            most = max(most, len(bench.runner.active))
            return len(bench.endings) == len(orders)

        await bench.until(all_ended)
        assert most == 4

    on_a_bench(test, slots=4)


def test_thousands_of_no_ops_are_each_reported_once_and_the_loop_gets_its_turns() -> None:
    async def test(bench: Bench) -> None:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count_turns())
        bench.take(*[an_order("noop") for _ in range(5000)])
        await bench.until(lambda: len(bench.endings) == 5000)
        counting.cancel()
        assert bench.reports == 5000
        assert turns >= 5000 // 250

    on_a_bench(test)


def test_an_async_run_that_takes_too_long_is_cancelled_and_fails() -> None:
    ending = ended("sleeps", timeout=0.05)
    assert (ending.status, ending.error, ending.retry) == ("FAILED", "timed out after 50ms", True)


def test_each_run_has_its_own_timeout() -> None:
    async def test(bench: Bench) -> None:
        slow, quick = an_order("sleeps", timeout=0.15), an_order("sleeps", timeout=0.05)
        bench.take(slow, quick)
        await bench.ending(quick)
        assert slow.run_id not in bench.endings
        assert (await bench.ending(slow)).error == "timed out after 150ms"

    on_a_bench(test)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_thread_that_takes_too_long_is_broken_off_after_the_grace(exclusive: bool) -> None:
    async def test(bench: Bench) -> None:
        order, following = (
            an_order("spins", timeout=0.05, exclusive=exclusive),
            an_order("add_in_thread", payload={"a": 1}),
        )
        bench.take(order, following)
        began = time.monotonic()
        assert (await bench.ending(order)).error == "timed out after 50ms"
        assert time.monotonic() - began >= 0.15
        assert result(await bench.ending(following))["sum"] == 2
        assert bench.runner.holding == 0
        assert deeds == ["flag True", "finally", "cleaned up"]

    on_a_bench(test, slots=1)


def test_a_thread_that_swallows_everything_is_broken_off_again() -> None:
    async def test(bench: Bench) -> None:
        order = an_order("swallows", timeout=0.05)
        bench.take(order)
        await bench.ending(order)
        await bench.until(lambda: bench.runner.holding == 0)
        assert deeds == ["swallowed Halted"] * 2
        assert bench.reports == 1

    on_a_bench(test, slots=1)


def test_a_job_may_ask_for_a_grace_of_its_own() -> None:
    async def test(bench: Bench) -> None:
        order = an_order("spins", timeout=0.05, setup=RunSetup(kill_grace=0.5))
        bench.take(order)
        began = time.monotonic()
        await bench.ending(order)
        assert time.monotonic() - began >= 0.55

    on_a_bench(test, slots=1)


@pytest.mark.parametrize("task", ["add", "add_in_thread"])
def test_a_run_that_has_succeeded_does_not_time_out_while_its_log_is_stored(task: str) -> None:
    async def test(bench: Bench) -> None:
        order, sink = an_order(task, payload={"a": 1}, timeout=0.05), SlowSink()
        attempt = Attempt(order, key_of(order), time.monotonic(), log=sink)
        bench.runner.take([attempt])
        await sink.finishing.wait()
        await asyncio.sleep(0.4)
        assert attempt.stopping is Stop.TIMEOUT
        sink.stored.set()
        assert (await bench.ending(order)).status == "SUCCESS"

    on_a_bench(test)


def test_an_exclusive_thread_that_cannot_be_broken_off_is_not_reported_before_it_has_returned() -> None:
    async def test(bench: Bench) -> None:
        order = an_order("blocks", timeout=0.05, exclusive=True)
        bench.take(order)
        await asyncio.sleep(0.4)
        assert not bench.endings
        bench.runner.abandon_all("worker stopped")
        assert not bench.endings
        release.set()
        assert (await bench.ending(order)).error == "timed out after 50ms"

    on_a_bench(test, slots=1)


def test_a_thread_that_cannot_be_broken_off_is_reported_after_the_grace_and_keeps_its_slot() -> None:
    async def test(bench: Bench) -> None:
        order, following = an_order("blocks", timeout=0.05), an_order("noop")
        bench.take(order)
        assert (await bench.ending(order)).error == "timed out after 50ms"
        bench.take(following)
        await asyncio.sleep(0)
        assert bench.runner.holding == 2
        release.set()
        await bench.ending(following)
        assert bench.reports == 2
        assert bench.runner.holding == 0

    on_a_bench(test, slots=1)


def test_a_coroutine_that_ignores_its_timeout_is_reported_after_the_grace_and_keeps_its_slot() -> None:
    async def test(bench: Bench) -> None:
        order = an_order("ignores_cancellation", timeout=0.05)
        bench.take(order)
        assert (await bench.ending(order)).error == "timed out after 50ms"
        assert bench.runner.holding == 1
        release.set()
        await bench.until(lambda: bench.runner.holding == 0)
        assert bench.reports == 1

    on_a_bench(test)


def test_cancel_ends_an_async_run() -> None:
    async def test(bench: Bench) -> None:
        order = an_order("sleeps")
        (attempt,) = bench.take(order)
        await bench.until(lambda: bench.runner.active)
        bench.runner.stop(attempt, Stop.CANCEL)
        assert (await bench.ending(order)).status == "CANCELLED"

    on_a_bench(test)


def test_cancel_of_a_thread_is_reported_once_it_has_returned() -> None:
    async def test(bench: Bench) -> None:
        order, stubborn = an_order("looks_at_the_flag"), an_order("blocks")
        willing_attempt, stubborn_attempt = bench.take(order, stubborn)
        await bench.until(lambda: len(bench.runner.active) == 2)
        bench.runner.stop(willing_attempt, Stop.CANCEL)
        bench.runner.stop(stubborn_attempt, Stop.CANCEL)
        assert (await bench.ending(order)).status == "CANCELLED"
        assert stubborn.run_id not in bench.endings
        release.set()
        assert (await bench.ending(stubborn)).status == "CANCELLED"

    on_a_bench(test)


def test_cancel_of_an_unstarted_run_is_reported_at_once() -> None:
    async def test(bench: Bench) -> None:
        running, waiting = an_order("sleeps"), an_order("noop")
        _, attempt = bench.take(running, waiting)
        await bench.until(lambda: bench.runner.active)
        bench.runner.stop(attempt, Stop.CANCEL)
        assert bench.endings[waiting.run_id].status == "CANCELLED"
        assert bench.runner.holding == 1

    on_a_bench(test, slots=1)


def test_unstarted_runs_are_handed_back_the_last_received_first() -> None:
    async def test(bench: Bench) -> None:
        orders = [an_order("sleeps"), *[an_order("noop") for _ in range(5)]]
        bench.take(*orders)
        await bench.until(lambda: bench.runner.active)
        assert bench.runner.return_unstarted(keep=2) == 3
        assert [order.run_id for order in orders[3:]] == list(reversed(bench.endings))
        assert {ending.status for ending in bench.endings.values()} == {"RETURNED"}

    on_a_bench(test, slots=1)


def test_python_runs_cannot_be_killed_from_outside_and_the_runner_says_so() -> None:
    async def test(bench: Bench) -> None:
        assert bench.runner.fence_off()
        (attempt,) = bench.take(an_order("sleeps"))
        await bench.until(lambda: bench.runner.active)
        assert not bench.runner.fence_off()
        assert attempt.fenced

    on_a_bench(test)


def test_cut_off_hands_back_what_is_unstarted_and_stops_only_what_is_exclusive() -> None:
    async def test(bench: Bench) -> None:
        ordinary, exclusive = an_order("sleeps"), an_order("sleeps", exclusive=True)
        waiting = [an_order("noop"), an_order("noop", exclusive=True)]
        bench.take(ordinary, exclusive, *waiting)
        await bench.until(lambda: len(bench.runner.active) == 2)
        assert bench.runner.holds_exclusive()
        assert bench.runner.cut_off() == 1
        assert {bench.endings[order.run_id].status for order in waiting} == {"RETURNED"}
        ending = await bench.ending(exclusive)
        assert (ending.status, ending.error, ending.retry) == ("FAILED", "stopped: cut off from the database", True)
        assert not bench.runner.holds_exclusive()
        assert [attempt.order for attempt in bench.runner.active] == [ordinary]
        assert bench.runner.cut_off() == 0

    on_a_bench(test, slots=2)


@pytest.mark.parametrize("task", ["ignores_cancellation", "blocks"])
def test_an_exclusive_run_that_does_not_heed_the_cut_off_is_known(task: str) -> None:
    async def test(bench: Bench) -> None:
        bench.take(an_order(task, exclusive=True))
        await bench.until(lambda: bench.runner.active)
        assert bench.runner.cut_off() == 1
        for _ in range(3):
            await asyncio.sleep(0)
        assert bench.runner.holds_exclusive(unkillable=True)
        release.set()

    on_a_bench(test)


def test_a_cancel_that_was_asked_for_before_the_cut_off_stays_a_cancel() -> None:
    async def test(bench: Bench) -> None:
        order = an_order("sleeps", exclusive=True)
        (attempt,) = bench.take(order)
        await bench.until(lambda: bench.runner.active)
        bench.runner.stop(attempt, Stop.CANCEL)
        bench.runner.cut_off()
        assert (await bench.ending(order)).status == "CANCELLED"

    on_a_bench(test)
