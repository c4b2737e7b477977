"""Schedules, calendars and limits in code become what the code says, at a server in the process of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from mainspring import AsyncClient, Conflict, InvalidInput, Mainspring
from mainspring.roles.assembly import Assembly
from mainspring.sdk.app.ensure_schedules import ensure_schedules
from mainspring.testing import run
from tests.conftest import TOKEN

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(assembly: Assembly) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", TOKEN, transport=transport, patience=0) as client:
        yield client


def reports() -> Mainspring:
    app = Mainspring("reports")
    berlin = app.calendar("berlin", holidays={"country": "DE", "subdivision": "BE"}, weekdays=["MON", "TUE"])
    app.limit("heavy", concurrency=3, rate="100/m")

    @app.cron("0 1 * * *", payload={"region": "us", "days": 7}, calendar=berlin)
    @app.cron("0 2 * * *")
    @app.task(queue="heavy")
    def report(region: str = "all", days: int = 1) -> None: ...

    report.schedule("0 3 * * *", region="eu", timezone="Europe/Berlin")
    report.schedule("15m", region="asia/tokyo")
    report.schedule(timedelta(hours=1), region="x", job_id="hourly")
    report.options(overlap="allow").schedule("FREQ=MONTHLY;BYDAY=-1FR", "monthly")
    return app


async def test_a_task_has_several_schedules_each_with_its_payload(server: AsyncClient) -> None:
    ensured = await ensure_schedules(server, reports())
    assert ensured.refused == {}
    found = {job.job_id: job async for job in server.all_jobs(declared_by="reports")}
    said = {job_id: (job.schedule_type, job.payload or {}, job.timezone) for job_id, job in found.items()}
    assert said == {
        "report": ("CRON", {}, "UTC"),
        "report.us.7": ("CRON", {"region": "us", "days": 7}, "UTC"),
        "report.eu": ("CRON", {"region": "eu"}, "Europe/Berlin"),
        "report.asia-tokyo": ("INTERVAL", {"region": "asia/tokyo"}, None),
        "hourly": ("INTERVAL", {"region": "x"}, None),
        "report.monthly": ("RRULE", {"region": "monthly"}, "UTC"),
    }
    assert found["report.monthly"].overlap == "allow" and found["report.us.7"].calendar == "berlin"
    again = await ensure_schedules(server, reports())
    assert {key: done for key, done in again.done.items() if done != "unchanged"} == {}


async def test_calendars_and_limits_are_stored_as_the_schedules_are(server: AsyncClient) -> None:
    first = await ensure_schedules(server, reports())
    assert (first.done["calendar berlin"], first.done["queue heavy"]) == ("created", "created")
    calendar, queue = await server.calendar("berlin"), await server.queue("heavy")
    assert calendar.weekdays == ["MON", "TUE"] and queue.limits is not None
    assert (queue.limits.concurrency, queue.limits.rate) == (3, "100/m")
    await server.set_queue_limits("heavy", concurrency=50, max_depth=9)
    app = reports()
    app.calendars.clear()
    app.calendar("berlin", weekdays=["MON"])
    second = await ensure_schedules(server, app)
    assert (second.done["calendar berlin"], second.done["queue heavy"]) == ("updated", "updated")
    queue = await server.queue("heavy")
    assert queue.limits is not None
    assert (queue.limits.concurrency, queue.limits.max_depth) == (3, 9), "what the code does not set stays"
    assert (await server.calendar("berlin")).weekdays == ["MON"]


async def test_a_setting_that_is_refused_keeps_no_schedule_from_being_created(server: AsyncClient) -> None:
    app = Mainspring("refused")
    app.limit("heavy", concurrency=-1)  # the server alone knows the bounds
    app.cron("@daily")(_daily)
    ensured = await ensure_schedules(server, app)
    assert ensured.done == {"_daily": "created"} and "concurrency" in ensured.refused["queue heavy"]


def _daily() -> None: ...


def test_mistakes_are_told_when_the_module_is_imported() -> None:
    app = Mainspring("wrong")
    task = app.task("t")(lambda region="x": None)
    for wrong, words in (
        (lambda: task.schedule("0 25 * * *", region="a"), "Bad hour"),
        (lambda: task.schedule("@daily", regoin="a"), "Did you mean region?"),
        (lambda: app.cron("@daily", payload={"regoin": 1})(task), "t has no parameter regoin"),
        (lambda: [task.schedule("@daily", region="a"), task.schedule("@hourly", region="a")], "'t.a' already exists"),
        (lambda: app.calendar("c", weekday=["MON"]), "Did you mean 'weekdays'?"),
        (lambda: app.limit("q"), "says nothing"),
        (lambda: app.task("d", delay="5 min")(lambda: None), "is not a duration"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()


def test_the_box_has_the_declared_calendars() -> None:
    with run(reports(), ignore=["concurrency", "rate_limit"]) as box:
        assert box.client.job("report.us.7").calendar == "berlin"


async def test_a_submission_whose_id_is_taken_keeps_or_replaces_the_job(server: AsyncClient) -> None:
    async def submit(cron: str, **options: Any) -> str | None:
        return (await server.submit(task="t", job_id="nightly", cron=cron, **options)).unique

    assert await submit("0 1 * * *", priority="high") is None
    with pytest.raises(Conflict):
        await submit("0 2 * * *")
    assert await submit("0 2 * * *", if_exists="keep") == "kept"
    assert (await server.job("nightly")).cron_expression == "0 1 * * *"
    assert await submit("0 3 * * *", if_exists="replace") == "replaced"
    job = await server.job("nightly")
    assert (job.cron_expression, job.priority, job.version) == ("0 3 * * *", "high", 2)
    for if_exists in ("keep", "replace"):
        made = await server.submit(task="t", job_id=f"new-{if_exists}", cron="@daily", if_exists=if_exists)
        assert made.unique is None, "it did not exist"
    with pytest.raises(InvalidInput, match="Give job_id="):
        await server.submit(task="t", if_exists="keep")
    with pytest.raises(InvalidInput, match='Expected "replace" or "keep"'):
        await submit("@daily", if_exists="ignore")


async def test_a_task_submits_with_if_exists_and_debounces_with_its_own_delay(server: AsyncClient) -> None:
    app = Mainspring("debounce")

    @app.task(delay="30s", unique={"by": ["task"], "else": "later", "for": "5m"})
    def index() -> None: ...

    with app.speaking_to(None, server):  # type: ignore[arg-type]
        first = await index.submit_async()
        second = await index.submit_async()
        assert (second.job_id, second.unique) == (first.job_id, "later")
        assert (await server.job(first.job_id)).schedule_type == "FUTURE"
        at_once = await index.options(unique=False).submit_async()
        assert (await server.job(at_once.job_id)).schedule_type == "FUTURE", "a delay of the task"
        cron = await index.submit_async(cron="@daily", job_id="daily")
        again = await index.submit_async(cron="@hourly", job_id="daily", if_exists="replace")
        assert (cron.job_id, again.unique) == ("daily", "replaced")
        assert (await server.job("daily")).cron_expression == "0 * * * *"


async def test_a_workflow_made_by_hand_is_taken_over_only_if_the_code_says_so(server: AsyncClient) -> None:
    steps = [{"name": "only", "command": ["echo", "yaml"]}]
    await server.create_workflow({"workflow_id": "nightly", "steps": steps})

    def declared(if_exists: Any, command: str = "python") -> Mainspring:
        app = Mainspring("flows")
        app.workflow("nightly", if_exists=if_exists).add("only", command=["echo", command])
        return app

    async def stored() -> tuple[Any, str | None]:
        view = await server.workflow("nightly")
        return view.steps[0].command, view.declared_by

    refused = await ensure_schedules(server, declared(None))
    assert "that no application declares, and it differs in steps" in refused.refused["nightly"]
    assert "if_exists='replace'" in refused.refused["nightly"] and refused.done == {}
    assert await stored() == (["echo", "yaml"], None)
    assert (await ensure_schedules(server, declared("keep"))).done == {"nightly": "kept"}
    assert await stored() == (["echo", "yaml"], None)
    assert (await ensure_schedules(server, declared(None, "yaml"))).done == {"nightly": "updated"}, "it says the same"
    await server.update_workflow("nightly", declared_by=None)
    assert (await ensure_schedules(server, declared("replace"))).done == {"nightly": "updated"}
    assert await stored() == (["echo", "python"], "flows")
    assert (await ensure_schedules(server, declared(None, "newer"))).done == {"nightly": "updated"}, "it is its own"
