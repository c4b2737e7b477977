"""The application's decorators."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring import InvalidInput, Mainspring, MainspringError
from mainspring.domain.intake.request import define
from mainspring.sdk.client.job_fields import job_request
from mainspring.wire.jobs import JobRequest


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

    @app.task(executor="process", worker_concurrency=2, queue="heavy")
    async def render(report: str) -> None: ...

    @app.task(worker_concurrency=1)
    def one_at_a_time() -> None: ...

    assert (render.kind, render.executor, render.worker_concurrency, render.is_async) == ("process", "process", 2, True)
    assert (one_at_a_time.kind, one_at_a_time.executor, one_at_a_time.worker_concurrency) == ("thread", None, 1)
    assert render.options().fields(report="a") == {"queue": "heavy", "task": "render", "payload": {"report": "a"}}


@pytest.mark.parametrize("options", [{"executor": "thread"}, {"worker_concurrency": 0}, {"worker_concurrency": "2"}])
def test_a_way_to_run_that_there_is_not_is_refused_at_once(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Mainspring().task("x", **options)(lambda: None)


def test_an_option_that_there_is_not_is_refused_at_once() -> None:
    for options, words in (
        ({"retires": 3}, r"retires: not an option of a task\. Did you mean 'retries'\?"),
        ({"max_attempts": 3}, r"Did you mean retry=\{'max_attempts': \.\.\.\}\?"),
        ({"colour": "red"}, r"colour: not an option of a task\. The options are: "),
        ({"retry": {"max_attemps": 3}}, r"retry\.max_attemps: unknown field .* Did you mean 'max_attempts'\?"),
    ):
        with pytest.raises(ValueError, match=words):
            Mainspring().task("x", **cast(Any, options))(lambda: None)


def test_a_weekday_in_full_is_answered_with_its_short_name() -> None:
    def report() -> None: ...

    with pytest.raises(ValueError, match=r"'MONDAY' is not one of 0 to 7 or SUN to SAT; did you mean MON\?"):
        Mainspring().cron("0 9 * * MONDAY")(report)


def test_a_task_may_have_limits_and_environment() -> None:
    app = Mainspring()
    task = app.task("x", executor="process", limits={"memory": "1GB"}, env={"A": "b"}, run_timeout="1h")(lambda: None)
    assert task.defaults == {"limits": {"memory": "1GB"}, "env": {"A": "b"}, "run_timeout": "1h"}


def test_the_advice_of_an_error_is_part_of_its_text() -> None:
    task = Mainspring().task("x")(lambda: None)
    with pytest.raises(InvalidInput) as caught:
        task.submit(env={"A": "b"})
    assert str(caught.value) == "payload.env: x has no parameter env. Use x.options(env=...) for options of the job."


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


def test_events_start_a_task_and_are_its_parameter() -> None:
    app = Mainspring()

    @app.on_event("order.paid", if_="payload.total > 100", debounce="30s", payload={"region": "eu"}, job_id="ship")
    @app.task
    def ship(region: str, event: dict[str, Any]) -> None: ...

    @app.on_event("order.paid", batch={"size": 100, "wait": "10s"})
    def count(events: list[dict[str, Any]]) -> None: ...

    one, many = (job_request(schedule.fields()) for schedule in app.schedules)
    assert one == {
        "task": "ship", "job_id": "ship", "payload": {"region": "eu"},
        "schedule": {"event": "order.paid", "if": "payload.total > 100", "debounce": "30s"},
    }  # fmt: skip
    assert many["schedule"] == {"event": "order.paid", "batch": {"size": 100, "wait": "10s"}}
    told = ship.options(schedule={"event": "order.paid", "if": "key == '1'"}).fields(region="us")
    assert (told["schedule"], told["payload"]) == ({"event": "order.paid", "if": "key == '1'"}, {"region": "us"})
    with pytest.raises(InvalidInput, match="needs the parameter event"):
        ship.options(delay="1m").fields(region="us")
    with pytest.raises(InvalidInput, match=r"count has no parameter event, .* def count\(event\)"):
        count.options(event="order.paid").fields()
    with pytest.raises(ValueError, match=r"@app.on_event\('a', if_='payload.x >'\) over .*ship: if: "):
        app.on_event("a", if_="payload.x >", job_id="bad", payload={"region": "eu"})(ship)


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


# fmt: off
BAD_SCHEDULES = [
    (lambda app: app.cron("61 * * * *"), "@app.cron('61 * * * *')", "is not a cron expression: Bad minute"),
    (lambda app: app.cron("0 9 * *"), "@app.cron('0 9 * *')", "has 4 field(s)"),
    (lambda app: app.cron("0 0 30 2 *"), "@app.cron('0 0 30 2 *')", "never fires"),
    (lambda app: app.cron(""), "@app.cron('')", "cron"),
    (lambda app: app.cron(None), "@app.cron(None)", "does not say when"),
    (lambda app: app.cron(5), "@app.cron(5)", "schedule.cron: Expected a text, got a whole number"),
    (lambda app: app.cron("@daily", timezone="Mars/Base"), "@app.cron('@daily', timezone='Mars/Base')",
     "timezone: 'Mars/Base' is not a known time zone"),
    (lambda app: app.cron("@daily", overlap="never"), "@app.cron('@daily')", "'never' is not an overlap rule"),
    (lambda app: app.cron("@daily", misfire={"policy": "x"}), "@app.cron('@daily')", "misfire.policy: 'x'"),
    (lambda app: app.cron("@daily", misfire={"polic": "all"}), "@app.cron('@daily')", "Did you mean 'policy'?"),
    (lambda app: app.cron("@daily", timezon="UTC"), "@app.cron('@daily')", "Did you mean 'timezone'?"),
    (lambda app: app.cron("@daily", at="2030-01-01T00:00:00Z"), "@app.cron('@daily')", "both say when"),
    (lambda app: app.cron("@daily", job_id="a b"), "@app.cron('@daily')", "is not a valid job id"),
    (lambda app: app.on_event("a"), "@app.on_event('a')", "has no parameter event, with which events start it"),
    (lambda app: app.on_event(""), "@app.on_event('')", "event"),
    (lambda app: app.on_event(None), "@app.on_event(None)", "does not say when"),
    (lambda app: app.cron("@daily", if_="true"), "@app.cron('@daily', if_='true')", "if needs event"),
    (lambda app: app.every("soon"), "@app.every('soon')", "every: 'soon' is not a duration"),
    (lambda app: app.every(0), "@app.every(0)", "every: 0 is out of range"),
]
# fmt: on


@pytest.mark.parametrize(("decorate", "line", "wrong"), BAD_SCHEDULES, ids=[wrong for *_, wrong in BAD_SCHEDULES])
def test_a_bad_schedule_fails_at_import_with_its_line_and_the_functions_name(
    decorate: Any, line: str, wrong: str
) -> None:
    app = Mainspring()

    def report() -> None: ...

    with pytest.raises(ValueError) as caught:
        decorate(app)(report)
    text = str(caught.value)
    assert text.startswith(f"{line} over {__name__}.{report.__qualname__}: "), text
    assert wrong in text
    assert app.schedules == []


def test_an_error_of_a_schedule_shows_no_environment() -> None:
    app = Mainspring()
    with pytest.raises(ValueError) as caught:
        app.cron("61 * * * *", env={"TOKEN": "secret"})(app.task("x", executor="process")(lambda: None))
    assert "secret" not in str(caught.value)


@settings(max_examples=200)
@given(st.text(alphabet="0123456789*/,-@ LW#?MONdaily", max_size=20))
def test_a_line_is_accepted_at_import_if_and_only_if_a_server_accepts_it(line: str) -> None:
    def accepted_by_server() -> bool:
        request = msgspec.convert({"task": "t", "schedule": {"cron": line}}, JobRequest)
        try:
            define(request, datetime.now(UTC))
        except MainspringError:
            return False
        return True

    def accepted_at_import() -> bool:
        app = Mainspring()
        try:
            app.cron(line)(app.task("t")(lambda: None))
        except ValueError:
            return False
        return True

    assert accepted_at_import() == accepted_by_server()


@pytest.mark.parametrize("how", ["bare", "named"])
def test_task_above_a_schedule_says_to_swap_them(how: str) -> None:
    app = Mainspring()

    @app.cron("@daily")
    def report() -> None: ...

    with pytest.raises(TypeError, match=r"report: @app.task stands above its schedule. Swap them"):
        app.task(report) if how == "bare" else app.task("reports.daily", timeout="5m")(report)  # type: ignore[arg-type]
    other = app.task("other")(lambda: None)
    with pytest.raises(TypeError, match="is a task already"):
        app.task(other)


def test_an_application_is_named_after_its_module_unless_it_has_a_name() -> None:
    class Derived(Mainspring):
        def __init__(self) -> None:
            super().__init__()

    assert (Mainspring().name, Mainspring().named) == (__name__, False)
    assert Derived().name == __name__
    assert (Mainspring("billing").name, Mainspring("billing").named) == ("billing", True)
    with pytest.raises(ValueError, match=r"Write Mainspring\(url=...\)"):
        Mainspring("http://127.0.0.1:8700")
    for wrong in ("", "a b", "a/b", "x" * 201, 5):
        with pytest.raises(ValueError, match="is not the name of an application"):
            Mainspring(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "name"),
    [(["jobs/nightly tasks.py"], "nightly-tasks"), (["-m", "jobs.run"], "jobs.run"), (["-m", "jobs"], "jobs"),
     (["-c", "from mainspring import Mainspring; print(Mainspring().name)"], "__main__")],
)  # fmt: skip
def test_the_application_of_a_script_is_named_after_the_file_or_the_package(
    tmp_path: Path, start: list[str], name: str
) -> None:
    package = tmp_path / "jobs"
    package.mkdir()
    for file in ("__init__.py", "__main__.py", "run.py", "nightly tasks.py"):
        code = "" if file == "__init__.py" else "from mainspring import Mainspring; print(Mainspring().name)"
        (package / file).write_text(code)
    done = subprocess.run([sys.executable, *start], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == name


def test_an_application_without_a_server_adopts_its_workers() -> None:
    app, fixed = Mainspring(), Mainspring(url="http://127.0.0.1:1", token="own")
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


def test_a_schedule_that_does_not_say_when_is_refused() -> None:
    def report() -> None: ...

    app = Mainspring()
    with pytest.raises(TypeError, match="report: the schedule does not say when"):
        app.cron(report)  # type: ignore[arg-type]  # @app.cron without parentheses


@pytest.mark.parametrize("name", ["payload", "task"])
def test_a_payload_is_not_an_option_of_a_submission_and_is_never_dropped(name: str) -> None:
    app = Mainspring()
    options: Any = {name: {"region": "eu"}}

    def charge(region: str = "us") -> None: ...

    with pytest.raises(InvalidInput, match="is not an option"):
        app.task("other")(charge).options(**options).fields()
    if name == "payload":  # of a schedule it is
        app.cron("0 9 * * *", **options)(charge)
        assert app.schedules[-1].fields()["payload"] == {"region": "eu"}
    else:
        with pytest.raises(ValueError, match=f"over .*charge: {name} is not an option"):
            app.cron("0 9 * * *", **options)(charge)


def test_a_rate_of_a_queue_is_read_when_it_is_declared() -> None:
    with pytest.raises(ValueError, match=r"app.limit\('mails'\): '10' is not a rate. Write a number of starts"):
        Mainspring().limit("mails", rate="10")
