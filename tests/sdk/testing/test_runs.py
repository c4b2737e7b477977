"""Runs in a box behave as on a worker: results, errors, cancels, keys, priorities."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainspring import (
    Conflict,
    Context,
    InvalidBatch,
    InvalidInput,
    Mainspring,
    NotFound,
    RunFailed,
)

from .a_box import BEGIN, always, app_that, boxed


def test_a_result_is_what_a_client_would_get() -> None:
    app, task = app_that(lambda a, b: {"sum": a + b, "at": BEGIN, "set": {1}})
    with boxed(app) as box:
        handle = task.submit(a=2, b=40)
        assert box.runs[0].status == "QUEUED"
        assert handle.result() == {"sum": 42, "at": "2026-01-01T00:00:00Z", "set": [1]}
        assert box.result(handle) == box.result(handle.job_id) == box.runs[0].result


def test_async_tasks_and_process_tasks_run_too() -> None:
    app = Mainspring()

    @app.task
    async def awaited(n: int) -> int:
        import asyncio

        await asyncio.sleep(0)
        return n + 1

    @app.task(executor="process")
    def apart(n: int) -> int:
        return n + 2

    with boxed(app):
        assert awaited.submit(1).result() == 2
        assert apart.submit(1).result() == 3


def test_a_payload_that_does_not_fit_is_refused_when_it_is_submitted() -> None:
    app = Mainspring()

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with boxed(app) as box:
        with pytest.raises(InvalidInput) as caught:
            add.submit(a=1, b="two")
        assert (caught.value.code, caught.value.field) == ("bad_payload", "payload.b")
        with pytest.raises(InvalidInput, match="needs the parameter b"):
            box.client.submit(task="add", payload={"a": 1})
        with pytest.raises(InvalidBatch, match=r"jobs\[1\]"):
            box.client.submit_batch([{"task": "add", "payload": {"a": 1, "b": 2}}, {"task": "add"}])
        assert box.runs == []


def test_what_the_intake_refuses_is_refused_here_too() -> None:
    app, task = app_that(lambda: None)
    with boxed(app), pytest.raises(InvalidInput, match="is not a priority"):
        task.submit(priority="urgent")


def test_of_runs_that_are_ready_at_once_the_most_urgent_goes_first() -> None:
    order: list[str] = []
    app, task = app_that(lambda name: order.append(name))
    with boxed(app) as box:
        for priority in ("low", "normal", "critical", "high", "normal"):
            task.submit(name=priority, priority=priority)
        box.run_pending()
    assert order == ["critical", "high", "normal", "normal", "low"]


def test_an_idempotency_key_makes_one_job() -> None:
    app, task = app_that(lambda n: n)
    with boxed(app) as box:
        first, second = (task.submit(n=1, idempotency_key="k") for _ in range(2))
        assert first.job_id == second.job_id
        with pytest.raises(Conflict, match="was used with another body"):
            task.submit(n=2, idempotency_key="k")
        assert len(box.runs) == 1


def test_a_chosen_id_is_taken_once() -> None:
    app, task = app_that(lambda: None)
    with boxed(app) as box:
        task.submit(job_id="mine")
        with pytest.raises(Conflict, match="exists already"):
            task.submit(job_id="mine")
        assert [run.job_id for run in box.runs_of("mine")] == ["mine"]


def test_what_a_task_submits_is_run_as_well() -> None:
    app = Mainspring()

    @app.task
    def parent(n: int) -> list[str]:
        return [child.submit(n=number).job_id for number in range(n)]

    @app.task
    async def child(n: int) -> int:
        if n:
            await child.submit_async(n=0)
        return n

    with boxed(app) as box:
        parent.submit(3)
        box.run_pending()
        assert [run.result for run in box.runs_of(child)] == [0, 1, 2, 0, 0]


def test_jobs_that_make_jobs_make_each_once_however_often_they_are_tried() -> None:
    app = Mainspring("makers")

    @app.task
    def made(number: int) -> int:
        return number

    @app.task(retries=2)
    def maker(ctx: Context) -> list[str]:
        ids = [ctx.submit(made, number=number).job_id for number in range(2)]
        ids.append(ctx.submit(made.options(priority="high"), 7).job_id)
        if ctx.attempt < 3:
            raise RuntimeError("after the submissions")
        return ids

    with boxed(app) as box:
        handle = maker.submit()
        assert len(set(handle.result())) == 3
        box.settle()
        assert sorted(run.result for run in box.runs_of(made)) == [0, 1, 7]


def test_a_task_may_wait_for_another_ones_result() -> None:
    app = Mainspring()

    @app.task(retry={"base": 60, "jitter": 0})
    def double(n: int, ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return 2 * n

    @app.task
    def plain(n: int) -> int:
        return int(double.submit(n).result()) + 1

    @app.task
    async def awaited(n: int) -> int:
        return int(await (await double.submit_async(n)).result()) + 1

    with boxed(app) as box:
        assert plain.submit(20).result() == 41
        assert box.now == BEGIN + timedelta(minutes=1)
        assert awaited.submit(20).result() == 41


def test_what_a_task_logs_and_how_far_it_came_is_kept() -> None:
    cleaned: list[str] = []

    def talkative(ctx: Context) -> None:
        ctx.add_cleanup(cleaned.append, "first added, last called")
        ctx.add_cleanup(cleaned.append, "last added, first called")
        ctx.add_cleanup(int, "not a number")
        ctx.log("page", 1)
        ctx.progress(0.5, "halfway")

    app, task = app_that(talkative)
    with boxed(app) as box:
        task.submit().result()
        [run] = box.runs
        assert box.client.logs(run.run_id).startswith("page 1\n")
    assert run.logs[0] == "page 1"
    assert run.logs[1].startswith("a clean-up failed: ValueError")
    assert run.progress == (0.5, "halfway")
    assert cleaned == ["last added, first called", "first added, last called"]


def test_errors_are_kept_with_the_run_and_raised_if_wanted() -> None:
    app, task = app_that(always("broken"), retries=0)
    with boxed(app) as box:
        task.submit()
        [run] = box.run_pending()
        assert (run.error, type(run.exception)) == ("ValueError: broken", ValueError)
    with boxed(app, raise_errors=True) as box:
        task.submit()
        with pytest.raises(ValueError, match="broken"):
            box.run_pending()
        assert box.runs[0].status == "FAILED"


def test_a_cancelled_job_runs_no_more() -> None:
    app = Mainspring()

    @app.cron("@hourly")
    @app.task
    def tick() -> None: ...

    with boxed(app) as box:
        waiting = tick.submit()
        waiting.cancel()
        box.advance("1h")
        box.client.cancel_job("tick")
        box.advance("5h")
        assert [str(run.status) for run in box.runs] == ["CANCELLED", "SUCCESS"]
        with pytest.raises(RunFailed, match="cancelled before it started"):
            waiting.result()


def test_a_cancel_during_the_backoff_says_that_attempts_were_made() -> None:
    app = Mainspring()

    @app.task(retries=3)
    def fails() -> None:
        raise ValueError("no")

    with boxed(app) as box:
        handle = fails.submit()
        box.advance(0)
        handle.cancel()
        [run] = box.runs
        assert (str(run.status), run.reason) == ("CANCELLED", "cancelled while it waited for its next attempt")


def test_a_task_that_is_cancelled_while_it_runs_learns_of_it() -> None:
    def stubborn(ctx: Context) -> bool:
        box.client.cancel_run(ctx.run_id)
        return ctx.cancelled

    app, task = app_that(stubborn)
    with boxed(app) as box:
        task.submit()
        [run] = box.run_pending()
    assert (run.status, run.reason, run.result) == ("CANCELLED", "cancelled on request", True)


def test_the_time_is_up_in_the_boxs_time() -> None:
    app, task = app_that(lambda: None)
    with boxed(app) as box:
        handle = task.submit(at=BEGIN + timedelta(hours=1))
        with pytest.raises(TimeoutError, match="still SCHEDULED after 30m"):
            handle.result(timeout=1800)
        assert box.now == BEGIN + timedelta(minutes=30)
        assert handle.result(timeout=1800) is None


def test_a_task_that_nobody_offers_waits_for_ever() -> None:
    with boxed(Mainspring()) as box:
        handle = box.client.submit(task="elsewhere")
        box.advance("1d")
        assert box.runs[0].reason == "no worker offers task elsewhere"
        with pytest.raises(TimeoutError, match="nothing will happen"):
            handle.result()
        with pytest.raises(TimeoutError, match="no worker offers task elsewhere"):
            handle.result(timeout=5)
        assert box.settle() == []


def test_settle_says_what_does_not_end_in_time() -> None:
    app, task = app_that(always("no"), retry={"base": "20h", "cap": "1d", "max_attempts": 4})
    with boxed(app) as box:
        task.submit()
        with pytest.raises(TimeoutError, match="still live"):
            box.settle(within="10h")


def test_a_job_is_run_by_hand() -> None:
    app = Mainspring()

    @app.cron("@daily")
    @app.task
    def report(ctx: Context) -> str:
        return ctx.scheduled_for.isoformat()

    with boxed(app) as box:
        box.advance("1h")
        accepted = box.client.run_now("report")
        assert box.client.handle("report", accepted.run_id).result() == "2026-01-01T01:00:00+00:00"
        assert box.client.job_status("report").status == "SCHEDULED"


def test_lists_have_filters_and_pages() -> None:
    app, task = app_that(lambda n: 1 / n, retries=0)
    with boxed(app) as box:
        box.client.submit_batch([{"task": "task", "payload": {"n": n}} for n in (0, 1, 2)])
        task.submit(n=1, at=BEGIN + timedelta(hours=1), name="later")
        box.settle(within="50m")
        assert [run.error_message for run in box.client.runs(status="failed").runs] == [
            "ZeroDivisionError: division by zero"
        ]
        assert len(list(box.client.all_runs(limit=1))) == 3
        assert [job.name for job in box.client.all_jobs(q="late")] == ["later"]
        assert box.client.why(box.runs[0].run_id).why.startswith("It ended FAILED")
        with pytest.raises(NotFound):
            box.client.job("nobody")


def test_the_application_has_its_own_clients_back_afterwards() -> None:
    app, task = app_that(lambda: None)
    with boxed(app) as outer:
        with boxed(app) as inner:
            task.submit()
        task.submit()
    assert (len(outer.runs), len(inner.runs)) == (1, 1)
    assert app.client is not outer.client


def test_a_task_cannot_be_awaited_by_a_plain_call_in_an_async_test() -> None:
    import asyncio

    async def nothing() -> None: ...

    app, task = app_that(nothing)

    async def scenario() -> None:
        with boxed(app) as box:
            await task.submit_async()
            with pytest.raises(RuntimeError, match="an event loop is running here"):
                box.run_pending()

    asyncio.run(scenario())


@pytest.mark.anyio
async def test_in_an_async_test_tasks_share_its_loop() -> None:
    import asyncio

    loops: list[Any] = []

    async def here(n: int) -> int:
        loops.append(asyncio.get_running_loop())
        if n == 0:
            raise asyncio.CancelledError
        return n

    app, task = app_that(here, retries=0)
    app.every("1h", job_id="hourly", timezone=None)(app.task("tick")(_async_nothing))
    with boxed(app) as box:
        handle = await task.submit_async(7)
        assert await handle.result() == 7
        await box.advance_async("1h")
        assert [str(run.status) for run in box.runs_of("tick")] == ["SUCCESS"]
        failing = await task.submit_async(0)
        [run] = await box.run_pending_async()
        assert (run.job_id, run.error) == (failing.job_id, "asyncio.exceptions.CancelledError")
        await task.submit_async(1, at=box.now + timedelta(hours=1))
        await box.advance_to_async(box.now + timedelta(hours=1))
        assert await box.settle_async() == []
        assert len(box.runs) == 5
    assert set(loops) == {asyncio.get_running_loop()}


async def _async_nothing() -> None: ...


@pytest.mark.parametrize(
    ("result", "words"),
    [("x" * 70_000, "the result has 70002 bytes"), (object(), "TypeError: the result cannot be kept as JSON")],
)
def test_a_result_that_cannot_be_kept_fails_in_the_words_of_a_worker(result: object, words: str) -> None:
    app, task = app_that(lambda: result)
    with boxed(app) as box:
        task.submit()
        box.advance("1s")
        assert box.runs[0].status == "FAILED"
        assert box.runs[0].error is not None and box.runs[0].error.startswith(words)


def test_a_field_with_a_wrong_value_is_named_as_a_server_names_it() -> None:
    app, task = app_that(lambda: None)
    with boxed(app), pytest.raises(InvalidInput) as refusal:
        task.options(every="1h", misfire={"policy": 3}).submit()
    assert refusal.value.field == "misfire.policy"
