"""The application's decorators."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring import InvalidInput, Mainspring


def test_tasks_are_registered_under_their_names() -> None:
    app = Mainspring()

    @app.task
    def plain() -> None: ...

    @app.task("billing.charge", queue="heavy")
    async def charge() -> None: ...

    @app.task(priority="high")
    def unnamed() -> None: ...

    assert app.tasks == {"plain": plain, "billing.charge": charge, "unnamed": unnamed}
    assert (charge.queue, unnamed.priority) == ("heavy", "high")


def test_how_a_task_is_run_is_no_part_of_its_jobs() -> None:
    app = Mainspring()

    @app.task(executor="process", concurrency=2, queue="heavy")
    async def render(report: str) -> None: ...

    @app.task(concurrency=1)
    def one_at_a_time() -> None: ...

    assert (render.kind, render.executor, render.concurrency, render.is_async) == ("process", "process", 2, True)
    assert (one_at_a_time.kind, one_at_a_time.executor, one_at_a_time.concurrency) == ("thread", None, 1)
    assert render.options().fields(report="a") == {"queue": "heavy", "task": "render", "payload": {"report": "a"}}


@pytest.mark.parametrize("options", [{"executor": "thread"}, {"concurrency": 0}, {"concurrency": "2"}])
def test_a_way_to_run_that_there_is_not_is_refused_at_once(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Mainspring().task("x", **options)(lambda: None)


def test_an_option_that_there_is_not_is_refused_at_once() -> None:
    options: Any = {"retires": 3}
    with pytest.raises(ValueError, match=r"retires: not an option of a task\. The options are: "):
        Mainspring().task("x", **options)(lambda: None)


def test_a_task_may_have_limits_and_environment() -> None:
    app = Mainspring()
    task = app.task("x", executor="process", limits={"memory": "1GB"}, env={"A": "b"}, run_timeout="1h")(lambda: None)
    assert task.defaults == {"limits": {"memory": "1GB"}, "env": {"A": "b"}, "run_timeout": "1h"}


def test_the_advice_of_an_error_stands_below_it_in_a_traceback() -> None:
    task = Mainspring().task("x")(lambda: None)
    with pytest.raises(InvalidInput) as caught:
        task.submit(env={"A": "b"})
    assert caught.value.__notes__ == ["payload.env: use x.options(env=...) for options of the job"]


def test_cron_and_every_stand_over_task() -> None:
    app = Mainspring()

    @app.cron("0 9 * * MON-FRI", timezone="Europe/Berlin", overlap="allow")
    @app.task("daily.report", timeout="5m")
    def report() -> None: ...

    @app.every("10m", job_id="sweep.often")
    @app.task
    def sweep(depth: int = 1) -> None: ...

    assert report() is None
    assert [schedule.fields() for schedule in app.schedules] == [
        {
            "task": "daily.report",
            "payload": {},
            "timeout": "5m",
            "cron": "0 9 * * MON-FRI",
            "timezone": "Europe/Berlin",
            "overlap": "allow",
            "job_id": "daily.report",
        },
        {"task": "sweep", "payload": {}, "every": "10m", "job_id": "sweep.often"},
    ]


def test_its_queues_are_the_default_one_and_those_that_tasks_and_schedules_name() -> None:
    app = Mainspring()
    assert app.queues == ["default"]

    @app.task(queue="heavy")
    def crunch() -> None: ...

    @app.cron("@daily", queue="nightly")
    @app.task(queue="heavy")
    def report() -> None: ...

    assert app.queues == ["default", "heavy", "nightly"]


def test_a_schedule_over_a_plain_function_makes_it_a_task() -> None:
    app = Mainspring()

    @app.every("1h")
    def tidy() -> None: ...

    assert app.tasks == {"tidy": tidy}


def test_a_second_schedule_of_a_task_needs_an_id_of_its_own() -> None:
    app = Mainspring()

    def tidy() -> None: ...

    task = app.every("1h")(tidy)
    with pytest.raises(ValueError, match="job_id="):
        app.cron("@daily")(task)
    app.cron("@daily", job_id="tidy.daily")(task)
    assert [schedule.job_id for schedule in app.schedules] == ["tidy", "tidy.daily"]


def test_a_scheduled_task_must_be_callable_without_parameters() -> None:
    app = Mainspring()

    def charge(account: str) -> None: ...

    with pytest.raises(Exception, match="needs the parameter account"):
        app.every("1h")(charge)
    assert app.schedules == []


def test_an_application_without_a_server_adopts_its_workers() -> None:
    app, fixed = Mainspring(), Mainspring("http://127.0.0.1:1", "own")
    for one in (app, fixed):
        one.adopt("http://127.0.0.1:2", "lent")
    assert (app.client.connection.url, app.client.connection.token) == ("http://127.0.0.1:2", "lent")
    assert (fixed.client.connection.url, fixed.client.connection.token) == ("http://127.0.0.1:1", "own")


def test_submissions_are_patient_inside_a_worker_and_as_told_elsewhere() -> None:
    outside, inside, told = Mainspring(), Mainspring(), Mainspring(patience="1m")
    for app in (inside, told):
        app.adopt("http://127.0.0.1:8700", "t")
    assert [app.client.patience for app in (outside, inside, told)] == [None, 15.0, 60.0]

    async def async_patience(app: Mainspring) -> float | None:
        return app.async_client.patience

    assert [asyncio.run(async_patience(app)) for app in (outside, inside, told)] == [None, 15.0, 60.0]


def test_names_that_cannot_be_are_refused_at_once() -> None:
    app = Mainspring()

    def one() -> None: ...

    app.task("one")(one)
    with pytest.raises(ValueError, match="already"):
        app.task("one")(one)
    for reserved in ("shell", "http"):
        with pytest.raises(ValueError, match=f"but not .*{reserved}"):
            app.task(reserved)(one)
    with pytest.raises(ValueError, match="job_id="):
        app.every("1h")(app.task("with space")(one))
