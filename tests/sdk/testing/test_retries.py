"""Retries in a box: backoff on its clock, rules, GiveUp, dead letters and their replay."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from mainspring import (
    Conflict,
    Context,
    GiveUp,
    Mainspring,
    Retry,
    RunFailed,
)

from .a_box import BEGIN, always, app_that, boxed


def test_a_failing_task_is_tried_again_on_the_boxs_clock() -> None:
    moments: list[datetime] = []
    app = Mainspring()

    @app.task(retry={"max_attempts": 4, "base": "1h", "cap": "1d", "jitter": 0})
    def flaky(ctx: Context) -> int:
        moments.append(box.now)
        if ctx.attempt < 4:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    with boxed(app) as box:
        handle = flaky.submit()
        box.run_pending()
        run = box.runs[0]
        assert (run.status, run.attempt, run.reason) == ("SCHEDULED", 1, "backing off after attempt 1 of 4")
        assert run.ready_at == BEGIN + timedelta(hours=1)
        assert handle.result(timeout=8 * 3600) == 4
    assert [moment - BEGIN for moment in moments] == [timedelta(hours=hours) for hours in (0, 1, 3, 7)]
    assert run.errors == ["ValueError: attempt 1", "ValueError: attempt 2", "ValueError: attempt 3"]
    assert (run.error, run.ended_at) == (None, BEGIN + timedelta(hours=7))


def test_jitter_is_the_same_each_time_and_another_with_another_seed() -> None:
    def ends(seed: int) -> datetime | None:
        app, task = app_that(always("no"), retries=5)
        with boxed(app, seed=seed) as box:
            task.submit()
            [run] = box.settle()
        return run.ended_at

    assert ends(seed=1) == ends(seed=1) != ends(seed=2)


def test_a_task_may_say_when_it_wants_to_be_tried_again() -> None:
    def limited(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Retry("rate limited", after=3600)
        return "done"

    app, task = app_that(limited)
    with boxed(app) as box:
        handle = task.submit()
        box.advance("59m59s")
        assert handle.status() == "SCHEDULED"
        box.advance("1s")
        assert handle.result() == "done"
        assert box.runs[0].errors == ["Retry: rate limited"]


def test_a_task_that_gives_up_is_a_dead_letter_at_once() -> None:
    def hopeless() -> None:
        raise GiveUp("no such account")

    app, task = app_that(hopeless)
    with boxed(app) as box:
        handle = task.submit()
        with pytest.raises(RunFailed, match="no such account") as caught:
            handle.result()
        assert caught.value.status == "FAILED"
        [run] = box.dead_letters
        assert (run.attempt, run.reason) == (1, "failed and asked not to be retried")


def test_retry_rules_decide_by_the_class_of_the_error() -> None:
    def declined() -> None:
        raise KeyError("card")

    rules = {"max_attempts": 3, "base": 1, "rules": [{"error": "LookupError", "then": "give_up"}]}
    app, task = app_that(declined, retry=rules)
    with boxed(app) as box:
        task.submit()
        [run] = box.settle()
    assert (run.status, run.attempt) == ("FAILED", 1)
    assert "rule retry.rules[0] gives up" in (run.reason or "")


def test_a_run_without_tries_left_is_a_dead_letter_and_can_be_replayed() -> None:
    keys: list[str] = []

    def fussy(ctx: Context, good: bool = False) -> str:
        keys.append(ctx.idempotency_key)
        if not good:
            raise ValueError("bad")
        return "good"

    app, task = app_that(fussy, retries=1)
    with boxed(app) as box:
        handle = task.submit()
        box.settle()
        [dead] = box.dead_letters
        assert (dead.attempt, dead.reason) == (2, "failed 2 times, no tries left")
        [letter] = box.client.dead_letters().dead_letters
        assert (letter.run_id, letter.attempts, letter.error_message) == (dead.run_id, 2, "ValueError: bad")
        again = box.client.replay(dead.run_id, {"good": True})
        assert again.replay_of == dead.run_id
        assert box.client.handle(handle.job_id, again.run_id).result() == "good"
        assert box.dead_letters == []
        with pytest.raises(Conflict, match="was repeated as run"):
            box.client.replay(dead.run_id)
    assert keys[0] == keys[1] != keys[2]  # exactly_once uses this key; another payload is to have effects


def test_what_has_ended_is_repeated_as_far_as_its_job_allows() -> None:
    app = Mainspring()

    @app.cron("@hourly")
    @app.task(retries=0)
    def shaky(ctx: Context) -> None:
        if ctx.scheduled_for.hour < 3:
            raise ValueError("too early")

    with boxed(app) as box:
        box.advance("3h")
        first, second, good = box.runs
        box.client.retry_run(first.run_id)
        with pytest.raises(Conflict, match="a run of its job is alive"):
            box.client.retry_run(second.run_id)
        with pytest.raises(Conflict, match="a run of its job is alive"):
            box.client.retry_run(good.run_id)
        assert box.client.discard(second.run_id).discarded == 1
        box.run_pending()
        assert [run.replay_of for run in box.dead_letters] == [first.run_id]
        again = box.client.retry_run(good.run_id)
        assert (again.replay_of, again.idempotency_key) == (good.run_id, f"{good.idempotency_key}/{again.run_id}")
        box.run_pending()
        box.client.cancel_job("shaky")
        with pytest.raises(Conflict, match="its job is CANCELLED"):
            box.client.retry_run(box.dead_letters[0].run_id)
