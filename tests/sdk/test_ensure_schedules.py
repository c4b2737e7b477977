"""The schedules of an application become jobs, which are updated when the code changes."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest

from mainspring import AsyncClient, Mainspring, roles
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.schedules.words import explain
from mainspring.roles.schedules import Schedules
from mainspring.sdk.app.ensure_schedules import ScheduleKeeper, ensure_schedules
from tests.sdk.wire_samples import job, problem

NAME = "billing"


class JobShelf:
    """A fake server with at most one job. It records the requested changes."""

    def __init__(self, present: dict[str, Any] | None = None) -> None:
        self.present = present
        self.created: list[dict[str, Any]] = []
        self.changes: list[dict[str, Any]] = []
        self.outdated = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            present = [] if self.present is None else [self.present | {"declared_by": NAME}]
            return httpx.Response(200, json={"application": NAME, "number": 1, "current": True, "jobs": present})
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
            ensured = await ensure_schedules(client, app)
            assert not ensured.refused
            return dict(ensured.done)

    return asyncio.run(scenario())


def app_with(expression: str = "@daily", **options: Any) -> Mainspring:
    app = Mainspring(NAME)

    @app.cron(expression, **options)
    @app.task
    def report() -> None: ...

    return app


def test_a_missing_job_is_created_under_the_tasks_name() -> None:
    shelf = JobShelf()
    assert ensure(app_with(timezone="Europe/Berlin"), shelf) == {"report": "created"}
    (body,) = shelf.created
    assert (body["job_id"], body["declared_by"]) == ("report", NAME)
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


def test_a_job_that_events_start_follows_the_condition_in_the_code() -> None:
    app = Mainspring(NAME)

    @app.on_event("order.paid", if_="payload.total > 100")
    def ship(event: dict[str, Any]) -> None: ...

    shown = {"schedule_type": "EVENT", "cron_expression": None, "timezone": None, "overlap": "allow", "task": "ship"}
    same = job(**shown, job_id="ship", schedule_in_words=explain(Schedule(
        kind=ScheduleKind.EVENT, event="order.paid", condition="payload.total > 100")))  # fmt: skip
    assert ensure(app, JobShelf(same)) == {"ship": "unchanged"}
    shelf = JobShelf({**same, "schedule_in_words": "When order.paid is emitted, if payload.total > 99"})
    assert ensure(app, shelf) == {"ship": "updated"}
    assert shelf.changes == [{"schedule": {"event": "order.paid", "if": "payload.total > 100"}}]


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
    app = Mainspring(NAME)

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


def test_a_server_that_does_not_know_applications_is_told_about_and_asked_again() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(404, json=problem(404, "no_such_route"))

    async def scenario() -> tuple[float | None, str | None]:
        async with AsyncClient("http://127.0.0.1:1", "t", transport=httpx.MockTransport(answer)) as client:
            schedules = Schedules(app_with(), ScheduleKeeper(client, app_with()), uuid4)
            return await schedules.step(), schedules._error

    pause, error = asyncio.run(scenario())
    assert pause == 60 and error is not None
    assert asked == ["PUT"], "nothing is created"


def test_a_version_is_the_same_in_every_worker_and_differs_with_its_schedules() -> None:
    def fingerprint(app: Mainspring) -> str:
        return ScheduleKeeper(None, app)._fingerprint  # type: ignore[arg-type]

    assert fingerprint(app_with(env={"A": "1", "B": "2"})) == fingerprint(app_with(env={"B": "2", "A": "1"}))
    assert len({fingerprint(app) for app in (app_with(), app_with("0 6 * * *"), app_with(queue="q"))}) == 3


def test_each_refused_schedule_is_one_line_and_the_others_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Mainspring(NAME)
    for name in ("good", "bad", "worse"):
        app.cron("@daily", job_id=name)(app.task(f"task.{name}")(lambda: None))

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            return httpx.Response(200, json={"application": NAME, "number": 1, "current": True})
        body = json.loads(request.content)
        if body["job_id"] == "good":
            return httpx.Response(201, json={"job_id": "good"})
        return httpx.Response(422, json=problem(422, "invalid_input", detail=f"no {body['job_id']}", field="queue"))

    async def scenario() -> tuple[float | None, float | None]:
        async with AsyncClient("http://127.0.0.1:1", "t", transport=httpx.MockTransport(answer)) as client:
            schedules = Schedules(app, ScheduleKeeper(client, app), uuid4)
            return await schedules.step(), await schedules.step()

    lines: list[dict[str, Any]] = []

    def note(event: str, **fields: Any) -> None:
        lines.append({"event": event, **fields})

    monkeypatch.setattr(roles.schedules, "log", SimpleNamespace(info=note, warning=note, error=note))
    assert asyncio.run(scenario()) == (10, 10)
    refused = [line for line in lines if line["event"] == "schedule refused"]
    assert [(line["schedule"], line["reason"]) for line in refused] == [
        ("bad", "queue: no bad."), ("worse", "queue: no worse."),
    ]  # fmt: skip
    assert all(line["function"].startswith(__name__) for line in refused)
    assert [line["created"] for line in lines if "created" in line] == [["good"]]


def test_a_server_that_is_away_is_asked_again_and_a_worker_that_leaves_asks_no_more() -> None:
    app = app_with()

    async def scenario() -> None:
        refusing = httpx.MockTransport(lambda _: httpx.Response(503, json=problem(503, "unavailable")))
        async with AsyncClient("http://127.0.0.1:1", "t", transport=refusing, patience=0) as client:
            schedules = Schedules(app, ScheduleKeeper(client, app), uuid4)
            pauses = [await schedules.step() for _ in range(8)]
            assert pauses == sorted(pauses) and pauses[-1] == 2.0  # type: ignore[type-var]
            assert await Schedules(app, ScheduleKeeper(client, app), lambda: None).step() is None

    asyncio.run(scenario())


def test_a_defect_here_is_logged_and_costs_the_worker_nothing() -> None:
    app = app_with()

    def defect(_: httpx.Request) -> httpx.Response:
        raise RuntimeError("a defect")

    async def scenario() -> float | None:
        async with AsyncClient("http://127.0.0.1:1", "t", transport=httpx.MockTransport(defect)) as client:
            return await Schedules(app, ScheduleKeeper(client, app), uuid4).step()

    assert asyncio.run(scenario()) == 60
