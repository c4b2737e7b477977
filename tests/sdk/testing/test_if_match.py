"""Changes in a box with the version or the tag that was seen, as at a server."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import Mainspring, VersionMismatch

from .a_box import always, app_that, boxed


def test_a_run_that_has_changed_is_not_cancelled() -> None:
    app, task = app_that(lambda: 1)
    with boxed(app) as box:
        handle = task.submit()
        seen = box.client.run(box.runs[0].run_id)
        assert handle.result() == 1
        with pytest.raises(VersionMismatch, match='the run is at "success-1", not "queued-0"'):
            box.client.cancel_run(seen.run_id, if_match=seen.etag)
        with pytest.raises(VersionMismatch):
            box.client.retry_run(seen.run_id, if_match=seen.etag)
        assert box.client.retry_run(seen.run_id, if_match="success-1").replay_of == seen.run_id


def test_a_dead_letter_is_replayed_and_discarded_by_its_tag() -> None:
    app, task = app_that(always("no"), retries=0)
    with boxed(app) as box:
        for _ in range(2):
            task.submit()
        box.settle()
        first, second = box.client.dead_letters().dead_letters
        for change in (box.client.replay, box.client.discard):
            with pytest.raises(VersionMismatch):
                change(first.run_id, if_match="dead-9")
        assert box.client.replay(first.run_id, if_match=first.etag).replay_of == first.run_id
        assert box.client.discard(second.run_id, if_match=second.etag).discarded == 1


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel_job", "run_now"])
def test_a_job_that_has_changed_is_left_alone(verb: str) -> None:
    app = Mainspring()

    @app.cron("0 0 * * *", name="report")
    def report() -> None: ...

    with boxed(app) as box:
        change: Any = getattr(box.client, verb)
        seen = box.client.job("report").version
        now = box.client.update_job("report", description="other").version
        with pytest.raises(VersionMismatch, match=f"the job has version {now}, not {seen}"):
            change("report", if_version=seen)
        change("report", if_version=now)
