"""Jobs after jobs in a box: the rules of a server, on a clock that the test controls."""

from __future__ import annotations

from typing import Any

import pytest

import mainspring.testing
from mainspring import Mainspring
from mainspring.domain.errors import InvalidInput


def an_app() -> tuple[Mainspring, list[tuple[str, Any]]]:
    app, seen = Mainspring(), list[tuple[str, Any]]()

    @app.task("a", retries=0)
    def a(fail: bool = False) -> dict[str, int]:
        seen.append(("a", None))
        if fail:
            raise ValueError("no")
        return {"rows": len(seen)}

    @app.task("b", retries=0)
    def b(rows: Any = None) -> None:
        seen.append(("b", rows))

    return app, seen


def test_a_run_waits_for_the_run_for_the_same_time_and_takes_its_result() -> None:
    app, seen = an_app()
    with mainspring.testing.run(app, start="2026-01-01T12:00:00Z") as box:
        payload = {"rows": {"$from": "a1", "path": "rows"}}
        with pytest.raises(InvalidInput, match="there is no job 'a1'"):
            box.client.submit(task="b", depends_on=["a1"])
        box.client.submit(task="a", job_id="a1", cron="@daily")
        box.client.submit(task="b", job_id="b1", cron="@daily", depends_on=["a1"], payload=payload)
        with pytest.raises(InvalidInput, match="a1 > b1 > a1"):
            box.client.update_job("a1", depends_on=["b1"])
        box.advance("2d")
        assert seen == [("a", None), ("b", 1), ("a", None), ("b", 3)]
        box.client.update_job("a1", payload={"fail": True})
        box.advance("1d")
        last = box.runs_of("b")[-1]
        assert (last.status, last.reason) == ("SKIPPED", "upstream failed: a1")
        box.client.update_job("b1", rule="one_failed", payload={})
        box.advance("1d")
        assert box.runs_of("b")[-1].status == "SUCCESS"


@pytest.mark.parametrize("jitters", [("1h", None), (None, "1h"), ("1h", "1h")])
def test_with_jitter_a_run_waits_for_the_run_of_the_same_nominal_time(jitters: tuple[str | None, ...]) -> None:
    app, seen = an_app()
    with mainspring.testing.run(app, start="2026-01-01T12:00:00Z") as box:
        payload = {"rows": {"$from": "a1", "path": "rows"}}
        daily = [{"cron": "0 6 * * *", **({"jitter": one} if one else {})} for one in jitters]
        box.client.submit(task="a", job_id="a1", schedule=daily[0])
        box.client.submit(task="b", job_id="b1", schedule=daily[1], depends_on=["a1"], payload=payload)
        for day in range(5):
            box.advance("1d")
            assert seen[2 * day :] == [("a", None), ("b", 2 * day + 1)]
        box.client.update_job("a1", payload={"fail": True})
        box.advance("1d")
        last = box.runs_of("b")[-1]
        assert (last.status, last.reason) == ("SKIPPED", "upstream failed: a1")


def test_a_job_fires_after_others() -> None:
    app, seen = an_app()
    with mainspring.testing.run(app, start="2026-01-01T12:00:00Z") as box:
        box.client.submit(task="a", job_id="hourly", cron="@hourly")
        box.client.submit(task="a", job_id="daily", cron="@daily")
        box.client.submit(task="b", after=["hourly", "daily"], payload={"rows": {"$from": "daily", "path": "rows"}})
        box.advance("3d")
        assert [name for name, _ in seen].count("b") == 3


def test_a_run_waits_until_its_parent_succeeds_or_is_deleted() -> None:
    app, _ = an_app()
    with mainspring.testing.run(app) as box:
        box.client.submit(task="a", job_id="a1", schedule="manual")
        waiting = box.client.submit(task="b", depends_on=["a1"])
        box.run_pending()
        assert waiting.status() == "WAITING"
        box.client.run_now("a1")
        box.run_pending()
        assert waiting.status() == "SUCCESS"
        second = box.client.submit(task="a", at="1d", job_id="later")
        gone = box.client.submit(task="b", depends_on=[second.job_id])
        box.client.cancel_job("later")
        assert gone.status() == "SKIPPED"
        assert box.runs[-1].reason == "upstream deleted: later"
