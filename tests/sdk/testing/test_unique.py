"""Unique jobs in a box, and through the SDK: the same answers as a server gives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.testing import run

app = Mainspring()
seen: list[Any] = []


@app.task(unique={"by": ["task", "payload.account"], "for": timedelta(minutes=10)})
def sync(account: int, n: int = 0) -> int:
    seen.append((account, n))
    return n


@app.task
def plain(account: int, n: int = 0) -> int:
    if n < 0:
        raise ValueError("no")
    return n


BY = ["task", "payload.account"]


@pytest.fixture(autouse=True)
def forget() -> None:
    seen.clear()


def test_the_handle_says_whether_it_was_kept() -> None:
    with run(app) as box:
        first, second, other = sync.submit(1), sync.submit(1, n=2), sync.submit(2)
        assert (first.unique, second.unique, other.unique) == (None, "kept", None)
        assert second.job_id == first.job_id != other.job_id
        assert "unique='kept'" in repr(second)
        box.run_pending()
        assert seen == [(1, 0), (2, 0)]
        assert second.result() == 0
        assert sync.submit(1).unique is None


def test_options_of_a_submission_come_before_those_of_the_task() -> None:
    with run(app) as box:
        first = sync.options(unique={"by": ["task"], "else": "replace"}).submit(1)
        assert sync.options(unique={"by": ["task"], "else": "replace"}).submit(2, n=5).unique == "replaced"
        box.run_pending()
        assert seen == [(2, 5)]
        assert box.client.job(first.job_id).payload == {"account": 2, "n": 5}


def test_a_recurring_job_of_a_unique_task_is_not_unique() -> None:
    with run(app) as box:
        for _ in range(2):
            assert sync.options(every="1h").submit(1).unique is None
        assert [job.unique for job in box.client.all_jobs()] == [None, None]


def test_later_pushes_and_the_window_ends_it() -> None:
    with run(app) as box:
        rule = {"by": BY, "for": "10m", "else": "later"}
        first = box.client.submit(task="plain", payload={"account": 1}, delay="1m", unique=rule)
        for _ in range(20):
            box.advance(timedelta(seconds=50))
            again = box.client.submit(task="plain", payload={"account": 1, "n": 1}, delay="1m", unique=rule)
            if again.unique is None:
                break
        assert again.job_id != first.job_id
        ran = box.client.job_runs(first.job_id).runs[0]
        assert ran.status == "SUCCESS" and ran.result == 0
        assert ran.scheduled_for is not None
        assert ran.scheduled_for - box.client.job(first.job_id).created_at == timedelta(minutes=10)


def test_a_queued_run_is_pushed_and_runs_once() -> None:
    with run(app) as box:
        box.client.submit(task="plain", payload={"account": 1}, unique={"by": BY})
        pushed = box.client.submit(task="plain", payload={"account": 1}, delay="1h", unique={"by": BY, "else": "later"})
        assert pushed.unique == "later" and pushed.status() == "SCHEDULED"
        box.run_pending()
        assert not box.runs[0].ended_at
        box.advance(timedelta(hours=1))
        assert [one.status for one in box.runs] == ["SUCCESS"]


def test_a_run_that_backs_off_is_not_replaced() -> None:
    with run(app, raise_errors=False) as box:
        box.client.submit(task="plain", payload={"account": 1, "n": -1}, unique={"by": BY})
        box.run_pending()
        with pytest.raises(Conflict, match="has started") as refused:
            box.client.submit(task="plain", payload={"account": 1}, unique={"by": BY, "else": "replace"})
        assert refused.value.code == "unique_started"
        assert box.client.submit(task="plain", payload={"account": 1}, unique={"by": BY}).unique == "kept"


def test_a_batch_says_it_for_each_job_and_a_key_repeats_the_answer() -> None:
    with run(app) as box:
        jobs = [{"task": "plain", "payload": {"account": 1}, "unique": {"by": BY}} for _ in range(2)]
        made = box.client.submit_batch(jobs)
        assert made.unique == [None, "kept"] and len(set(made.job_ids)) == 1
        for _ in range(2):
            kept = box.client.submit(task="plain", payload={"account": 1}, unique={"by": BY}, idempotency_key="k")
            assert (kept.unique, kept.job_id) == ("kept", made.job_ids[0])
            box.run_pending()
        assert box.client.submit_batch([{"task": "plain", "payload": {"account": 1}}]).unique == []


def test_bad_rules_are_refused_when_the_task_is_declared() -> None:
    with pytest.raises(ValueError, match=r"unique\.by\[0\]: 'payload' is not a field of a key"):
        Mainspring().task(unique={"by": ["payload"]})(plain.function)
    with run(app) as box, pytest.raises(InvalidInput, match="is an array"):
        box.client.submit(task="plain", payload={"account": []}, unique={"by": BY})
