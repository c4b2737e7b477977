"""The four overlap rules in a box, as at a server."""

from __future__ import annotations

import pytest

from mainspring import Context, Mainspring
from mainspring.testing import Box, run

from .a_box import boxed

START = "2026-01-01T00:00:00Z"


def an_app() -> Mainspring:
    app = Mainspring("overlap")

    @app.task("nightly", retry={"max_attempts": 2, "base": "1h", "backoff": "constant", "jitter": 0})
    def nightly(ctx: Context, fail: bool = False) -> str:
        if fail and ctx.attempt == 1:
            raise ValueError("once")
        return ctx.run_id

    return app


def states(box: Box) -> list[str]:
    return [str(one.status) for one in box.runs]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("skip", ["QUEUED", "SKIPPED", "SKIPPED"]),
        ("queue", ["QUEUED", "HELD", "HELD"]),
        ("allow", ["QUEUED", "QUEUED", "QUEUED"]),
        ("cancel_previous", ["CANCELLED", "CANCELLED", "QUEUED"]),
    ],
)
def test_the_four_overlap_rules(rule: str, expected: list[str]) -> None:
    with run(an_app(), start=START) as box:
        box.client.submit(task="nightly", job_id="nightly", schedule="manual", overlap=rule)
        for _ in range(3):
            box.client.run_now("nightly")
        assert states(box) == expected
        ended = box.run_pending()
        assert [one.run_id for one in ended] == sorted(one.run_id for one in ended)
        assert {"QUEUED", "HELD"}.isdisjoint(states(box))


@pytest.mark.parametrize(("before", "after"), [("allow", "queue"), ("queue", "allow")])
def test_live_runs_follow_a_change_of_the_rule(before: str, after: str) -> None:
    with run(an_app(), start=START) as box:
        box.client.submit(task="nightly", job_id="nightly", schedule="manual", overlap=before)
        for _ in range(2):
            box.client.run_now("nightly")
        box.client.update_job("nightly", overlap=after)
        box.client.run_now("nightly")
        assert states(box) == ["QUEUED", "QUEUED", "HELD" if after == "queue" else "QUEUED"]
        box.run_pending()
        assert states(box) == ["SUCCESS"] * 3


def test_a_run_waits_for_an_earlier_one_that_backs_off_and_says_for_which() -> None:
    with run(an_app(), start=START) as box:
        box.client.submit(task="nightly", job_id="nightly", schedule="manual", overlap="queue")
        first = box.client.run_now("nightly", {"fail": True}).run_id
        second = box.client.run_now("nightly").run_id
        assert box.client.run(second).reason == "waiting for an earlier run of its job to end (overlap)"
        box.run_pending()
        third = box.client.run_now("nightly").run_id
        words = f"waiting for run {first}, which is before it and cannot start yet (overlap)"
        assert (states(box), box.client.run(third).reason) == (["SCHEDULED", "HELD", "HELD"], words)
        assert [one.run_id for one in box.advance("1h")] == [first, second, third]


def test_runs_that_back_off_go_one_after_another_once_the_rule_says_so() -> None:
    with run(an_app(), start=START) as box:
        box.client.submit(task="nightly", job_id="nightly", schedule="manual", overlap="allow", payload={"fail": True})
        ids = [box.client.run_now("nightly").run_id for _ in range(2)]
        box.run_pending()
        box.client.update_job("nightly", overlap="queue")
        box.advance("59m")
        assert states(box) == ["SCHEDULED", "SCHEDULED"]
        assert [one.run_id for one in box.advance("1m")] == ids


def test_a_run_that_waits_is_cancelled() -> None:
    with run(an_app(), start=START) as box:
        box.client.submit(task="nightly", job_id="nightly", schedule="manual", overlap="queue")
        runs = [box.client.run_now("nightly").run_id for _ in range(3)]
        assert box.client.cancel_run(runs[1]).status == "CANCELLED"
        box.settle()
        assert states(box) == ["SUCCESS", "CANCELLED", "SUCCESS"]


def test_a_fire_is_skipped_while_an_earlier_run_backs_off() -> None:
    app = Mainspring()

    @app.cron("@hourly")
    @app.task(retry={"base": "90m", "cap": "1d", "backoff": "constant", "jitter": 0, "max_attempts": 2})
    def slow(ctx: Context) -> None:
        if ctx.attempt == 1 and ctx.scheduled_for.hour == 1:
            raise ValueError("once")

    with boxed(app) as box:
        box.advance("3h")
    assert [(run.scheduled_for.hour, str(run.status)) for run in box.runs] == [
        (1, "SUCCESS"), (2, "SKIPPED"), (3, "SUCCESS"),
    ]  # fmt: skip
    assert box.runs[1].reason == "overlap: an earlier run of this job was still alive"


def test_where_overlap_is_allowed_it_is_not_skipped() -> None:
    app = Mainspring()

    @app.cron("@hourly", overlap="allow")
    @app.task(retry={"base": "90m", "cap": "1d", "backoff": "constant", "jitter": 0, "max_attempts": 2})
    def slow() -> None:
        raise ValueError("always")

    with boxed(app) as box:
        box.advance("2h")
    assert [str(run.status) for run in box.runs] == ["SCHEDULED", "SCHEDULED"]
