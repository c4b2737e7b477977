"""Limits and overlap rules in a box: the same rules as in a server, on the clock of the test."""

from __future__ import annotations

from typing import Any

import pytest

import mainspring.testing
from mainspring import Mainspring
from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.sdk.errors import Retry
from mainspring.sdk.testing.box import Box

START = "2026-01-01T00:00:00Z"


@pytest.fixture
def app() -> Mainspring:
    app = Mainspring("limits")

    @app.task
    def charge(account: Any = None, fail: bool = False) -> Any:
        if fail:
            raise Retry(in_=60)
        return account

    @app.task(concurrency={"limit": 1, "key": "payload.account"})
    def once_each(account: Any = None) -> Any:
        return account

    return app


def states(box: Box) -> list[str]:
    return [run.status for run in box.client.runs().runs[::-1]]


def submit(box: Box, count: int = 1, **fields: Any) -> list[str]:
    return [box.client.submit(**{"task": "charge", **fields}).job_id for _ in range(count)]


def order(box: Box) -> list[str]:
    return [run.job_id for run in box.runs]


def test_runs_are_held_and_admitted_one_after_another(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START) as box:
        ids = submit(box, 3, concurrency=1)
        assert states(box) == ["QUEUED", "HELD", "HELD"]
        assert box.client.run(ids[1]).reason == "waiting for room in the limit of task charge: 1 of 1 in use"
        box.run_pending()
        assert states(box) == ["SUCCESS"] * 3


def test_the_option_of_a_task_counts_each_key(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START) as box:
        for account in (1, 1, 2):
            app.tasks["once_each"].submit(account=account)
        assert states(box) == ["QUEUED", "HELD", "QUEUED"]
        [limit] = box.client.limits().limits
        assert (limit.name, limit.limit, limit.in_use, limit.held) == ("task:once_each:payload.account", 1, 2, 1)


def test_a_limit_is_raised_and_reset(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START) as box:
        submit(box, 3, concurrency=1)
        [limit] = box.client.limits().limits
        assert box.client.set_limit(limit.limit_id, 2).limit.pinned
        assert states(box) == ["QUEUED", "QUEUED", "HELD"]
        assert box.client.set_limit(limit.limit_id, None).limit.limit == 1
        with pytest.raises(InvalidInput):
            box.client.set_limit(limit.limit_id, 0)
        box.run_pending()
        assert states(box) == ["SUCCESS"] * 3


@pytest.mark.parametrize("strict", [False, True])
def test_a_run_that_backs_off_gives_up_its_slot_unless_the_order_is_strict(app: Mainspring, strict: bool) -> None:
    limit = {"limit": 1, **({"order": "strict"} if strict else {})}
    with mainspring.testing.run(app, start=START) as box:
        [first] = submit(box, payload={"fail": True}, retries=1, concurrency=limit)
        [second] = submit(box, concurrency=limit)
        box.run_pending()
        expected = ["SCHEDULED", "HELD"] if strict else ["SCHEDULED", "SUCCESS"]
        assert states(box) == expected
        box.settle()
        assert [run.job_id for run in box.client.runs(status="SUCCESS").runs] == [second]
        assert box.client.run(first).status == "FAILED"


@pytest.mark.parametrize("how", ["becomes strict", "is strict no more"])
def test_the_limit_says_whether_its_order_is_strict(app: Mainspring, how: str) -> None:
    """Not the run, which may have been submitted when the order was another one."""
    loose: dict[str, Any] = {"limit": 1, "per": "task"}
    strict = {**loose, "order": "strict"}
    becomes = how == "becomes strict"
    with mainspring.testing.run(app, start=START) as box:
        [first] = submit(box, payload={"fail": True}, retries=1, concurrency=loose if becomes else strict)
        box.run_pending()
        [second] = submit(box, concurrency=strict)
        words = f"waiting for run {first}, which is before it and cannot start yet (strict order of task charge)"
        assert (box.client.run(second).status, box.client.run(second).reason) == ("HELD", words)
        if becomes:
            box.settle()
            ended = [run.run_id for run in box._engine.ended]
            assert ended == [first, second]
        else:
            [limit] = box.client.limits().limits
            box.client.set_limit(limit.limit_id, None, order="priority")
            assert states(box) == ["SCHEDULED", "QUEUED"]


def test_a_job_without_the_strict_order_of_its_limit_is_refused(app: Mainspring) -> None:
    strict, loose = ({"limit": 1, "per": "task", **order} for order in ({"order": "strict"}, {}))
    with mainspring.testing.run(app, start=START) as box:
        box.client.submit(task="charge", job_id="one", schedule="manual", concurrency=strict)
        with pytest.raises(Conflict, match="strict order"):
            box.client.submit(task="charge", job_id="two", schedule="manual", concurrency=loose)
        [limit] = box.client.limits().limits
        assert box.client.set_limit(limit.limit_id, None, order="priority").limit.order == "priority"
        box.client.submit(task="charge", job_id="two", schedule="manual", concurrency=loose)


def test_rank_decides_who_is_next_unless_the_order_is_strict(app: Mainspring) -> None:
    for limit, expected in (({"limit": 1}, [0, 2, 1]), ({"limit": 1, "order": "strict"}, [0, 1, 2])):
        with mainspring.testing.run(app, start=START) as box:
            ids = [submit(box, concurrency=limit, priority=word)[0] for word in ("normal", "low", "critical")]
            box.run_pending()
            ended = sorted(
                box.client.runs().runs, key=lambda run: box._engine.ended.index(box._engine.runs[run.run_id])
            )
            assert [run.job_id for run in ended] == [ids[n] for n in expected]


def test_two_limits_at_once(app: Mainspring) -> None:
    both = [{"limit": 2, "per": "task"}, {"limit": 1, "key": "payload.account"}]
    with mainspring.testing.run(app, start=START) as box:
        for account in (1, 1, 2, 3):
            submit(box, payload={"account": account}, concurrency=both)
        assert states(box) == ["QUEUED", "HELD", "QUEUED", "HELD"]
        box.run_pending()
        assert states(box) == ["SUCCESS"] * 4


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("skip", ["QUEUED", "SKIPPED", "SKIPPED"]),
        ("queue", ["QUEUED", "HELD", "HELD"]),
        ("allow", ["QUEUED", "QUEUED", "QUEUED"]),
        ("cancel_previous", ["CANCELLED", "CANCELLED", "QUEUED"]),
    ],
)
def test_the_four_overlap_rules(app: Mainspring, rule: str, expected: list[str]) -> None:
    with mainspring.testing.run(app, start=START) as box:
        submit(box, job_id="nightly", schedule="manual", overlap=rule)
        for _ in range(3):
            box.client.run_now("nightly")
        assert states(box) == expected
        box.run_pending()
        assert {"QUEUED", "HELD"}.isdisjoint(states(box))


@pytest.mark.parametrize(("before", "after"), [("allow", "queue"), ("queue", "allow")])
def test_live_runs_follow_a_change_of_the_rule(app: Mainspring, before: str, after: str) -> None:
    with mainspring.testing.run(app, start=START) as box:
        submit(box, job_id="nightly", schedule="manual", overlap=before)
        for _ in range(2):
            box.client.run_now("nightly")
        box.client.update_job("nightly", overlap=after)
        box.client.run_now("nightly")
        assert states(box) == ["QUEUED", "QUEUED", "HELD" if after == "queue" else "QUEUED"]
        box.run_pending()
        assert states(box) == ["SUCCESS"] * 3


def test_a_held_run_is_cancelled_and_an_overlap_limit_is_not_set(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START) as box:
        submit(box, job_id="nightly", schedule="manual", overlap="queue")
        runs = [box.client.run_now("nightly").run_id for _ in range(2)]
        assert box.client.cancel_run(runs[1]).status == "CANCELLED"
        [limit] = box.client.limits().limits
        with pytest.raises(Conflict):
            box.client.set_limit(limit.limit_id, 2)
        box.settle()


def test_runs_behind_a_breaker_go_on_when_the_job_gives_it_up(app: Mainspring) -> None:
    with mainspring.testing.run(app, start=START, raise_errors=False) as box:
        breaker = {"failures": 1, "open_for": "1h"}
        job = {"job_id": "sync", "schedule": "manual", "overlap": "allow", "circuit_breaker": breaker}
        box.client.submit(task="charge", payload={"fail": True}, **job)
        box.client.run_now("sync")
        box.run_pending()
        box.client.run_now("sync", payload={})
        assert states(box)[-1] == "HELD"
        box.client.update_job("sync", circuit_breaker=False)
        assert states(box)[-1] == "QUEUED"
