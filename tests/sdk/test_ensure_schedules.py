"""The schedules of an application become jobs, which are updated when the code changes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from mainspring import AsyncClient, Mainspring
from mainspring.sdk.app.ensure_schedules import ensure_schedules
from tests.sdk.wire_samples import job, problem


class JobShelf:
    """A fake server with at most one job. It records the requested changes."""

    def __init__(self, present: dict[str, Any] | None = None) -> None:
        self.present = present
        self.created: list[dict[str, Any]] = []
        self.changes: list[dict[str, Any]] = []
        self.outdated = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            if self.present is not None:
                return httpx.Response(409, json=problem(409, "job_exists"))
            self.created.append(json.loads(request.content))
            return httpx.Response(201, json={"job_id": self.created[-1]["job_id"]})
        if request.method == "PATCH":
            if self.outdated:
                self.outdated -= 1
                return httpx.Response(412, json=problem(412, "version_mismatch"))
            self.changes.append(json.loads(request.content))
        if self.present is None:
            return httpx.Response(404, json=problem(404, "not_found"))
        return httpx.Response(200, json=self.present)


def ensure(app: Mainspring, shelf: JobShelf) -> dict[str, str]:
    async def scenario() -> dict[str, str]:
        async with AsyncClient("http://127.0.0.1:1", "t", transport=httpx.MockTransport(shelf)) as client:
            return dict(await ensure_schedules(client, app))

    return asyncio.run(scenario())


def app_with(expression: str = "@daily", **options: Any) -> Mainspring:
    app = Mainspring()

    @app.cron(expression, **options)
    @app.task
    def report() -> None: ...

    return app


def test_a_missing_job_is_created_under_the_tasks_name() -> None:
    shelf = JobShelf()
    assert ensure(app_with(timezone="Europe/Berlin"), shelf) == {"report": "created"}
    (body,) = shelf.created
    assert body["job_id"] == "report"
    assert body["schedule"] == {"cron": "@daily", "timezone": "Europe/Berlin"}


def test_a_job_that_says_the_same_in_other_words_is_left_alone() -> None:
    shelf = JobShelf(job(timeout=900.0))
    assert ensure(app_with("@daily", timeout="15m"), shelf) == {"report": "unchanged"}
    assert shelf.changes == []


def test_only_what_differs_is_changed() -> None:
    shelf = JobShelf(job())
    assert ensure(app_with("0 6 * * *", queue="default", priority="high"), shelf) == {"report": "updated"}
    assert shelf.changes == [{"schedule": {"cron": "0 6 * * *"}, "priority": "high"}]


def test_what_executors_look_at_follows_the_code_too() -> None:
    options: dict[str, Any] = {
        "run_timeout": "1h", "kill_grace": 3, "env": {"A": "b"}, "limits": {"memory": "1GB"},
        "required_labels": {"gpu": "a100"},
    }  # fmt: skip
    shelf = JobShelf(job())
    assert ensure(app_with("@daily", **options), shelf) == {"report": "updated"}
    assert shelf.changes == [options]
    same = {**options, "run_timeout": 3600.0, "kill_grace": 3.0, "limits": {"memory": 10**9}}
    assert ensure(app_with("@daily", **options), JobShelf(job(**same))) == {"report": "unchanged"}


def test_rules_of_retry_are_compared_as_the_server_shows_them() -> None:
    rules = [{"then": "give_up", "error": "ValueError"}]
    shown = [{"then": "give_up", "error": ["ValueError"]}]
    app = app_with("@daily", retry={"max_attempts": 4, "rules": rules})
    assert ensure(app, JobShelf(job(retry=job()["retry"] | {"rules": shown}))) == {"report": "unchanged"}
    shelf = JobShelf(job())
    assert ensure(app, shelf) == {"report": "updated"}
    assert shelf.changes == [{"retry": {"max_attempts": 4, "rules": rules}}]


def test_what_the_code_does_not_name_stays_as_operators_set_it() -> None:
    shelf = JobShelf(job(priority="critical", queue="heavy", retry=job()["retry"] | {"base": 9.0}))
    assert ensure(app_with("@daily", retries=3), shelf) == {"report": "unchanged"}
    shelf = JobShelf(job(limits={"memory": 10**9, "output": 10**6}, retry=job()["retry"] | {"max_attempts": 9}))
    app = app_with("@daily", limits={"output": "1MB"}, retry={"base": "2s"}, misfire={"policy": "once"})
    assert ensure(app, shelf) == {"report": "unchanged"}, "the same member by member"


def test_a_change_of_zone_is_a_change_of_schedule() -> None:
    shelf = JobShelf(job())
    assert ensure(app_with("@daily", timezone="Europe/Berlin"), shelf) == {"report": "updated"}
    assert shelf.changes == [{"schedule": {"cron": "@daily", "timezone": "Europe/Berlin"}}]


def test_an_interval_is_compared_in_seconds() -> None:
    app = Mainspring()

    def report() -> None: ...

    app.every("10m")(report)
    present = job(schedule_type="INTERVAL", cron_expression=None, timezone=None, every=600.0)
    assert ensure(app, JobShelf(present)) == {"report": "unchanged"}
    assert ensure(app, JobShelf(present | {"every": 60.0})) == {"report": "updated"}


def test_a_cancelled_job_stays_cancelled() -> None:
    shelf = JobShelf(job(status="CANCELLED"))
    assert ensure(app_with("0 6 * * *"), shelf) == {"report": "left cancelled"}
    assert shelf.changes == []


def test_two_workers_that_start_at_once_do_not_disturb_each_other() -> None:
    shelf = JobShelf(job())
    shelf.outdated = 2
    assert ensure(app_with("0 6 * * *"), shelf) == {"report": "updated"}
