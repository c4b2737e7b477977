"""Schedules in code belong to their application: found when no longer declared, paused, resumed, never another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from mainspring import AsyncClient, Mainspring
from mainspring.domain.errors import Forbidden
from mainspring.domain.worker_state import WorkerState
from mainspring.roles.assembly import Assembly
from mainspring.roles.schedules import Schedules
from mainspring.sdk.app.ensure_schedules import Ensured, ScheduleKeeper
from mainspring.store import pages
from tests.conftest import TOKEN
from tests.operations.firing import fire_due, make_due
from tests.store.rows import a_worker

pytestmark = pytest.mark.anyio

REASON = "no longer declared"


class Deployments:
    """Deploys versions of applications: each is an application, as its module creates it, and a worker of it."""

    def __init__(self, client: AsyncClient, connection: asyncpg.Connection, api: httpx.AsyncClient) -> None:
        self.client = client
        self.connection = connection
        self.api = api

    async def start(self, app: Mainspring, **options: Any) -> tuple[UUID, Ensured]:
        """A worker of the application starts. Returns its id."""
        worker_id = await a_worker(self.connection)
        return worker_id, await self.declare(app, worker_id, **options)

    async def declare(self, app: Mainspring, worker_id: UUID | None, **options: Any) -> Ensured:
        return await ScheduleKeeper(self.client, app, **options).ensure(worker_id)

    async def run(self, app: Mainspring, **options: Any) -> Ensured:
        """A worker starts, declares its schedules, and stops."""
        worker_id, ensured = await self.start(app, **options)
        await self.stop(worker_id)
        return ensured

    async def stop(self, worker_id: UUID, state: WorkerState = WorkerState.STOPPED) -> None:
        await self.connection.execute(
            "update mainspring.workers set state = $2 where worker_id = $1", worker_id, int(state)
        )

    async def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.api.get(f"/v1/jobs/{job_id}")).json()
        return found

    async def seen(self, job_id: str) -> tuple[str, str | None, str | None]:
        """status, pause_reason, declared_by"""
        job = await self.job(job_id)
        return job["status"], job["pause_reason"], job["declared_by"]

    async def post(self, path: str) -> None:
        answer = await self.api.post(path)
        assert answer.is_success, answer.text


@pytest.fixture
async def deployments(
    assembly: Assembly, connection: asyncpg.Connection, api: httpx.AsyncClient
) -> AsyncIterator[Deployments]:
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", TOKEN, transport=transport) as client:
        yield Deployments(client, connection, api)


def app_of(*schedules: str, name: str | None = "billing", cron: str = "@daily", **options: Any) -> Mainspring:
    """An application with a daily task for each name. A name may have its own line: "report=0 6 * * *"."""
    app = Mainspring(name, **options)
    for text in schedules:
        task, _, line = text.partition("=")
        app.cron(line or cron)(app.task(task)(lambda: None))
    return app


def elsewhere(app: Mainspring) -> Mainspring:
    """The same as if its file lay on another machine."""
    app._creator = {"__file__": f"/srv/{uuid4()}/app.py"}
    return app


async def test_a_schedule_that_is_no_longer_declared_is_reported_with_the_time_and_left_as_it_is(
    deployments: Deployments,
) -> None:
    await deployments.run(app_of("a", "b"))
    declared_at = await deployments.connection.fetchval("select last_at from mainspring.declarations")
    ensured = await deployments.run(app_of("a"))
    assert ensured.declaration is not None
    [left] = ensured.declaration.undeclared
    assert (left.job_id, left.status, left.pause_reason) == ("b", "SCHEDULED", None)
    assert left.declared_at == declared_at
    assert await deployments.seen("b") == ("SCHEDULED", None, "billing")


@pytest.mark.parametrize("how", ["option", "application"])
async def test_prune_pauses_it_and_declared_again_it_resumes(deployments: Deployments, how: str) -> None:
    prune = {"prune": True} if how == "option" else {}
    in_code = {"prune_schedules": True} if how == "application" else {}
    await deployments.run(app_of("a", "b", **in_code), **prune)
    ensured = await deployments.run(app_of("a", **in_code), **prune)
    assert ensured.declaration is not None and ensured.declaration.pruned == ["b"]
    assert await deployments.seen("b") == ("PAUSED", REASON, "billing")
    assert (await deployments.job("b"))["next_fire_at"] is None
    again = await deployments.run(app_of("a", "b", **in_code), **prune)
    assert again.done == {"a": "unchanged", "b": "resumed"}
    assert await deployments.seen("b") == ("SCHEDULED", None, "billing")
    assert (await deployments.job("b"))["next_fire_at"] is not None


async def test_the_last_schedule_of_an_application_is_found_too(deployments: Deployments) -> None:
    await deployments.run(app_of("a"))
    await deployments.run(app_of(), prune=True)
    assert await deployments.seen("a") == ("PAUSED", REASON, "billing")


async def test_an_application_without_schedules_leaves_no_trace(deployments: Deployments) -> None:
    app = app_of()
    assert await Schedules(app, ScheduleKeeper(deployments.client, app), uuid4).step() is None
    assert not await deployments.connection.fetchval("select count(*) from mainspring.declarations")
    assert not await deployments.connection.fetchval("select count(*) from mainspring.declaring_workers")


async def test_the_fires_of_the_time_between_are_missed_as_with_every_resume(
    assembly: Assembly, deployments: Deployments
) -> None:
    every = "* * * * * *"  # every second
    await deployments.run(app_of("a", f"b={every}"))
    await deployments.run(app_of("a"), prune=True)
    await deployments.connection.execute(
        "update mainspring.jobs set paused_from = date_trunc('second', clock_timestamp()) - interval '1 hour' "
        "where job_id = 'b'"
    )
    await deployments.run(app_of("a", f"b={every}"))
    ranges = (await deployments.api.get("/v1/jobs/b/missed")).json()
    missed = max(ranges, key=lambda one: one["count"])  # what was due when the job was pruned is a range of its own
    assert missed["reason"] == "paused"
    assert 3600 <= missed["count"] <= 3700
    await make_due(deployments.connection, "b")
    assert await fire_due(assembly, deployments.connection) == 1


async def test_a_persons_pause_is_neither_relabelled_nor_resumed(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "b"))
    await deployments.post("/v1/jobs/b:pause")
    before = await deployments.job("b")
    ensured = await deployments.run(app_of("a"), prune=True)
    assert ensured.declaration is not None and ensured.declaration.pruned == []
    assert [one.job_id for one in ensured.declaration.undeclared] == ["b"]
    await deployments.run(app_of("a", "b"), prune=True)
    assert await deployments.job("b") == before
    assert before["status"] == "PAUSED" and before["pause_reason"] is None


async def test_a_person_who_pauses_a_pruned_job_keeps_it_paused(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "b"))
    await deployments.run(app_of("a"), prune=True)
    held_back = await deployments.connection.fetchval("select paused_from from mainspring.jobs where job_id = 'b'")
    await deployments.post("/v1/jobs/b:pause")
    assert await deployments.seen("b") == ("PAUSED", None, "billing")
    assert held_back == await deployments.connection.fetchval(
        "select paused_from from mainspring.jobs where job_id = 'b'"
    )
    await deployments.run(app_of("a", "b"))
    assert await deployments.seen("b") == ("PAUSED", None, "billing")


async def test_a_pause_by_a_server_that_does_not_know_reasons_is_a_persons(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "b"))
    await deployments.run(app_of("a"), prune=True)
    for status in (1, 2):  # an old server resumes it, and then pauses it
        await deployments.connection.execute(
            "update mainspring.jobs set status = $1, version = version + 1 where job_id = 'b'", status
        )
    await deployments.run(app_of("a", "b"))
    assert await deployments.seen("b") == ("PAUSED", None, "billing")


async def test_a_person_who_resumes_a_pruned_job_takes_it_over(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "b"))
    await deployments.run(app_of("a"), prune=True)
    await deployments.post("/v1/jobs/b:resume")
    assert await deployments.seen("b") == ("SCHEDULED", None, None)
    ensured = await deployments.run(app_of("a"), prune=True)
    assert ensured.declaration is not None and ensured.declaration.undeclared == []
    assert await deployments.seen("b") == ("SCHEDULED", None, None)
    assert (await deployments.run(app_of("a", "b"))).done["b"] == "updated", "declared again, it is the application's"
    assert await deployments.seen("b") == ("SCHEDULED", None, "billing")


async def test_a_change_of_a_pruned_job_keeps_it_pruned(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "b"))
    await deployments.run(app_of("a"), prune=True)
    assert (await deployments.api.patch("/v1/jobs/b", json={"priority": "high"})).is_success
    assert await deployments.seen("b") == ("PAUSED", REASON, "billing")


async def test_two_applications_never_prune_each_other(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "b"))
    await deployments.run(app_of("c", name="shipping"), prune=True)
    await deployments.run(app_of("a"))
    await deployments.run(app_of("d", name="shipping"), prune=True)
    assert await deployments.seen("b") == ("SCHEDULED", None, "billing")
    assert await deployments.seen("c") == ("PAUSED", REASON, "shipping")


async def test_applications_whose_modules_have_the_same_name_never_prune_each_other(deployments: Deployments) -> None:
    """Two folders may each have a tasks.py. Nothing but the name is common, so nothing is paused."""
    first, second = elsewhere(app_of("a", "b", name=None)), elsewhere(app_of("c", name=None))
    assert first.name == second.name == __name__
    running, _ = await deployments.start(first, prune=True)
    ensured = await deployments.run(second, prune=True)
    assert ensured.declaration is not None and ensured.declaration.pruned == []
    assert {one.job_id: one.own for one in ensured.declaration.undeclared} == {"a": False, "b": False}
    await deployments.stop(running)
    await deployments.run(elsewhere(app_of("d", name=None)), prune=True)
    assert {(await deployments.seen(job_id))[0] for job_id in "abcd"} == {"SCHEDULED"}
    named = await deployments.run(elsewhere(app_of("e", name=__name__)), prune=True)
    assert named.declaration is not None and named.declaration.pruned == [], "it was the name of a module before"


async def test_a_default_name_is_enough_with_a_schedule_in_common_or_the_same_file(deployments: Deployments) -> None:
    await deployments.run(elsewhere(app_of("a", "b", name=None)))
    await deployments.run(elsewhere(app_of("a", name=None)), prune=True)
    assert (await deployments.seen("b"))[0] == "PAUSED"
    await deployments.run(app_of("x", name=None))
    await deployments.run(app_of("y", name=None), prune=True)
    assert (await deployments.seen("x"))[0] == "PAUSED"


async def test_an_old_worker_that_starts_late_changes_nothing(deployments: Deployments) -> None:
    old, new = app_of("a", "b", cron="0 1 * * *"), app_of("a", "c", cron="0 2 * * *")
    await deployments.start(old, prune=True)
    await deployments.start(new, prune=True)
    before = [await deployments.job(job_id) for job_id in "abc"]
    assert [job["status"] for job in before] == ["SCHEDULED", "PAUSED", "SCHEDULED"]
    for app in (old, old):
        _, ensured = await deployments.start(app, prune=True)
        assert ensured.superseded and not ensured.done
    assert [await deployments.job(job_id) for job_id in "abc"] == before


@pytest.mark.parametrize("end", [WorkerState.STOPPED, WorkerState.LOST, WorkerState.DRAINING])
async def test_a_version_that_is_deployed_again_counts_when_the_newer_one_is_gone(
    deployments: Deployments, end: WorkerState
) -> None:
    old, new = app_of("a", "b", cron="0 1 * * *"), app_of("a", "c", cron="0 2 * * *")
    await deployments.run(old)
    newer, _ = await deployments.start(new, prune=True)
    back, ensured = await deployments.start(old, prune=True)
    assert ensured.superseded
    await deployments.stop(newer, end)
    ensured = await deployments.declare(old, back, prune=True)
    assert ensured.done == {"a": "updated", "b": "resumed"}
    assert (await deployments.job("a"))["cron_expression"] == "0 1 * * *"
    assert await deployments.seen("c") == ("PAUSED", REASON, "billing")
    _, ensured = await deployments.start(new)
    assert ensured.done == {"a": "updated", "c": "resumed"}, "deployed once more, it is the newest"


async def test_a_worker_that_drains_changes_nothing(deployments: Deployments) -> None:
    old, new = app_of("a", "b"), app_of("a")
    await deployments.start(old)
    newer, _ = await deployments.start(new, prune=True)
    await deployments.stop(newer, WorkerState.DRAINING)
    _, ensured = await deployments.start(old)
    assert ensured.done["b"] == "resumed"
    assert (await deployments.declare(new, newer, prune=True)).superseded
    assert (await deployments.seen("b"))[0] == "SCHEDULED"


async def test_a_worker_that_is_not_registered_yet_counts_for_half_a_minute(deployments: Deployments) -> None:
    old, new = app_of("a", "b"), app_of("a")
    await deployments.run(old)
    await deployments.declare(new, uuid4())
    assert (await deployments.declare(old, uuid4())).superseded
    await deployments.connection.execute("update mainspring.declaring_workers set since = since - interval '1 minute'")
    assert not (await deployments.declare(old, uuid4())).superseded


async def test_workers_that_start_together_write_once(deployments: Deployments) -> None:
    app = app_of(*(f"job{number}" for number in range(20)))
    workers = [await a_worker(deployments.connection) for _ in range(6)]
    all_ensured = await asyncio.gather(*(deployments.declare(app, worker_id) for worker_id in workers))
    assert all(len(ensured.done) == 20 and not ensured.refused for ensured in all_ensured)
    created = [job_id for ensured in all_ensured for job_id, done in ensured.done.items() if done == "created"]
    assert sorted(created) == sorted(app.tasks)
    assert await deployments.connection.fetchval("select max(version) from mainspring.jobs") == 1
    assert await deployments.connection.fetchval("select count(*) from mainspring.declarations") == 1


async def test_an_unchanged_schedule_causes_no_write(deployments: Deployments) -> None:
    app = app_of("a", "b")
    worker_id, _ = await deployments.start(app, prune=True)
    tables = ("jobs", "declarations", "declaring_workers")
    rows = [await deployments.connection.fetch(f"select xmin, * from mainspring.{name}") for name in tables]
    await deployments.declare(app, worker_id, prune=True)
    assert [await deployments.connection.fetch(f"select xmin, * from mainspring.{name}") for name in tables] == rows


async def test_one_bad_schedule_does_not_keep_the_others_from_being_created(deployments: Deployments) -> None:
    taken = await deployments.api.post("/v1/jobs", json={"job_id": "b", "task": "once"})
    assert taken.status_code == 201
    ensured = await deployments.run(app_of("a", "b", "c"))
    assert ensured.done == {"a": "created", "c": "created"}
    assert list(ensured.refused) == ["b"]
    assert "b" in ensured.refused["b"]


async def test_a_renamed_function_is_a_new_job_and_the_old_one_is_pruned(deployments: Deployments) -> None:
    await deployments.run(app_of("report"))
    ensured = await deployments.run(app_of("daily_report"), prune=True)
    assert ensured.done == {"daily_report": "created"}
    assert (await deployments.seen("report"))[:2] == ("PAUSED", REASON)


async def test_a_schedule_moves_to_another_application(deployments: Deployments) -> None:
    """It is paused in between, if the old one is deployed first, and resumed by the new one."""
    await deployments.run(app_of("a", "x"))
    await deployments.run(app_of("a"), prune=True)
    ensured = await deployments.run(app_of("x", name="shipping"))
    assert ensured.done["x"] in ("updated", "resumed") and not ensured.refused
    assert await deployments.seen("x") == ("SCHEDULED", None, "shipping")
    await deployments.run(app_of("a", "b"), prune=True)
    assert await deployments.seen("x") == ("SCHEDULED", None, "shipping")


async def test_a_schedule_that_two_running_applications_declare_stays_with_the_first(deployments: Deployments) -> None:
    running, _ = await deployments.start(app_of("a", "x"))
    second = app_of("x", "y", name="shipping", cron="0 3 * * *")
    worker_id, ensured = await deployments.start(second)
    assert ensured.done == {"y": "created"}
    assert "the application billing declares it too" in ensured.refused["x"]
    assert (await deployments.job("x"))["cron_expression"] == "0 0 * * *"
    await deployments.stop(running)
    assert (await deployments.declare(second, worker_id)).done["x"] == "updated"
    assert await deployments.seen("x") == ("SCHEDULED", None, "shipping")


async def test_code_wins_when_a_worker_starts_and_a_cancelled_job_stays_cancelled(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "b"))
    await deployments.api.patch("/v1/jobs/a", json={"cron": "0 5 * * *", "priority": "high"})
    await deployments.api.delete("/v1/jobs/b")
    ensured = await deployments.run(app_of("a", "b"))
    assert ensured.done == {"a": "updated", "b": "left cancelled"}
    job = await deployments.job("a")
    assert (job["cron_expression"], job["priority"]) == ("0 0 * * *", "high"), "the code does not set the priority"
    ensured = await deployments.run(app_of("a"))
    assert ensured.declaration is not None and ensured.declaration.undeclared == [], "a cancelled job is not reported"


async def test_an_older_version_forgets_nothing_that_is_left_behind(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "first"))
    for number in range(15):
        await deployments.run(app_of("a", f"job{number}"), prune=True)
    kept = await deployments.connection.fetchval("select count(*) from mainspring.declarations")
    assert kept == 16, "each is the last that has a job which is still there"
    await deployments.connection.execute("delete from mainspring.jobs where job_id <> 'a'")
    await deployments.run(app_of("a", "more"))
    assert await deployments.connection.fetchval("select count(*) from mainspring.declarations") == 11


async def test_jobs_that_do_not_fit_into_one_answer_are_read_one_by_one(
    deployments: Deployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of(*(f"job{number:02}" for number in range(24)))
    assert set((await deployments.run(app)).done.values()) == {"created"}
    monkeypatch.setattr(pages, "PAGE_BYTES", 500)
    view = await ScheduleKeeper(deployments.client, app).declare(show_jobs=True)
    assert view is not None and view.unseen and len(view.jobs) + len(view.unseen) == 24
    assert set((await deployments.run(app)).done.values()) == {"unchanged"}


async def test_the_list_of_jobs_takes_the_application(deployments: Deployments) -> None:
    await deployments.run(app_of("a", "b"))
    await deployments.run(app_of("c", name="shipping"))
    await deployments.api.post("/v1/jobs", json={"job_id": "d", "task": "t", "cron": "@daily"})
    for name, found in {"billing": ["b", "a"], "shipping": ["c"], "nobody": []}.items():
        page = (await deployments.api.get("/v1/jobs", params={"declared_by": name})).json()
        assert sorted(job["job_id"] for job in page["jobs"]) == sorted(found)


async def test_a_job_that_runs_once_has_no_application(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/jobs", json={"task": "t", "declared_by": "billing"})
    assert (answer.status_code, answer.json()["field"]) == (422, "declared_by")
    made = await api.post("/v1/jobs", json={"job_id": "a", "task": "t", "cron": "@daily", "declared_by": "billing"})
    assert made.status_code == 201
    changed = await api.patch("/v1/jobs/a", json={"schedule": "manual"})
    assert changed.json()["declared_by"] is None, "a person made something else of it"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"job_ids": ["a", "a"], "fingerprint": "ab", "source": "ab"}, "job_ids"),
        ({"job_ids": ["a b"], "fingerprint": "ab", "source": "ab"}, "job_ids[0]"),
        ({"job_ids": ["a"], "fingerprint": "", "source": "ab"}, "fingerprint"),
        ({"job_ids": ["a"], "fingerprint": "ab", "source": "ab", "worker_id": "me"}, "worker_id"),
        ({"job_ids": ["a"], "fingerprint": "ab"}, "source"),
        ({"job_ids": ["a"] * 10_001, "fingerprint": "ab", "source": "ab"}, "job_ids"),
        ({"job_ids": ["a"], "fingerprint": "ab", "source": "ab", "prun": True}, "prun"),
    ],
)
async def test_a_bad_declaration_is_refused_by_field_and_stores_nothing(
    api: httpx.AsyncClient, connection: asyncpg.Connection, body: dict[str, Any], field: str
) -> None:
    answer = await api.put("/v1/applications/billing", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field
    assert (await api.put("/v1/applications/a%20b", json=body)).status_code == 422
    assert not await connection.fetchval("select count(*) from mainspring.declarations")


async def test_a_tenant_has_applications_of_its_own(assembly: Assembly, deployments: Deployments) -> None:
    made = (await deployments.api.post("/v1/tenants", json={"name": "acme"})).json()
    await deployments.run(app_of("a", "b"))
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", made["admin_token"]["token"], transport=transport) as client:
        ensured = await ScheduleKeeper(client, app_of("a"), prune=True).ensure()
        assert ensured.done == {"a": "created"}
        assert ensured.declaration is not None and ensured.declaration.undeclared == []
    assert await deployments.seen("b") == ("SCHEDULED", None, "billing")


async def test_a_workers_token_may_not_declare(assembly: Assembly, api: httpx.AsyncClient) -> None:
    token = (await api.post("/v1/tokens", json={"name": "w", "role": "worker"})).json()["token"]
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    async with AsyncClient("http://127.0.0.1:8700", token, transport=transport) as client:
        keeper = ScheduleKeeper(client, app_of("a"))
        with pytest.raises(Forbidden):
            await keeper.ensure()
        assert await Schedules(app_of("a"), keeper, uuid4).step() is None, "it says so and does not try again"


async def test_a_person_may_change_a_job_while_its_worker_runs(deployments: Deployments) -> None:
    """The worker repeats that it declares the schedule. It compares the job with the code only when it starts."""
    app = app_of("a")
    worker_id = await a_worker(deployments.connection)
    schedules = Schedules(app, ScheduleKeeper(deployments.client, app), lambda: worker_id)
    assert await schedules.step() == 60
    await deployments.api.patch("/v1/jobs/a", json={"cron": "0 5 * * *"})
    assert await schedules.step() == 60
    assert (await deployments.job("a"))["cron_expression"] == "0 5 * * *"


async def test_a_running_worker_takes_over_though_it_never_saw_the_newer_version(deployments: Deployments) -> None:
    """The newer one came and went between two steps of the older one, twice."""
    old, new = app_of("a", "b", cron="0 1 * * *"), app_of("a", cron="0 2 * * *")
    worker_id = await a_worker(deployments.connection)
    schedules = Schedules(old, ScheduleKeeper(deployments.client, old), lambda: worker_id)
    assert await schedules.step() == 60
    for _ in range(2):
        await deployments.run(new, prune=True)
        assert (await deployments.job("a"))["cron_expression"] == "0 2 * * *"
        assert await schedules.step() == 60
        assert (await deployments.job("a"))["cron_expression"] == "0 1 * * *"
        assert (await deployments.seen("b"))[0] == "SCHEDULED"


async def test_a_running_worker_takes_over_when_the_newer_version_is_gone(deployments: Deployments) -> None:
    old, new = app_of("a", "b"), app_of("a")
    worker_id = await a_worker(deployments.connection)
    schedules = Schedules(old, ScheduleKeeper(deployments.client, old), lambda: worker_id)
    assert await schedules.step() == 60
    newer, _ = await deployments.start(new, prune=True)
    assert await schedules.step() == 10
    assert (await deployments.seen("b"))[0] == "PAUSED"
    await deployments.stop(newer)
    assert await schedules.step() == 60
    assert (await deployments.seen("b"))[0] == "SCHEDULED"
