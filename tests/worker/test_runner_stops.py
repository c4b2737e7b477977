"""Python tasks that are stopped: timeouts, cancellation, hand-back, and the cut-off."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.wire.execution import RunSetup
from mainspring.worker.execution.attempt import Attempt, Stop, key_of
from tests.operations.waiting import until

from .a_process_executor import SlowSink
from .a_runner import Bench, deeds, ended, on_a_bench, release, result
from .a_runner import no_thread_waits_for_ever as no_thread_waits_for_ever
from .exchange_server import an_order


def test_an_async_run_that_takes_too_long_is_cancelled_and_fails() -> None:
    ending = ended("sleeps", timeout=0.05)
    assert (ending.status, ending.error, ending.retry) == ("FAILED", "timed out after 50ms", True)


def test_each_run_has_its_own_timeout() -> None:
    async def test(bench: Bench) -> None:
        slow, quick, next_one = (an_order("sleeps", timeout=timeout) for timeout in (50.0, 0.05, 0.1))
        bench.take(slow, quick, next_one)
        assert (await bench.ending(quick)).error == "timed out after 50ms"
        assert (await bench.ending(next_one)).error == "timed out after 100ms"
        assert slow.run_id not in bench.endings

    on_a_bench(test)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_thread_that_takes_too_long_is_broken_off_after_the_grace(exclusive: bool) -> None:
    clock = ManualClock()

    async def test(bench: Bench) -> None:
        order, following = (
            an_order("spins", timeout=0.05, exclusive=exclusive),
            an_order("add_in_thread", payload={"a": 1}),
        )
        bench.take(order, following)
        await bench.until(lambda: bench.runner.active)
        clock.advance(0.05)
        await until(lambda: deeds == ["flag True"])
        clock.advance(0.99)
        assert not bench.endings and bench.runner.active
        clock.advance(0.01)
        assert (await bench.ending(order)).error == "timed out after 50ms"
        assert result(await bench.ending(following))["sum"] == 2
        assert bench.runner.holding == 0
        assert deeds == ["flag True", "finally", "cleaned up"]

    on_a_bench(test, slots=1, kill_grace=1.0, clock=clock)


def test_a_thread_that_swallows_everything_is_broken_off_again() -> None:
    async def test(bench: Bench) -> None:
        order = an_order("swallows", timeout=0.05)
        bench.take(order)
        await bench.ending(order)
        await bench.until(lambda: bench.runner.holding == 0)
        assert deeds == ["swallowed Halted"] * 2
        assert bench.reports == 1

    on_a_bench(test, slots=1, kill_grace=1.0)  # time enough to begin, and to begin again


def test_a_job_may_ask_for_a_grace_of_its_own() -> None:
    clock = ManualClock()

    async def test(bench: Bench) -> None:
        order = an_order("spins", timeout=0.05, setup=RunSetup(kill_grace=0.5))
        bench.take(order)
        await bench.until(lambda: bench.runner.active)
        clock.advance(0.05)
        await until(lambda: deeds == ["flag True"])
        clock.advance(0.49)
        assert not bench.endings and bench.runner.active
        clock.advance(0.01)
        await bench.ending(order)

    on_a_bench(test, slots=1, clock=clock)


@pytest.mark.parametrize("task", ["add", "add_in_thread"])
def test_a_run_that_has_succeeded_does_not_time_out_while_its_log_is_stored(task: str) -> None:
    clock = ManualClock()

    async def test(bench: Bench) -> None:
        order, sink = an_order(task, payload={"a": 1}), SlowSink()
        attempt = Attempt(order, key_of(order), clock.monotonic(), log=sink)
        bench.runner.take([attempt])
        await sink.finishing.wait()
        bench.runner.stop(attempt, Stop.TIMEOUT)
        for _ in range(6):  # its grace, and more
            clock.advance(0.05)
            await asyncio.sleep(0)
        sink.stored.set()
        assert (await bench.ending(order)).status == "SUCCESS"

    on_a_bench(test, clock=clock)


def test_an_exclusive_thread_that_cannot_be_broken_off_is_not_reported_before_it_has_returned() -> None:
    clock = ManualClock()

    async def test(bench: Bench) -> None:
        order = an_order("blocks", timeout=0.05, exclusive=True)
        bench.take(order)
        await bench.until(lambda: bench.runner.active)
        for _ in range(8):
            clock.advance(0.05)
            await asyncio.sleep(0)
        assert not bench.endings
        bench.runner.abandon_all("worker stopped")
        assert not bench.endings
        release.set()
        assert (await bench.ending(order)).error == "timed out after 50ms"

    on_a_bench(test, slots=1, clock=clock)


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
        assert bench.runner.stop_kind(exclusive=True) == 1
        assert {bench.endings[order.run_id].status for order in waiting} == {"RETURNED"}
        ending = await bench.ending(exclusive)
        assert (ending.status, ending.error, ending.retry) == ("FAILED", "stopped: cut off from the database", True)
        assert not bench.runner.holds_exclusive()
        assert [attempt.order for attempt in bench.runner.active] == [ordinary]
        assert bench.runner.stop_kind(exclusive=True) == 0

    on_a_bench(test, slots=2)


@pytest.mark.parametrize("task", ["ignores_cancellation", "blocks"])
def test_an_exclusive_run_that_does_not_heed_the_cut_off_is_known(task: str) -> None:
    async def test(bench: Bench) -> None:
        bench.take(an_order(task, exclusive=True))
        await bench.until(lambda: bench.runner.active)
        assert bench.runner.stop_kind(exclusive=True) == 1
        for _ in range(3):
            await asyncio.sleep(0)
        assert bench.runner.holds_unkillable(exclusive=True)
        release.set()

    on_a_bench(test)


def test_a_cancel_that_was_asked_for_before_the_cut_off_stays_a_cancel() -> None:
    async def test(bench: Bench) -> None:
        order = an_order("sleeps", exclusive=True)
        (attempt,) = bench.take(order)
        await bench.until(lambda: bench.runner.active)
        bench.runner.stop(attempt, Stop.CANCEL)
        bench.runner.stop_kind(exclusive=True)
        assert (await bench.ending(order)).status == "CANCELLED"

    on_a_bench(test)
