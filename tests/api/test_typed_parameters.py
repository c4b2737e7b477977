"""A payload that does not match the signature of its task is refused, once a worker has declared the signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring import Mainspring
from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from mainspring.sdk.tasks.declared import declared
from tests.api.bookkeeping import problem, rows
from tests.operations.hand_worker import HandWorker

pytestmark = pytest.mark.anyio

TASK = "report.generate"
GOOD = {"task": TASK, "payload": {"account": "a1"}}
BAD = {"task": TASK, "payload": {"account": 5}}


def report(account: str, limit: int = 10) -> None: ...


def renamed(customer: str) -> None: ...


def anything(**_payload: Any) -> None: ...


async def offer(api: httpx.AsyncClient, function: Callable[..., Any] = report, task: str = TASK) -> HandWorker:
    """A worker that has said hello with this function as the task."""
    app = Mainspring()
    app.task(task)(function)
    worker = HandWorker(api, tasks=[task, "shell"])
    worker.card = msgspec.structs.replace(worker.card, signatures=declared(app.tasks.values()))
    await worker.hello()
    return worker


async def test_a_payload_that_does_not_fit_is_refused_and_nothing_is_stored(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await offer(api)
    refused = problem(await api.post("/v1/jobs", json={"task": TASK, "payload": {"limit": 5}}))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "bad_payload", "payload.account")
    assert refused["detail"] == "report.generate needs the parameter account"
    assert refused["hint"] == "the task report.generate takes account and the optional limit"
    for schedule in ("now", "manual", {"every": "10m"}, "@daily"):
        assert problem(await api.post("/v1/jobs", json={**BAD, "schedule": schedule}))["code"] == "bad_payload"
    assert problem(await api.post("/v1/jobs", json={"job_type": TASK}))["field"] == "payload.account"
    assert {**await rows(connection), "workers": 0} == dict.fromkeys(await rows(connection), 0)
    assert (await api.post("/v1/jobs", json=GOOD)).status_code == 201


async def test_a_batch_is_refused_by_index(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await offer(api)
    refused = problem(await api.post("/v1/jobs:batch", json=[GOOD, BAD, GOOD, {"task": TASK}]))
    assert (refused["status"], refused["code"]) == (422, "invalid_batch")
    assert [(item["index"], item["field"], item["code"]) for item in refused["errors"]] == [
        (1, "jobs[1].payload.account", "bad_payload"),
        (3, "jobs[3].payload.account", "bad_payload"),
    ]
    assert {**await rows(connection), "workers": 0} == dict.fromkeys(await rows(connection), 0)
    assert (await api.post("/v1/jobs:batch", json=[GOOD, GOOD])).status_code == 201


async def test_a_task_that_nobody_has_declared_takes_anything(api: httpx.AsyncClient) -> None:
    assert (await api.post("/v1/jobs", json=BAD)).status_code == 201
    await offer(api)
    assert (await api.post("/v1/jobs", json={**BAD, "task": "another"})).status_code == 201
    assert (await api.post("/v1/jobs", json={"command": "echo", "payload": {"account": 5}})).status_code == 201


async def test_a_change_of_payload_or_task_is_checked_and_other_changes_are_not(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs", json={**BAD, "job_id": "old", "schedule": "manual"})
    await api.post("/v1/jobs", json={"task": "other", "job_id": "new", "schedule": "manual", "payload": {"a": 1}})
    await offer(api)
    assert (await api.patch("/v1/jobs/old", json={"priority": "high"})).status_code == 200
    refused = problem(await api.patch("/v1/jobs/old", json={"payload": {"account": []}}))
    assert (refused["status"], refused["code"], refused["field"]) == (422, "bad_payload", "payload.account")
    assert (await api.patch("/v1/jobs/old", json={"payload": {"account": "a2"}})).status_code == 200
    assert problem(await api.patch("/v1/jobs/new", json={"task": TASK}))["code"] == "bad_payload"
    assert (await api.patch("/v1/jobs/new", json={"task": TASK, "payload": {"account": "a"}})).status_code == 200


async def test_the_newest_worker_is_right(api: httpx.AsyncClient) -> None:
    await offer(api)
    await offer(api, renamed)
    assert problem(await api.post("/v1/jobs", json=GOOD))["field"] in ("payload.account", "payload.customer")
    assert (await api.post("/v1/jobs", json={"task": TASK, "payload": {"customer": "c"}})).status_code == 201
    await offer(api, anything)
    assert (await api.post("/v1/jobs", json=BAD)).status_code == 201


async def test_another_server_hears_of_it(api: httpx.AsyncClient, database_url: str, assembly: Assembly) -> None:
    other = await assemble(database_url, SystemClock())
    transport = httpx.ASGITransport(app=other.app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url=str(api.base_url), headers=api.headers) as elsewhere:
        task = next(task for task in other.periodic_tasks if task.name == "signature_book")
        assert await task.run_once() == 0
        await offer(api)
        assert (await elsewhere.post("/v1/jobs", json=BAD)).status_code == 201
        assert await task.run_once() == 1
        assert problem(await elsewhere.post("/v1/jobs", json=BAD))["code"] == "bad_payload"
        await offer(api, anything)
        assert await task.run_once() == 1
        assert (await elsewhere.post("/v1/jobs", json=BAD)).status_code == 201
    await other.close()


async def test_a_server_that_starts_knows_what_was_declared_before(api: httpx.AsyncClient, database_url: str) -> None:
    await offer(api)
    other = await assemble(database_url, SystemClock())
    transport = httpx.ASGITransport(app=other.app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url=str(api.base_url), headers=api.headers) as elsewhere:
        assert problem(await elsewhere.post("/v1/jobs", json=BAD))["code"] == "bad_payload"
    await other.close()


async def test_saying_the_same_again_writes_nothing(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    await offer(api)
    before = await connection.fetch("select ctid, xmin, * from mainspring.task_signatures")
    await offer(api)
    assert await connection.fetch("select ctid, xmin, * from mainspring.task_signatures") == before


@pytest.mark.parametrize("schema", [b"5", b'"text"', b"[]", b"null"])
async def test_a_signature_that_is_none_is_not_kept(
    api: httpx.AsyncClient, connection: asyncpg.Connection, schema: bytes
) -> None:
    worker = HandWorker(api, tasks=[TASK])
    worker.card = msgspec.structs.replace(worker.card, signatures={TASK: msgspec.Raw(schema)})
    await worker.hello()
    assert await connection.fetchval("select count(*) from mainspring.task_signatures") == 0
    assert (await api.post("/v1/jobs", json=BAD)).status_code == 201


async def test_a_worker_declares_only_what_it_offers(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    worker = await offer(api)
    worker.card = msgspec.structs.replace(worker.card, tasks=["noop"])
    await worker.hello()
    assert await connection.fetch("select task from mainspring.task_signatures") == [(TASK,)]


async def test_tasks_are_listed_with_what_they_take(api: httpx.AsyncClient) -> None:
    assert (await api.get("/v1/tasks")).json() == {"tasks": []}
    await offer(api)
    worker = await offer(api)
    assert (await api.get("/v1/tasks")).json()["tasks"] == [
        {
            "task": TASK,
            "queues": ["default"],
            "workers": 2,
            "payload_schema": {
                "title": TASK,
                "type": "object",
                "properties": {"account": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["account"],
                "additionalProperties": False,
            },
            "options": None,
            "left_out": False,
        },
        {
            "task": "shell",
            "queues": ["default"],
            "workers": 2,
            "payload_schema": None,
            "options": None,
            "left_out": False,
        },
    ]
    await worker.exchange(stopped=True)
    assert [item["workers"] for item in (await api.get("/v1/tasks")).json()["tasks"]] == [1, 1]
