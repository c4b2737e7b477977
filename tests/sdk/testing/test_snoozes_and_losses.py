"""Snoozes and losses in a box: they use no attempt, and they have bounds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring import (
    Context,
    InvalidInput,
    Mainspring,
)
from mainspring.testing import WorkerLost
from mainspring.testing import run as run_in_box

from .a_box import app_that, boxed


def test_a_snoozed_run_comes_back_later_and_uses_no_attempt() -> None:
    app = Mainspring()
    seen: list[tuple[int, int, int]] = []

    @app.task(retries=1)
    async def polls(ctx: Context) -> str:
        seen.append((ctx.attempt, ctx.max_attempts, ctx.snoozes))
        if ctx.snoozes < 2:
            ctx.snooze("10m")
        if ctx.attempt < ctx.max_attempts:
            raise ValueError("not yet")
        return "done"

    with run_in_box(app, start="2026-01-01T00:00:00Z") as box:
        handle = polls.submit()
        box.run_pending()
        [run] = box.runs
        assert (run.status, run.reason, run.errors) == ("SCHEDULED", "snoozed until 2026-01-01T00:10:00Z", [])
        assert handle.result() == "done"
        assert seen == [(1, 2, 0), (2, 3, 1), (3, 4, 2), (4, 4, 2)]
        assert (run.snoozes, run.losses, len(run.errors)) == (2, 0, 1)
        assert box.now >= datetime(2026, 1, 1, 0, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"run_timeout": "1h"}, "timed out after 1h in all (run_timeout): it asked to be snoozed for longer than that"),
        ({"delivery": "at_most_once"}, "failed 1 time, no tries left"),
    ],
)
def test_snoozes_have_bounds(options: Any, reason: str) -> None:
    app = Mainspring()

    @app.task(**options)
    def polls(ctx: Context) -> None:
        ctx.snooze("10m")

    with run_in_box(app) as box:
        handle = polls.submit()
        box.settle()
        [run] = box.runs_of(handle)
        assert (run.status, run.reason) == ("FAILED", reason)
        if "delivery" in options:
            assert isinstance(run.exception, InvalidInput) and "at most once" in str(run.exception)


def test_a_lost_run_is_tried_again_at_once_and_then_later_and_uses_no_attempt() -> None:
    seen: list[str] = []

    def work(ctx: Context) -> int:
        ctx.add_cleanup(seen.append, "cleanup")
        seen.append("start")
        if ctx.attempt <= 2:
            raise WorkerLost
        raise ValueError("no")

    app, task = app_that(work, retry={"max_attempts": 1})
    with boxed(app, raise_errors=False) as box:
        handle = task.submit()
        box.run_pending()
        assert (seen, handle.status()) == (["start", "start"], "SCHEDULED")
        [run] = box.runs
        assert (run.losses, run.max_attempts, run.errors) == (2, 3, ["worker lost"] * 2)
        assert run.reason == "backing off after attempt 2 of 3, 2 of them lost"
        view = box.client.run(run.run_id)
        assert (view.losses, view.status, view.start_time) == (2, "SCHEDULED", None)
        box.advance("30s")
        assert (run.status, run.attempt, seen) == ("FAILED", 3, ["start"] * 3 + ["cleanup"])


@pytest.mark.parametrize(
    ("fields", "alone", "attempts", "reason"),
    [
        ({"max_losses": 1}, False, 2, "lost 2 times, max_losses is 1"),
        ({"delivery": "at_most_once"}, False, 1, "worker lost, and"),
        ({"max_losses": 9}, True, 2, "lost 2 times, the last time while it was alone on its worker"),
    ],
)
def test_losses_have_an_end(fields: dict[str, Any], alone: bool, attempts: int, reason: str) -> None:
    def work() -> None:
        raise WorkerLost(alone=alone)

    app, _ = app_that(work)
    with boxed(app) as box:
        box.client.submit(task="task", **fields)
        box.settle()
        [run] = box.dead_letters
        assert (run.attempt, run.losses) == (attempts, attempts)
        assert run.reason is not None and run.reason.startswith(reason)
