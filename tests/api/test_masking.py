"""Viewers see no secrets of headers and environments, wherever a job, a run or a workflow is shown."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainspring.api.app import app_without_a_server
from mainspring.api.handlers import routed_handlers
from mainspring.api.masking import parts_of
from mainspring.domain.secret_names import MASK
from mainspring.operations.access.permissions import VIEWER
from mainspring.roles.assembly import Assembly
from mainspring.wire.jobs import JobView
from mainspring.wire.tasks import TaskView
from mainspring.wire.workflows import StepIn, WorkflowRunView
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import several_tenants

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t-value"
ENV = {"REGION": "eu", "API_TOKEN": SECRET, "DATABASE_URL": f"postgres://app:{SECRET}@db/shop"}
CALL = {"url": "https://example.com/hook", "headers": {"authorization": f"Bearer {SECRET}", "X-Team": "billing"}}
STEPS: list[dict[str, Any]] = [
    {"name": "by-env", "command": "true", "env": ENV},
    {"name": "by-call", "http": CALL},
    {"name": "by-payload", "task": "http", "payload": CALL},
]


@pytest.fixture
async def viewer(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    async with several_tenants(assembly, api) as tenants:
        yield await tenants.client((await tenants.token(role="viewer"))["token"])


async def made(api: httpx.AsyncClient, path: str, body: Any) -> Any:
    answer = await api.post(path, json=body)
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()


async def scene(api: httpx.AsyncClient) -> dict[str, str]:
    """Jobs, runs, a dead letter and a workflow with secrets, by the names that paths give them."""
    worker = HandWorker(api, tasks=("greet", "shell", "http"))
    worker.card.signatures["greet"] = json_raw({"type": "object", "x-mainspring-options": {"env": ENV}})
    await worker.hello()
    await made(api, "/v1/jobs", {"job_id": "dead", "task": "http", "payload": CALL, "retries": 0})
    [order] = await worker.claim()
    await worker.report(outcome(order, "FAILED", error="no"))
    await made(api, "/v1/jobs", {"job_id": "cron", "command": "true", "env": ENV, "schedule": "0 3 * * *"})
    await made(api, "/v1/jobs", {"job_id": "call", "http": CALL, "schedule": "0 3 * * *"})
    await made(api, "/v1/jobs", {"job_id": "by-payload", "task": "http", "payload": CALL, "schedule": "0 3 * * *"})
    await made(api, "/v1/jobs", {"job_id": "one", "http": CALL})
    await made(api, "/v1/jobs", {"job_id": "two", "task": "greet", "payload": {}})
    await made(api, "/v1/workflows", {"workflow_id": "flow", "steps": STEPS})
    flow_run = (await made(api, "/v1/workflows/flow:runNow", {}))["run_id"]
    run_id = (await made(api, "/v1/jobs/cron:runNow", {}))["run_id"]
    return {"flow": flow_run, "run": run_id, "dead": str(order.run_id), "worker": str(worker.worker_id)}


def json_raw(value: Any) -> Any:
    import msgspec

    return msgspec.Raw(msgspec.json.encode(value))


def paths(ids: dict[str, str]) -> list[str]:
    """What a viewer can read, with every object of the scene in place of a parameter of the path."""
    names = ["dead", "cron", "call", "by-payload", "one", "two", "flow", "default", *ids.values()]
    found = []
    for route, handler in routed_handlers(app_without_a_server()):
        if handler.method != "GET" or VIEWER not in handler.roles or "stream" in handler.operation:
            continue
        gap = re.search(r"\{[^}]*\}", route.path)
        one = [route.path] if gap is None else [route.path.replace(gap[0], name, 1) for name in names]
        found += [re.sub(r"\{[^}]*\}", "by-env", path) for path in one]
    return found


@pytest.mark.slow
async def test_no_answer_to_a_viewer_has_a_secret(api: httpx.AsyncClient, viewer: httpx.AsyncClient) -> None:
    ids = await scene(api)
    shown_to_admins, answered = set(), 0
    for path in paths(ids):
        for client in (api, viewer):
            answer = await client.get(path, params={"q": "e", "cursor": ""} if path.endswith("search") else None)
            if client is viewer:
                assert SECRET not in answer.text, path
                answered += answer.status_code == 200
            elif SECRET in answer.text:
                shown_to_admins.add(path)
    assert answered > 50
    assert shown_to_admins >= {
        "/v1/jobs", "/jobs", "/v1/jobs/cron", "/v1/jobs/call", "/v1/jobs/by-payload", "/v1/jobs/one", "/v1/jobs/two",
        "/v1/workflows/flow", "/v1/tasks", "/v1/dead-letters", f"/v1/dead-letters/{ids['dead']}",
        f"/v1/runs/{ids['dead']}", "/v1/jobs/dead/runs", "/v1/jobs/dead/status", "/v1/runs",
    }, "admins see the values there, so the test above has something to find"  # fmt: skip


async def test_a_viewer_sees_the_names_and_what_is_no_secret(api: httpx.AsyncClient, viewer: httpx.AsyncClient) -> None:
    await scene(api)
    cron = (await viewer.get("/v1/jobs/cron")).json()
    assert cron["env"] == {"REGION": "eu", "API_TOKEN": MASK, "DATABASE_URL": MASK}
    headers = {"authorization": MASK, "X-Team": "billing"}
    assert (await viewer.get("/v1/jobs/call")).json()["http"]["headers"] == headers
    assert (await viewer.get("/v1/jobs/by-payload")).json()["payload"] == {**CALL, "headers": headers}
    steps = {step["name"]: step for step in (await viewer.get("/v1/workflows/flow")).json()["steps"]}
    assert steps["by-env"]["env"] == cron["env"]
    assert steps["by-call"]["http"]["headers"] == steps["by-payload"]["payload"]["headers"] == headers
    [offered] = [task for task in (await viewer.get("/v1/tasks")).json()["tasks"] if task["task"] == "greet"]
    assert offered["options"]["env"] == cron["env"]
    # What the viewer was shown has changed nothing for others.
    assert (await api.get("/v1/jobs/cron")).json()["env"] == ENV
    assert (await api.get("/v1/workflows/flow")).json()["steps"][1]["http"]["headers"] == CALL["headers"]
    [offered] = [task for task in (await api.get("/v1/tasks")).json()["tasks"] if task["task"] == "greet"]
    assert offered["options"]["env"] == ENV


async def test_a_mask_is_refused_wherever_a_job_is_written(api: httpx.AsyncClient, viewer: httpx.AsyncClient) -> None:
    await scene(api)
    env = {"command": "true", "env": {"API_TOKEN": MASK}}
    call = {"http": {**CALL, "headers": {"Authorization": MASK}}}
    payload = {"task": "http", "payload": call["http"]}
    before = [(await api.get(f"/v1/jobs/{job}")).json() for job in ("cron", "call", "by-payload")]
    for body, field in ((env, "env.API_TOKEN"), (call, "http.headers.Authorization"), (payload, None)):
        step = {"steps": [{"name": "a", **body}]}
        for answer in (
            await api.post("/v1/jobs", json=body),
            await api.post("/v1/jobs:validate", json=body),
            await viewer.post("/v1/jobs:validate", json=body),
            await api.post("/v1/jobs:batch", json=[body]),
            await api.post("/v1/workflows", json=step),
            await api.post("/v1/workflows:validate", json=step),
            await api.patch("/v1/workflows/flow", json=step),
            await api.put("/v1/workflows/flow", json=step),
        ):
            problem = answer.json()
            assert answer.status_code == 422, answer.text
            assert "viewers see it in place of a secret" in problem["detail"]
            assert field is None or problem["field"].endswith(field)
            assert "leave the field out" in problem["hint"]
    for job, change in (("cron", {"env": env["env"]}), ("call", call), ("by-payload", {"payload": call["http"]})):
        for send in (api.patch, api.put):
            answer = await send(f"/v1/jobs/{job}", json=change)
            assert (answer.status_code, answer.json()["code"]) == (422, "masked_value"), answer.text
    assert before == [(await api.get(f"/v1/jobs/{job}")).json() for job in ("cron", "call", "by-payload")]
    answer = await api.post("/v1/jobs/by-payload:runNow", json={"payload": call["http"]})
    assert answer.status_code == 422, answer.text


def test_the_fields_with_secrets_follow_from_the_structs() -> None:
    assert {name for name, _ in parts_of(JobView)} >= {"env", "http", "payload"}
    assert {name for name, _ in parts_of(StepIn)} >= {"env", "http", "payload"}
    assert "options" in dict(parts_of(TaskView)) and "steps" not in dict(parts_of(WorkflowRunView))
    assert json.dumps(MASK) == '"***"'
