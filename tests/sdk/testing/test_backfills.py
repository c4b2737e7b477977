"""Backfills in a box, through the SDK: the same answers as a server gives."""

from __future__ import annotations

import pytest

from mainspring import Context, Mainspring
from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.testing import run

app = Mainspring()
START = "2025-03-02T00:00:00Z"
FROM, TO = "2025-03-01T00:00:00Z", "2025-03-01T10:00:00Z"


@app.task
def report(ctx: Context) -> int:
    return ctx.scheduled_for.hour


def test_every_fire_runs_once_and_wait_lets_time_pass() -> None:
    with run(app, start=START) as box:
        job = box.client.submit(task="report", cron="@hourly").job_id
        backfill = box.client.backfill(job, FROM, TO, concurrency=2)
        view = backfill.view()
        assert (view.state, view.total, view.created, view.running) == ("running", 10, 2, 2)
        done = backfill.wait(timeout=60)
        assert (done.state, done.succeeded, done.existing, done.remaining) == ("completed", 10, 0, 0)
        assert [one.result for one in box.runs] == list(range(10))
        assert {one.backfill_id for one in box.runs} == {backfill.id}
        again = box.client.backfill(job, FROM, "2025-03-01T12:00:00Z", order="newest").wait()
        assert (again.existing, again.created) == (10, 2)
        assert [one.result for one in box.runs[10:]] == [11, 10]
        assert [one.id for one in box.client.backfills(job=job).backfills] == [again.id, backfill.id]


def test_it_is_paused_resumed_and_cancelled_and_ends_with_its_job() -> None:
    with run(app, start=START) as box:
        job = box.client.submit(task="report", cron="@hourly").job_id
        backfill = box.client.backfill(job, FROM, TO)
        assert backfill.pause().state == "paused"
        box.run_pending()
        assert (backfill.view().succeeded, backfill.view().remaining) == (1, 9)
        assert backfill.set_concurrency(3).concurrency == 3
        assert backfill.resume().running == 3
        done = backfill.cancel()
        assert (done.state, done.cancelled, done.remaining, done.over) == ("cancelled", 3, 6, True)
        with pytest.raises(Conflict, match="is cancelled and cannot be resumed"):
            backfill.resume()
        other = box.client.backfill(job, FROM, "2025-03-01T20:00:00Z")
        box.client.pause(job)
        assert (other.view().state, other.view().reason) == ("paused", "its job is paused")
        box.client.cancel_job(job)
        assert (other.view().state, other.view().reason) == ("cancelled", "its job was cancelled")


def test_what_a_server_refuses_is_refused() -> None:
    with run(app, start=START) as box:
        job = box.client.submit(task="report", cron="@hourly").job_id
        for start, end, words in ((TO, FROM, "begins at"), (FROM, "2026-01-01T00:00:00Z", "in the future")):
            with pytest.raises(InvalidInput, match=words):
                box.client.backfill(job, start, end)
        with pytest.raises(InvalidInput, match="only runs by hand"):
            box.client.backfill(box.client.submit(task="report", schedule="manual").job_id, FROM, TO)
