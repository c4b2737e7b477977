"""FEATURES 1.2: the status of a job, the lists that match it, and the error of its last attempt."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from mainspring.upkeep.deadline_sweeper import DeadlineSweeper
from tests.operations.firing import fire_due, let_backoff_pass, make_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

STATUSES = ("SCHEDULED", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")


async def make(api: httpx.AsyncClient, job_id: str | None = None, **fields: Any) -> str:
    chosen = {} if job_id is None else {"job_id": job_id}
    made = await api.post("/v1/jobs", json={"task": "noop", **chosen, **fields})
    assert made.status_code == 201, made.text
    made_id: str = made.json()["job_id"]
    return made_id


async def job(api: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    answer = await api.get(f"/v1/jobs/{job_id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def listed(api: httpx.AsyncClient, query: str) -> list[str]:
    """The ids on all pages."""
    found: list[str] = []
    url: str | None = f"/v1/jobs?{query}"
    while url is not None:
        answer = await api.get(url)
        assert answer.status_code == 200, answer.text
        found += [one["job_id"] for one in answer.json()["jobs"]]
        link = answer.headers.get("link")
        url = link[1 : link.index(">")] if link else None
    return found


async def shows(api: httpx.AsyncClient, job_id: str, status: str) -> None:
    """The job has this status in all views, and is in the lists of this status only."""
    whole = await job(api, job_id)
    brief = (await api.get(f"/v1/jobs/{job_id}/status")).json()
    assert (whole["status"], brief["status"]) == (status, status)
    assert whole["error_message"] == brief["error_message"]
    assert (whole["latest_run"] or {}).get("run_id") == (brief["latest_run"] or {}).get("run_id")
    for other in STATUSES:
        page = (await api.get(f"/v1/jobs?status={other}")).json()["jobs"]
        [same] = [one for one in page if one["job_id"] == job_id] if other == status else [None]
        if same is None:
            assert job_id not in [one["job_id"] for one in page], f"it is {status}, and listed as {other}"
        else:
            for moving in ("latest_run", "updated_at"):
                same.pop(moving), whole.pop(moving)
            assert same == whole


@pytest.mark.parametrize("job_id", [None, "mine"])
@pytest.mark.parametrize("later", [False, True])
async def test_a_one_time_job_says_what_its_run_does(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection, job_id: str | None, later: bool
) -> None:
    worker = HandWorker(api)
    schedule: Any = {"at": "2020-01-01T00:00:00Z"} if later else "now"
    made = await make(api, job_id, schedule=schedule, labels={"team": "bi"}, owner="ada", queue="default", retries=1)
    await shows(api, made, "SCHEDULED")
    created_at = (await job(api, made))["created_at"]
    if later:
        await fire_due(assembly, connection)
        await shows(api, made, "SCHEDULED")
    [order] = await worker.claim()
    await shows(api, made, "RUNNING")
    await worker.report(outcome(order, "FAILED", error="first"))
    await shows(api, made, "SCHEDULED")
    assert (await job(api, made))["error_message"] == "first"
    await let_backoff_pass(connection)
    [order] = await worker.claim()
    await shows(api, made, "RUNNING")
    await worker.report(outcome(order, "FAILED", error="second"))
    await shows(api, made, "FAILED")
    failed = await job(api, made)
    assert (failed["error_message"], failed["latest_run"]["status"]) == ("second", "FAILED")
    assert (failed["created_at"], failed["latest_run"]["attempt_number"]) == (created_at, 2)
    for query in ("label=team:bi", "owner=ada", "queue=default", f"q={made[:4]}", "limit=1"):
        assert await listed(api, f"status=failed&{query}") == [made]
    for query in ("label=team:ops", "owner=bob", "queue=heavy", "q=nothing", "next_fire_after=2000-01-01T00:00:00Z"):
        assert await listed(api, f"status=failed&{query}") == []
    assert await listed(api, "") == []


async def test_a_repeated_one_time_job_says_what_the_repetition_does(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    jobs = [await make(api, job_id, retries=0, labels={"a": "b"}) for job_id in (None, "mine")]
    await worker.report(*(outcome(order, "FAILED", error="no") for order in await worker.claim(2)))
    for made in jobs:
        await shows(api, made, "FAILED")
        run_id = (await job(api, made))["latest_run"]["run_id"]
        assert (await api.post(f"/v1/runs/{run_id}:retry")).status_code == 202
        await shows(api, made, "SCHEDULED")
    orders = await worker.claim(2)
    for made in jobs:
        await shows(api, made, "RUNNING")
    await worker.report(*(outcome(order) for order in orders))
    for made in jobs:
        await shows(api, made, "COMPLETED")
        assert (await job(api, made))["error_message"] is None
    assert sorted(await listed(api, "status=completed&label=a:b&limit=1")) == sorted(jobs)


async def test_a_job_that_did_not_run_in_time_has_failed(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    expired = await make(api, expires_in="1h")
    await connection.execute("update mainspring.runs set expires_at = clock_timestamp()")
    missed = await make(api, schedule={"at": "2020-01-01T00:00:00Z"}, misfire={"policy": "skip"})
    await fire_due(assembly, connection)
    assert await DeadlineSweeper(assembly.store, assembly.signals).run_once() == 1
    await shows(api, expired, "FAILED")
    await shows(api, missed, "FAILED")
    assert (await job(api, expired))["error_message"] == "expired"
    assert (await job(api, missed))["error_message"] == "missed: it did not run within what its misfire policy allows"
    assert (await api.post(f"/v1/jobs/{missed}:runNow")).status_code == 202
    await shows(api, missed, "SCHEDULED")
    worker = HandWorker(api)
    await worker.report(*(outcome(order) for order in await worker.claim()))
    await shows(api, missed, "COMPLETED")


async def test_a_job_whose_run_is_being_stopped_is_cancelled(api: httpx.AsyncClient) -> None:
    made = await make(api)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await api.delete(f"/v1/jobs/{made}")
    await shows(api, made, "CANCELLED")
    await worker.report(outcome(order, "CANCELLED"))
    await shows(api, made, "CANCELLED")


async def test_a_run_that_was_skipped_beside_another_one_changes_nothing(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    made = await make(api, schedule={"at": "2099-01-01T00:00:00Z"})
    await api.post(f"/v1/jobs/{made}:runNow")
    await shows(api, made, "SCHEDULED")
    await make_due(connection, made)
    await fire_due(assembly, connection)  # its own run is skipped
    await shows(api, made, "SCHEDULED")
    worker = HandWorker(api)
    [order] = await worker.claim()
    await shows(api, made, "RUNNING")
    await worker.report(outcome(order))
    await shows(api, made, "COMPLETED")


async def test_a_recurring_job_carries_its_latest_run(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    for job_id in ("good", "bad", "new"):
        await make(api, job_id, schedule="@daily", retries=0)
    for job_id in ("good", "bad"):
        await make_due(connection, job_id)
        await fire_due(assembly, connection)
        [order] = await worker.claim()
        running = await job(api, job_id)
        assert (running["status"], running["latest_run"]["status"]) == ("SCHEDULED", "RUNNING")
        assert await listed(api, "latest_run=running") == [job_id]
        await worker.report(outcome(order, "SUCCESS" if job_id == "good" else "FAILED", error="no" * 2000))
    bad = await job(api, "bad")
    assert (bad["status"], bad["latest_run"]["status"], bad["error_message"]) == ("SCHEDULED", "FAILED", "no" * 2000)
    [in_list] = (await api.get("/v1/jobs?latest_run=failed")).json()["jobs"]
    assert in_list["error_message"] == "no" * 1000 + " [the rest is left out]"
    expected = {
        "latest_run=failed": ["bad"], "latest_run=FAILED": ["bad"], "latest_run=completed": ["good"],
        "latest_run=success,failed": ["bad", "good"], "latest_run=pending": [], "": ["new", "bad", "good"],
        "latest_run=failed&status=paused": [], "status=failed": [], "status=completed": [], "status=running": [],
    }  # fmt: skip
    assert {query: await listed(api, query) for query in expected} == expected


async def test_an_unknown_status_is_refused_with_the_known_ones(api: httpx.AsyncClient) -> None:
    for query, field in (
        ("jobs?status=done", "status"), ("jobs?latest_run=done", "latest_run"), ("runs?status=done", "status"),
    ):  # fmt: skip
        refused = await api.get(f"/v1/{query}")
        assert refused.status_code == 422
        problem = refused.json()
        [error] = problem.get("errors", [problem])
        assert error["field"] == field and "FAILED" in error["expected"] and "pending" in error["expected"]


async def test_lists_by_time(api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection) -> None:
    await make(api, "soon", schedule={"at": "2090-01-01T00:00:00Z"})
    await make(api, "late", schedule={"at": "2099-01-01T00:00:00Z"})
    await make(api, "past", schedule={"at": "2020-01-01T00:00:00Z"})
    await make(api, "now")
    made = await make(api)
    await fire_due(assembly, connection)
    moments = {job_id: (await job(api, job_id))["created_at"] for job_id in ("soon", "late", "past", "now", made)}
    assert await listed(api, "next_fire_after=2090-01-01T00:00:00Z") == ["late", "soon"]
    assert await listed(api, "next_fire_before=2099-01-01T00:00:00Z") == ["soon"]
    assert await listed(api, "next_fire_before=2099-01-01T00:00:00Z&status=scheduled,failed") == ["soon"]
    every = "status=scheduled,running,completed,failed"
    for job_id, moment in moments.items():
        others = {name for name, other in moments.items() if other < moment}
        assert set(await listed(api, f"{every}&created_before={moment}")) == others, job_id
        assert set(await listed(api, f"{every}&created_after={moment}&limit=1")) == set(moments) - others
    refused = await api.get("/v1/jobs?created_after=yesterday")
    assert refused.status_code == 422 and "created_after" in refused.text


async def test_runs_by_label_and_time(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, "past", schedule={"at": "2020-01-01T00:00:00Z"}, labels={"team": "bi"})
    await fire_due(assembly, connection)
    await make(api, "now", labels={"team": "ops"})
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order))

    async def runs(query: str) -> list[str]:
        answer = await api.get(f"/v1/runs?{query}")
        assert answer.status_code == 200, answer.text
        return [run["job_id"] for run in answer.json()["runs"]]

    created = {run["job_id"]: run["created_at"] for run in (await api.get("/v1/runs")).json()["runs"]}
    expected = {
        "label=team:bi": ["past"], "label=team=ops": ["now"], "label=team:x": [],
        "scheduled_before=2021-01-01T00:00:00Z": ["past"], "scheduled_after=2021-01-01T00:00:00Z": ["now"],
        "since=2021-01-01T00:00:00Z&scheduled_after=2019-01-01T00:00:00Z": ["now"],
        f"created_after={created['now']}": ["now"], f"created_before={created['now']}": ["past"],
        f"created_after={created['past']}": ["now", "past"], f"created_before={created['past']}": [],
    }  # fmt: skip
    assert {query: await runs(query) for query in expected} == expected


async def test_a_job_keeps_its_time_of_creation(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    jobs = [await make(api, job_id, schedule={"at": "2020-01-01T00:00:00Z"}) for job_id in (None, "mine")]
    before = [(await job(api, made))["created_at"] for made in jobs]
    await fire_due(assembly, connection)
    assert [(await job(api, made))["created_at"] for made in jobs] == before
    worker = HandWorker(api)
    await worker.report(*(outcome(order) for order in await worker.claim(2)))
    assert [(await job(api, made))["created_at"] for made in jobs] == before
