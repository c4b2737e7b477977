"""A submitter creates jobs, and changes its own ones only. Every job and run names the token that created it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.api.app import app_without_a_server
from mainspring.api.handlers import permissions_of
from mainspring.operations.access.permissions import SUBMITTER
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.operations.firing import fire_due
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio

STEPS = {"steps": [{"name": "a", "task": "noop"}]}


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made


@pytest.fixture
async def two(tenants: Tenants) -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
    """The clients of two submitters, `one` and `other`."""
    found = []
    for name in ("one", "other"):
        answer = await tenants.operator.post("/v1/tokens", json={"role": "submitter", "name": name})
        assert answer.status_code == 201, answer.text
        found.append(await tenants.client(answer.json()["token"]))
    return found[0], found[1]


async def made(client: httpx.AsyncClient, path: str, body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


def test_the_operations_of_a_submitter_that_change_something() -> None:
    permissions = permissions_of(app_without_a_server())
    reading = {operation for operation, roles in permissions.items() if "viewer" in roles}
    assert {operation for operation, roles in permissions.items() if SUBMITTER in roles} - reading == {
        "approvals.approve", "approvals.reject", "events.emit", "events.emit_batch",
        "jobs.cancel", "jobs.create", "jobs.create_batch", "jobs.pause", "jobs.resume", "jobs.run_now", "jobs.update",
        "runs.cancel", "sources.take", "workflow_runs.cancel", "workflows.cancel", "workflows.create",
        "workflows.pause", "workflows.resume", "workflows.run_now", "workflows.update",
    }  # fmt: skip


# Each change of a job or workflow that a submitter may make of its own.
CHANGES = (
    ("PATCH", "", {"name": "x"}), ("PUT", "", {"name": "x"}), ("POST", ":pause", None), ("POST", "/pause", None),
    ("POST", ":resume", None), ("POST", ":runNow", None), ("DELETE", "", None),
)  # fmt: skip


async def test_a_foreign_job_is_read_and_not_changed(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], tenants: Tenants, connection: asyncpg.Connection
) -> None:
    one, other = two
    for kind, job_id, body in (
        ("jobs", "mine", {"task": "noop", "job_id": "mine", "schedule": "@daily"}),
        ("workflows", "flow", {"workflow_id": "flow", **STEPS}),
    ):
        await made(one, f"/v1/{kind}", body)
        rows = await connection.fetch("select * from mainspring.jobs")
        assert (await other.get(f"/v1/{kind}/{job_id}")).status_code == 200
        for method, verb, change in CHANGES:
            for path in (f"/v1/{kind}", f"/{kind}") if kind == "jobs" else (f"/v1/{kind}",):
                refused = await other.request(method, f"{path}/{job_id}{verb}", json=change)
                found = problem(refused)
                assert (refused.status_code, found["code"]) == (403, "not_yours"), (method, verb, refused.text)
                assert "created by another token" in found["detail"]
        assert await connection.fetch("select * from mainspring.jobs") == rows, "nothing has changed"
        for method, verb, change in CHANGES:
            allowed = await one.request(method, f"/v1/{kind}/{job_id}{verb}", json=change)
            assert allowed.status_code < 300, (method, verb, allowed.text)
    # Jobs of others than tokens belong to no submitter, and operators change all of them.
    await connection.execute("update mainspring.jobs set created_by = null")
    assert (await one.post("/v1/jobs/mine:resume")).status_code == 403
    assert (await tenants.operator.post("/v1/jobs/mine:resume")).status_code == 200


async def test_a_job_that_has_fired_and_its_runs_belong_to_its_creator(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], api: httpx.AsyncClient
) -> None:
    one, other = two
    chosen = (await made(one, "/v1/jobs", {"task": "noop", "job_id": "chosen"}))["job_id"]
    ours = (await made(one, "/v1/jobs", {"task": "noop"}))["job_id"]
    run_id = (await one.get("/v1/jobs/chosen/runs")).json()[0]["run_id"]
    for path in (f"/v1/runs/{run_id}:cancel", f"/v1/runs/{ours}:cancel"):
        refused = await other.post(path)
        assert (refused.status_code, problem(refused)["code"]) == (403, "not_yours"), refused.text
    for job_id in (chosen, ours):
        for method, verb in (("DELETE", ""), ("POST", ":runNow"), ("PATCH", "")):
            refused = await other.request(method, f"/v1/jobs/{job_id}{verb}", json={} if method == "PATCH" else None)
            assert (refused.status_code, problem(refused)["code"]) == (403, "not_yours"), (method, refused.text)
    worker = HandWorker(api)
    await worker.report(*map(outcome, (await worker.hello(free=10)).runs))
    for job_id in (chosen, ours):  # the same for jobs whose runs have ended
        refused = await other.post(f"/v1/jobs/{job_id}:runNow")
        assert (refused.status_code, problem(refused)["code"]) == (403, "not_yours"), refused.text
        again = await made(one, f"/v1/jobs/{job_id}:runNow", None)
        assert (await other.post(f"/v1/runs/{again['run_id']}:cancel")).status_code == 403
        assert (await one.post(f"/v1/runs/{again['run_id']}:cancel")).status_code == 202


async def test_an_owner_cancels_the_runs_of_its_job_whoever_began_them_and_of_its_workflow(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], tenants: Tenants
) -> None:
    one, other = two
    await made(one, "/v1/jobs", {"task": "noop", "job_id": "mine", "schedule": "@daily"})
    run_id = (await made(tenants.operator, "/v1/jobs/mine:runNow", None))["run_id"]
    assert (await other.post(f"/v1/runs/{run_id}:cancel")).status_code == 403
    assert (await one.post(f"/v1/runs/{run_id}:cancel")).status_code == 202
    await made(one, "/v1/workflows", {"workflow_id": "flow", **STEPS})
    run_id = (await made(one, "/v1/workflows/flow:runNow", None))["run_id"]
    for path in (f"/v1/workflow-runs/{run_id}:cancel", f"/v1/runs/{run_id}:cancel"):
        assert (await other.post(path)).status_code == 403
    assert (await one.post(f"/v1/workflow-runs/{run_id}:cancel")).status_code == 202


async def test_a_unique_submission_changes_no_foreign_job(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], connection: asyncpg.Connection
) -> None:
    one, other = two
    for queue, when in (("now", {}), ("later", {"schedule_time": "2099-01-01T00:00:00Z"})):
        rule = {"by": ["queue"], "else": "replace"}
        body = {"task": "noop", "payload": {"by": "me"}, "queue": queue, "unique": rule, **when}
        await made(one, "/v1/jobs", body)
        foreign = {**body, "payload": {"by": "them"}}
        for path, given in (("/v1/jobs", foreign), ("/v1/jobs:batch", {"jobs": [foreign]})):
            refused = await other.post(path, json=given)
            assert (refused.status_code, problem(refused)["code"]) == (403, "not_yours"), refused.text
        kept = await made(other, "/v1/jobs", {**foreign, "unique": {"by": ["queue"], "else": "keep"}})
        assert kept["unique"] == "kept"
        assert (await made(one, "/v1/jobs", {**body, "payload": {"by": "again"}}))["unique"] == "replaced"
    payloads = "select payload::text from mainspring.runs union all select payload::text from mainspring.jobs"
    assert {row[0] for row in await connection.fetch(payloads)} == {'{"by":"again"}'}


async def test_jobs_and_runs_name_their_creator_and_lists_filter_by_it(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], tenants: Tenants, api: httpx.AsyncClient
) -> None:
    one, other = two
    await made(one, "/v1/jobs", {"task": "noop", "job_id": "daily", "schedule": "@daily"})
    await made(one, "/v1/jobs:batch", {"jobs": [{"task": "noop", "job_id": f"now-{n}"} for n in range(2)]})
    await made(other, "/v1/jobs", {"task": "noop", "job_id": "theirs", "concurrency": {"limit": 1}})
    await made(tenants.operator, "/v1/jobs/daily:runNow", None)

    async def listed(path: str, **filters: str) -> set[tuple[str, str]]:
        answer = await api.get(path, params=filters)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return {(each["job_id"], each["created_by"]["name"]) for each in found["jobs" if "jobs" in found else "runs"]}

    mine = {("daily", "one"), ("now-0", "one"), ("now-1", "one")}
    token_id = (await api.get("/v1/jobs/daily")).json()["created_by"]["id"]
    for name in ("one", token_id):
        for view in ("full", "row"):
            assert await listed("/v1/jobs", created_by=name, view=view) == {("daily", "one")}
            assert await listed("/v1/jobs", created_by=name, status="scheduled", view=view) == mine
            assert await listed("/v1/runs", created_by=name, view=view) == mine - {("daily", "one")}
    assert await listed("/v1/runs", created_by="other") == {("theirs", "other")}
    assert await listed("/v1/runs", created_by="nobody") == set()
    [by_hand] = (await api.get("/v1/jobs/daily/runs")).json()
    assert by_hand["created_by"]["name"] not in ("one", "other"), "a run by hand is of the token that asked for it"
    worker = HandWorker(api)
    await worker.report(*map(outcome, (await worker.hello(free=10)).runs))
    assert await listed("/v1/runs", created_by="one", status="success") == mine - {("daily", "one")}
    assert (await api.get("/v1/jobs/now-0")).json()["created_by"]["name"] == "one"


async def test_a_fire_has_the_creator_of_its_job(
    two: tuple[httpx.AsyncClient, httpx.AsyncClient], assembly: Assembly, connection: asyncpg.Connection
) -> None:
    one, other = two
    await made(one, "/v1/jobs", {"task": "noop", "job_id": "again", "schedule": "@daily"})
    await made(one, "/v1/jobs", {"task": "noop", "job_id": "once", "schedule_time": "2099-01-01T00:00:00Z"})
    await connection.execute("update mainspring.jobs set next_fire_at = clock_timestamp()")
    assert await fire_due(assembly, connection) == 2
    runs = (await other.get("/v1/runs", params={"created_by": "one"})).json()["runs"]
    assert sorted(run["job_id"] for run in runs) == ["again", "once"]
    for run in runs:
        assert (await other.post(f"/v1/runs/{run['run_id']}:cancel")).status_code == 403
        assert (await one.post(f"/v1/runs/{run['run_id']}:cancel")).status_code == 202
