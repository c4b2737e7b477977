"""Python tasks in slots: how they end, and no run that disturbs another."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Execute, key_of
from mainspring.worker.execution.runner import Runner
from mainspring.worker.executors.python.executor import PythonExecutor

from .a_runner import Bench, colour, ended, on_a_bench, release, result
from .a_runner import no_thread_waits_for_ever as no_thread_waits_for_ever
from .exchange_server import an_order


def test_an_async_task_gets_its_payload_and_returns_its_result() -> None:
    assert result(ended("add", {"a": 41})) == 42


def test_an_async_task_that_waits_returns_its_result() -> None:
    assert result(ended("after_a_pause", {"value": "later"})) == "later"


def test_a_plain_function_runs_in_a_thread() -> None:
    found = result(ended("add_in_thread", {"a": 41}))
    assert found["sum"] == 42
    assert found["thread"].startswith("mainspring-")


def test_a_task_without_a_result_is_a_success_without_one() -> None:
    assert ended("noop") == AttemptEnding()


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


def test_an_executor_that_cannot_even_begin_leaves_no_run_without_an_ending() -> None:
    """The first http run loads the http executor, which fails where a package was removed under a running worker."""

    class Broken(PythonExecutor):
        def offers(self) -> dict[str, Execute]:
            return {"broken": self._begin}

        def _begin(self, attempt: Attempt) -> Coroutine[Any, Any, AttemptEnding]:
            raise ImportError("no module named httpx")

    async def test(bench: Bench) -> None:
        runner = bench.runner = Runner(1, [Broken({}, 1)], kill_grace=0.1, report=bench._report, notify=bench._tell)
        order = an_order("broken")
        bench.take(order)
        assert (await bench.ending(order)).error == "the executor failed: ImportError('no module named httpx')"
        assert not runner.holding

    on_a_bench(test)


@pytest.mark.parametrize("task", ["takes_what_leaves", "takes_what_leaves_in_thread"])
def test_a_parameter_that_exits_takes_nobody_along(task: str) -> None:
    assert (ended(task, {"what": {"code": 4}}).error or "").startswith("SystemExit: 4")


def test_a_task_that_ends_like_a_generator_has_an_ending() -> None:
    assert ended("ends_like_a_generator").error == "the executor failed: GeneratorExit()"


@pytest.mark.parametrize(
    ("task", "payload"),
    [("add", {"a": "x"}), ("add", {"c": 1}), ("add", None), ("add", [1]), ("add_in_thread", {"a": None})],
)
def test_a_payload_that_does_not_fit_fails_for_good(task: str, payload: object) -> None:
    ending = ended(task, payload)
    assert (ending.status, ending.retry) == ("FAILED", False)
    assert ending.error is not None
    assert ending.error.startswith(f"the payload does not match {task}")


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
        orders = [an_order("waits_for_the_release") for _ in range(20)]
        bench.take(*orders)
        most = 0

        def all_ended() -> bool:
            nonlocal most
            most = max(most, len(bench.runner.active))
            return len(bench.endings) == len(orders)

        await bench.until(lambda: all_ended() or most == 4)
        release.set()
        await bench.until(all_ended)
        assert most == 4

    on_a_bench(test, slots=4)


def test_a_run_whose_token_is_spent_is_handed_back_and_not_started() -> None:
    async def test(bench: Bench) -> None:
        late, in_time = an_order("noop"), an_order("noop")
        attempts = [Attempt(order, key_of(order), bench.clock.monotonic()) for order in (late, in_time)]
        attempts[0].start_by = bench.clock.monotonic() - 0.001
        attempts[1].start_by = bench.clock.monotonic() + 60
        bench.runner.take(attempts)
        assert (await bench.ending(late)).status == "RETURNED"
        assert (await bench.ending(in_time)).status == "SUCCESS"
        assert not attempts[0].started

    on_a_bench(test)


def test_runs_of_a_paused_queue_go_back_if_they_have_not_started() -> None:
    async def test(bench: Bench) -> None:
        orders = [an_order("waits_for_the_release") for _ in range(4)]
        attempts = bench.take(*orders)
        await bench.until(lambda: attempts[0].started)
        assert bench.runner.return_these({orders[0].run_id, orders[2].run_id}) == 1
        assert bench.endings[orders[2].run_id].status == "RETURNED"
        release.set()
        for order in (orders[0], orders[1], orders[3]):
            assert (await bench.ending(order)).status == "SUCCESS"

    on_a_bench(test, slots=1)


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
