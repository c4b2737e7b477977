"""Unique jobs, limits, circuit breakers, dependencies and backfills through the SDK, at a real server with a worker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from mainspring import Conflict, InvalidInput
from tests.eventually import until
from tests.sdk.with_server.market import app, call, charge, hour, rows, sync

pytestmark = pytest.mark.slow

Server = Callable[..., Any]
SOON = 60


def test_a_handle_says_what_became_of_a_unique_job(mainspring_server: Server) -> None:
    client = mainspring_server(app).client
    later = sync.options(delay="1h")
    first, second, other = later.submit(1), later.submit(1, n=2), later.submit(2)
    assert (first.unique, second.unique, other.unique) == (None, "kept", None)
    assert second.job_id == first.job_id != other.job_id
    assert "unique='kept'" in repr(second)
    replacing = sync.options(delay="1h", unique={"by": ["task", "payload.account"], "else": "replace"})
    assert replacing.submit(1, n=5).unique == "replaced"
    assert client.job(first.job_id).payload == {"account": 1, "n": 5}
    jobs = [{"task": "market.sync", "payload": {"account": 7}, "delay": "1h"} for _ in range(2)]
    made = client.submit_batch(jobs)
    assert made.unique == [None, "kept"] and len(set(made.job_ids)) == 1
    assert sync.options(unique=False).submit(1, n=9).result(timeout=SOON) == 9
    assert sync.options(every="1h").submit(1).unique is None  # recurring jobs are not unique
    with pytest.raises(InvalidInput, match="is an array"):
        client.submit(task="market.sync", payload={"account": []}, unique={"by": ["payload.account"]})


def test_a_limit_is_shown_and_set_and_counts_each_key(mainspring_server: Server) -> None:
    client = mainspring_server(app).client
    elsewhere = charge.options(queue="nobody-works-here")
    waiting = [elsewhere.submit(account=one) for one in ("a", "a", "b")]
    assert [one.status() for one in waiting] == ["QUEUED", "HELD", "QUEUED"]
    [limit] = client.limits(q="market.charge").limits
    assert (limit.name, limit.limit, limit.in_use, limit.held) == ("task:market.charge:payload.account", 1, 2, 1)
    assert client.set_limit(limit.limit_id, 2).limit.pinned
    until(lambda: waiting[1].status() == "QUEUED")
    assert client.set_limit(limit.limit_id, None).limit.limit == 1
    with pytest.raises(InvalidInput):
        client.set_limit(limit.limit_id, 0)
    for one in waiting:
        one.cancel()


def test_a_circuit_breaker_opens_and_is_reset(mainspring_server: Server) -> None:
    client = mainspring_server(app).client
    for _ in range(2):
        call.submit(down=True).wait(timeout=SOON)
    held = call.submit()
    assert held.status() == "HELD"
    [breaker] = client.breakers().breakers
    assert (breaker.task, breaker.state, breaker.failed, breaker.held) == ("market.call", "open", 2, 1)
    assert client.reset_breaker(breaker.breaker_id).state == "closed"
    assert held.wait(timeout=SOON).status == "SUCCESS"


def test_a_run_waits_for_its_parent_and_takes_its_result(mainspring_server: Server) -> None:
    client = mainspring_server(app).client
    parent = f"parent-{uuid4().hex[:8]}"
    with pytest.raises(InvalidInput, match=f"there is no job '{parent}'"):
        rows.options(depends_on=[parent]).submit()
    client.submit(task="market.rows", job_id=parent, schedule="manual")
    child = client.submit(task="market.rows", depends_on=[parent], payload={"rows": {"$from": parent, "path": "rows"}})
    assert child.status() == "WAITING"
    client.run_now(parent)
    assert child.result(timeout=SOON) == {"rows": 3}


def test_a_backfill_is_waited_for_paused_changed_and_cancelled(mainspring_server: Server) -> None:
    client = mainspring_server(app).client
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
    job = hour.options(cron="@hourly").submit().job_id
    done = client.backfill(job, day, day + timedelta(hours=10), concurrency=2).wait(timeout=SOON)
    assert (done.state, done.total, done.succeeded, done.remaining) == ("completed", 10, 10, 0)
    runs = [run for run in client.all_runs(job=job) if run.backfill_id == done.id]
    assert sorted(run.result for run in runs) == list(range(10))
    again = client.backfill(job, day, day + timedelta(hours=12), order="newest").wait(timeout=SOON)
    assert (again.existing, again.created) == (10, 2)
    assert [one.id for one in client.backfills(job=job).backfills] == [again.id, done.id]

    stuck = hour.options(cron="@hourly", queue="nobody-works-here").submit().job_id
    backfill = client.backfill(stuck, day, day + timedelta(hours=10))
    assert backfill.pause().state == "paused"
    assert backfill.set_concurrency(3).concurrency == 3
    assert backfill.resume().state == "running"
    assert (backfill.cancel().state, backfill.wait(timeout=SOON).over) == ("cancelled", True)
    with pytest.raises(Conflict, match="is cancelled and cannot be resumed"):
        backfill.resume()
