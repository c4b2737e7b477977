"""FEATURES 4.2 to 4.4: jobs that depend on jobs, and jobs that fire after jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel.ids import TenantId
from mainspring.operations.dependencies import dependency_poller as poller_module
from mainspring.operations.dependencies.dependency_poller import DependencyPoller
from mainspring.roles.assembly import Assembly
from mainspring.store import dependencies
from tests.api.bookkeeping import problem
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

Answer = dict[str, Any]
REPORT = """{"job_id": "daily_report", "schedule": "0 0 * * *", "command": "python generate_report.py",
 "dependencies": ["data_ingestion"], "max_retries": 3, "timeout": 3600}"""


@pytest.fixture
async def dependency_poller(assembly: Assembly) -> AsyncIterator[DependencyPoller]:
    """The dependency poller of the server. It polls only when the test says so."""
    assembly.signals.waits._listeners.clear()
    yield dependency_poller_of(assembly)


def dependency_poller_of(assembly: Assembly) -> DependencyPoller:
    return next(task for task in assembly.periodic_tasks if isinstance(task, DependencyPoller))


async def make(api: httpx.AsyncClient, job_id: str, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": job_id, "job_id": job_id, "retries": 0, **fields})
    assert answer.status_code == 201, answer.text
    return job_id


async def refused(api: httpx.AsyncClient, body: Any) -> tuple[str, str, str]:
    found = problem(await api.post("/v1/jobs", json=body))
    return found["code"], found["field"], found["detail"]


async def state_of(api: httpx.AsyncClient, job_id: str) -> tuple[str, str | None]:
    """Status and reason of the newest run of a job."""
    run = (await api.get(f"/v1/jobs/{job_id}/runs")).json()[0]
    return run["status"], run["reason"]


async def due_together(connection: asyncpg.Connection, *job_ids: str) -> datetime:
    moment: datetime = await connection.fetchval("select clock_timestamp()")
    await connection.execute(
        "update mainspring.jobs set next_fire_at = $1 where job_id = any ($2)", moment, list(job_ids)
    )
    return moment


async def finish(worker: HandWorker, status: str = "SUCCESS", **fields: Any) -> str:
    """Claim one run, and end it. Returns its task."""
    [order] = await worker.claim()
    if status == "FAILED":
        fields = {"error": "no", **fields}
    await worker.report(outcome(order, status, **fields))
    return order.task


def worker_for(api: httpx.AsyncClient, *tasks: str) -> HandWorker:
    return HandWorker(api, tasks=tasks)


async def test_the_short_request_works_once_its_parent_exists(api: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    missing = problem(await api.post("/jobs", content=REPORT, headers=headers))
    assert (missing["code"], missing["field"]) == ("unknown_job", "dependencies")
    assert (await api.get("/v1/jobs/daily_report")).status_code == 404
    await make(api, "data_ingestion", schedule="0 0 * * *")
    answer = await api.post("/jobs", content=REPORT, headers=headers)
    assert (answer.status_code, answer.json()["job_id"]) == (201, "daily_report")
    job = (await api.get("/v1/jobs/daily_report")).json()
    assert (job["depends_on"], job["rule"], job["on_upstream_failure"]) == (["data_ingestion"], "all_success", "skip")


async def test_a_run_is_queued_in_the_transaction_that_ends_its_last_parent(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, dependency_poller: DependencyPoller
) -> None:
    await make(api, "a", schedule="@daily")
    await make(api, "b", schedule="@daily")
    await make(api, "c", schedule="@daily", depends_on=["a", "b"])
    await due_together(connection, "a", "b", "c")
    assert await fire_due(assembly, connection) == 3 - 1  # one waits
    await dependency_poller.run_once()
    assert await state_of(api, "c") == ("WAITING", "waiting for a and b")
    worker = worker_for(api, "a", "b", "c")
    assert await finish(worker) in "ab"
    assert (await state_of(api, "c"))[0] == "WAITING"
    assert await finish(worker) in "ab"
    assert (await state_of(api, "c"))[0] == "QUEUED"
    assert await finish(worker) == "c"
    assert await connection.fetchval("select count(*) from mainspring.job_waits") == 0


async def test_a_parent_that_begins_and_ends_while_its_dependant_is_polled_is_seen(
    api: httpx.AsyncClient,
    connection: asyncpg.Connection,
    dependency_poller: DependencyPoller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The poller has locked the live runs of the parent before this one began, and reads that it is alive."""
    await make(api, "a", schedule="manual")
    await make(api, "b", depends_on=["a"])
    worker = worker_for(api, "a", "b")
    reports: list[asyncio.Task[Any]] = []
    read = poller_module.parents_at_their_times

    async def read_meanwhile(*arguments: Any) -> Any:
        assert (await api.post("/v1/jobs/a:runNow")).status_code == 202
        [order] = await worker.claim()
        found = await read(*arguments)
        reports.append(asyncio.create_task(worker.report(outcome(order, "SUCCESS"))))
        blocked = (
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        while not reports[0].done() and not await connection.fetchval(blocked):
            await asyncio.sleep(0)
        return found

    monkeypatch.setattr(poller_module, "parents_at_their_times", read_meanwhile)
    await dependency_poller.run_once()
    await asyncio.gather(*reports)
    assert (await state_of(api, "b"))[0] == "QUEUED"
    assert await finish(worker) == "b"


@pytest.mark.parametrize(
    ("rule", "ends", "expected"),
    [
        ("all_success", ["FAILED"], ("SKIPPED", "upstream failed: a")),
        ("all_done", ["FAILED", "SUCCESS"], ("QUEUED", None)),
        ("one_success", ["SUCCESS"], ("QUEUED", None)),
        ("one_success", ["FAILED", "FAILED"], ("SKIPPED", "upstream failed: a")),
        ("one_failed", ["FAILED"], ("QUEUED", None)),
        ("one_failed", ["SUCCESS", "SUCCESS"], ("SKIPPED", "no upstream job failed")),
    ],
)
async def test_the_rule_decides(
    api: httpx.AsyncClient,
    dependency_poller: DependencyPoller,
    rule: str,
    ends: list[str],
    expected: tuple[str, str | None],
) -> None:
    await make(api, "a")
    await make(api, "b")
    await make(api, "c", depends_on=["a", "b"], rule=rule)
    await dependency_poller.run_once()
    for task, end in zip("ab", ends, strict=False):
        assert (await state_of(api, "c"))[0] == "WAITING"
        await finish(worker_for(api, task), end)
    status, reason = await state_of(api, "c")
    assert (status, reason if expected[1] else None) == expected


async def test_failures_travel_down_and_fail_those_that_ask_for_it(
    api: httpx.AsyncClient, dependency_poller: DependencyPoller
) -> None:
    await make(api, "a")
    await make(api, "b", depends_on=["a"])
    await make(api, "c", depends_on=["b"], on_upstream_failure="fail")
    await make(api, "d", depends_on=["c"])
    await make(api, "e", depends_on=["b"], rule="all_done")
    await dependency_poller.run_once()
    await finish(worker_for(api, "a"), "FAILED")
    assert await state_of(api, "b") == ("SKIPPED", "upstream failed: a")
    assert await state_of(api, "c") == ("FAILED", "upstream failed: a")
    assert await state_of(api, "d") == ("SKIPPED", "upstream failed: c")
    assert (await state_of(api, "e"))[0] == "QUEUED"
    assert [letter["job_id"] for letter in (await api.get("/v1/dead-letters")).json()["dead_letters"]] == ["a"]


async def test_without_a_run_for_the_same_time_the_first_success_since_the_last_fire_counts(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, dependency_poller: DependencyPoller
) -> None:
    await make(api, "a", schedule="manual")
    await make(api, "b", schedule="@daily", depends_on=["a"])
    worker = worker_for(api, "a", "b")
    await api.post("/v1/jobs/a:runNow")
    await finish(worker)
    await make_due(connection, "b")
    await fire_due(assembly, connection)
    await dependency_poller.run_once()
    assert (await state_of(api, "b"))[0] == "QUEUED"  # it has never fired before
    assert await finish(worker) == "b"
    await make_due(connection, "b")
    await fire_due(assembly, connection)
    await dependency_poller.run_once()
    assert await state_of(api, "b") == ("WAITING", "waiting for a")
    await api.post("/v1/jobs/a:runNow")
    await finish(worker, "FAILED")
    await dependency_poller.run_once()
    assert (await state_of(api, "b"))[0] == "WAITING"
    await api.post("/v1/jobs/a:runNow")
    assert await finish(worker) == "a"
    assert (await state_of(api, "b"))[0] == "QUEUED"


async def test_a_job_after_others_fires_when_each_has_succeeded_since_its_last_fire(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, dependency_poller: DependencyPoller
) -> None:
    await make(api, "a", schedule="manual")
    await make(api, "b", schedule="manual")
    await make(
        api, "c", schedule={"after": ["a", "b"]}, payload={"rows": {"$from": "a", "path": "n"}, "b": {"$from": "b"}}
    )
    job = (await api.get("/v1/jobs/c")).json()
    assert (job["schedule_type"], job["after"], job["status"]) == ("AFTER", ["a", "b"], "SCHEDULED")
    worker = worker_for(api, "a", "b", "c")

    async def run(task: str, status: str = "SUCCESS", **fields: Any) -> int:
        await api.post(f"/v1/jobs/{task}:runNow")
        assert await finish(worker, status, **fields) == task
        await fire_due(assembly, connection)
        await dependency_poller.run_once()
        return int(await connection.fetchval("select count(*) from mainspring.runs where job_id = 'c'"))

    assert await run("a", result={"n": 1}) == 0
    assert await run("b", "FAILED") == 0
    assert await run("a", result={"n": 2}) == 0
    assert await run("b", result=[3]) == 1
    [order] = await worker.claim()
    assert (order.task, msgspec.json.decode(order.payload)) == ("c", {"rows": 2, "b": [3]})
    await worker.report(outcome(order))
    assert await run("b") == 0
    assert await run("a", result={}) == 0
    assert await state_of(api, "c") == ("FAILED", 'there is no value for {"$from":"a","path":"n"}')
    assert (await api.get("/v1/jobs/c")).json()["status"] == "SCHEDULED"


async def test_a_paused_job_fires_after_its_parents_when_it_is_resumed(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, "a", schedule="manual")
    await make(api, "c", schedule={"after": ["a"]}, rule="all_done")
    await api.post("/v1/jobs/c:pause")
    await api.post("/v1/jobs/a:runNow")
    await finish(worker_for(api, "a"), "FAILED")
    assert await fire_due(assembly, connection) == 0
    await api.post("/v1/jobs/c:resume")
    assert await fire_due(assembly, connection) == 1


@pytest.mark.parametrize("how", ["delete", "cancel", "pause"])
async def test_a_run_whose_parent_does_not_come_ends_by_its_rule(
    api: httpx.AsyncClient,
    assembly: Assembly,
    connection: asyncpg.Connection,
    dependency_poller: DependencyPoller,
    how: str,
) -> None:
    await make(api, "a", schedule="@daily")
    await make(api, "b", schedule="@daily", depends_on=["a"])
    if how == "pause":  # the parent has missed the fire that the other one has had
        moment = await due_together(connection, "a", "b")
        await api.post("/v1/jobs/a:pause")
        await connection.execute(
            "update mainspring.jobs set schedule = jsonb_set(schedule::jsonb, '{cron}', $1) where job_id = 'a'",
            f'"{moment:%S %M %H} * * *"',
        )
        await connection.execute(
            "update mainspring.jobs set next_fire_at = date_trunc('second', next_fire_at) where job_id = 'b'"
        )
        await connection.execute(
            "update mainspring.missed_fires set first_at = date_trunc('second', first_at),"
            " last_at = date_trunc('second', last_at)"
        )
        expected = "upstream missed: a"
    else:
        await make_due(connection, "b")
        expected = "upstream deleted: a"
    if how == "cancel":
        await due_together(connection, "a", "b")
        expected = "upstream cancelled: a"
    await fire_due(assembly, connection)
    await dependency_poller.run_once()
    if how == "delete":
        assert await state_of(api, "b") == ("WAITING", "waiting for a")
        await api.delete("/v1/jobs/a")
        await dependency_poller.run_once()
    elif how == "cancel":
        run_id = (await api.get("/v1/jobs/a/runs")).json()[0]["run_id"]
        await api.post(f"/v1/runs/{run_id}:cancel")
    assert await state_of(api, "b") == ("SKIPPED", expected)


async def test_a_cancelled_run_waits_no_longer(
    api: httpx.AsyncClient, connection: asyncpg.Connection, dependency_poller: DependencyPoller
) -> None:
    await make(api, "a")
    await make(api, "b", depends_on=["a"])
    await dependency_poller.run_once()
    await api.delete("/v1/jobs/b")
    assert (await state_of(api, "b"))[0] == "CANCELLED"
    await finish(worker_for(api, "a"))
    dependency_poller._rounds = 29  # all runs that wait are looked at
    await dependency_poller.run_once()
    for table in ("job_waits", "job_edges"):
        assert await connection.fetchval(f"select count(*) from mainspring.{table}") == 0


async def test_a_batch_may_depend_on_itself_and_is_stored_whole_or_not_at_all(
    api: httpx.AsyncClient, connection: asyncpg.Connection, dependency_poller: DependencyPoller
) -> None:
    jobs = [{"task": "t", "job_id": "c", "depends_on": ["a"]}, {"task": "t", "job_id": "a"}]
    bad = problem(await api.post("/v1/jobs:batch", json=[*jobs, {"task": "t", "depends_on": ["x"]}]))
    assert bad["errors"][0]["field"] == "jobs[2].depends_on"
    assert await connection.fetchval("select count(*) from mainspring.runs") == 0
    answer = await api.post("/v1/jobs:batch", json=jobs)
    assert answer.status_code == 201, answer.text
    await dependency_poller.run_once()
    worker = worker_for(api, "t")
    await finish(worker)
    assert (await state_of(api, "c"))[0] == "QUEUED"


async def test_cycles_are_refused_and_spelled_out(api: httpx.AsyncClient) -> None:
    await make(api, "a", schedule="@daily")
    await make(api, "b", schedule="@daily", depends_on=["a"])
    await make(api, "c", schedule={"after": ["b"]})
    cycle = problem(await api.patch("/v1/jobs/a", json={"depends_on": ["c"]}))
    assert (cycle["code"], cycle["field"]) == ("cycle", "depends_on")
    assert "a > b > c > a" in cycle["detail"]
    assert (await api.get("/v1/jobs/a")).json()["depends_on"] == []
    own = problem(await api.patch("/v1/jobs/a", json={"schedule": {"after": ["a"]}}))
    assert (own["field"], "a > a" in own["detail"]) == ("schedule.after", True)
    taken_away: list[Answer] = [{"depends_on": None}, {"dependencies": []}]
    for change in taken_away:
        await api.patch("/v1/jobs/b", json={"depends_on": ["a"]})
        assert (await api.patch("/v1/jobs/b", json=change)).json()["depends_on"] == []
    assert (await api.patch("/v1/jobs/a", json={"depends_on": ["c"]})).status_code == 200


async def test_a_new_job_is_not_compared_with_all_levels_above_it(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing follows it, so it closes no cycle. A chain of 1,000 jobs that are made one by one would read half a
    million levels."""
    read: list[object] = []
    edges_above = dependencies.edges_above

    async def counted(connection: asyncpg.Connection, tenant: TenantId, jobs: Sequence[str]) -> list[tuple[str, str]]:
        read.append(jobs)
        return await edges_above(connection, tenant, jobs)

    monkeypatch.setattr(dependencies, "edges_above", counted)
    await make(api, "a", schedule="manual")
    for parent, child in (("a", "b"), ("b", "c"), ("c", "d")):
        await make(api, child, schedule={"after": [parent]})
    assert not read
    body = {"schedule": {"after": ["d"]}}
    assert problem(await api.patch("/v1/jobs/b", json=body))["code"] == "cycle" and read
    itself = {"task": "t", "job_id": "e", "schedule": {"after": ["e"]}}
    assert problem(await api.post("/v1/jobs", json=itself))["code"] in ("cycle", "unknown_job")
    assert problem(await api.post("/v1/jobs:validate", json=itself))["code"] == "cycle"


async def test_two_changes_at_once_do_not_close_a_cycle(api: httpx.AsyncClient) -> None:
    for job_id in "abcd":
        await make(api, job_id, schedule="@daily")
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    answers = await asyncio.gather(
        *(api.patch(f"/v1/jobs/{child}", json={"depends_on": [parent]}) for child, parent in pairs)
    )
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 422]


async def test_what_has_no_effect_or_contradicts_itself_is_refused(api: httpx.AsyncClient) -> None:
    await make(api, "a", schedule="@daily")
    job = {"task": "t"}
    for body, field in (
        ({"rule": "all_done"}, "rule"),
        ({"on_upstream_failure": "fail"}, "on_upstream_failure"),
        ({"depends_on": ["a"], "rule": "some"}, "rule"),
        ({"depends_on": ["a", "a"]}, "depends_on[1]"),
        ({"depends_on": ["a"], "dependencies": ["a"]}, "dependencies"),
        ({"depends_on": ["a"], "schedule": "manual"}, "depends_on"),
        ({"depends_on": ["a"], "schedule": {"after": ["a"]}}, "depends_on"),
        ({"schedule": {"after": []}}, "schedule.after"),
        ({"schedule": {"after": ["nobody"]}}, "schedule.after"),
        ({"schedule": {"after": ["a"]}, "on_upstream_failure": "fail"}, "on_upstream_failure"),
        ({"depends_on": ["a"], "payload": {"x": {"$from": "b"}}}, "payload.x.$from"),
        ({"depends_on": ["a"], "payload": {"x": {"$item": ""}}}, "payload.x"),
        ({"depends_on": ["a"], "unique": {"by": ["task"]}}, "unique"),
    ):
        assert (await refused(api, {**job, **body}))[1] == field, body
    await api.delete("/v1/jobs/a")
    assert await refused(api, {**job, "depends_on": ["a"]}) == ("unknown_job", "depends_on", "job 'a' was deleted")


async def test_more_dependants_than_a_statement_may_look_at_all_follow(
    api: httpx.AsyncClient,
    dependency_poller: DependencyPoller,
    connection: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seven runs wait for one that ends, and seven jobs fire after it, with three rows for each statement."""
    monkeypatch.setattr(dependencies, "MOST_ROWS", 3)
    parent = await make(api, "parent", schedule="0 0 1 1 *")
    waiting = [await make(api, f"waits{number}", depends_on=[parent]) for number in range(7)]
    after = [await make(api, f"after{number}", schedule={"after": [parent]}) for number in range(7)]
    await api.post(f"/v1/jobs/{parent}:runNow", json={})
    await dependency_poller.run_once()
    assert await connection.fetchval("select count(*) from mainspring.job_waits where looked") == 7
    assert await finish(worker_for(api, parent)) == parent
    assert {(await state_of(api, job))[0] for job in waiting} == {"WAITING"}
    assert await connection.fetchval("select count(*) from mainspring.job_waits where not looked") == 7
    due = "select count(*) from mainspring.jobs where job_id = any ($1) and next_fire_at is not null"
    assert await connection.fetchval(due, after) == 7
    await dependency_poller.run_once()
    assert {(await state_of(api, job))[0] for job in waiting} == {"QUEUED"}
    assert not await connection.fetchval("select count(*) from mainspring.job_waits")


async def test_a_run_by_hand_does_not_wait_and_its_answer_says_so(
    api: httpx.AsyncClient, dependency_poller: DependencyPoller
) -> None:
    await make(api, "a", schedule="0 0 1 1 *")
    await make(api, "b", schedule="0 0 1 1 *", depends_on=["a"])
    answers = [(await api.post(f"/v1/jobs/{job_id}:runNow", json={})).json() for job_id in ("a", "b")]
    assert [answer["does_not_wait_for"] for answer in answers] == [[], ["a"]]
    assert await dependency_poller.run_once() == 0
    assert (await state_of(api, "b"))[0] == "QUEUED"
