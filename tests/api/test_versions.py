"""Changes with If-Match are made only to the version that they name."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.bookkeeping import problem

pytestmark = pytest.mark.anyio


async def version(api: httpx.AsyncClient, path: str) -> str:
    return (await api.get(path)).headers["ETag"]


async def changed(api: httpx.AsyncClient, method: str, path: str, tag: str, body: Any = None) -> httpx.Response:
    return await api.request(method, path, headers={"If-Match": tag}, json=body)


@pytest.mark.parametrize("noun", ["jobs", "workflows"])
async def test_verbs_of_a_job_and_a_workflow(api: httpx.AsyncClient, noun: str) -> None:
    body: dict[str, Any] = {"job_id": "j", "task": "noop", "schedule": "@daily"}
    if noun == "workflows":
        body = {"workflow_id": "j", "schedule": "@daily", "steps": [{"name": "a", "task": "noop"}]}
    assert (await api.post(f"/v1/{noun}", json=body)).status_code == 201
    path = f"/v1/{noun}/j"
    old = await version(api, path)
    assert (await changed(api, "POST", f"{path}:pause", old)).status_code == 200
    for method, verb in (("POST", ":pause"), ("POST", ":resume"), ("DELETE", "")):
        refused = await changed(api, method, path + verb, old)
        assert (refused.status_code, problem(refused)["code"]) == (412, "version_mismatch")
        assert problem(refused)["field"] == "If-Match"
    assert (await api.get(path)).json()["status"] == "PAUSED", "nothing was changed"
    wrong = await changed(api, "POST", f"{path}:resume", '"new"')
    assert (wrong.status_code, problem(wrong)["field"]) == (422, "If-Match")
    for method, verb in (("POST", ":resume"), ("DELETE", "")):
        answer = await changed(api, method, path + verb, await version(api, path))
        assert answer.status_code == 200, answer.text
    assert (await changed(api, "DELETE", path, "*")).status_code == 200


@pytest.mark.parametrize(
    ("path", "method", "rest", "body"),
    [
        ("/v1/queues/default", "PUT", "", {"concurrency": 2}),
        ("/v1/queues/default", "POST", ":pause", {}),
        ("/v1/queues/default", "POST", ":resume", {}),
        ("/v1/tenant/limits", "PUT", "", {"concurrency": 2}),
    ],
)
async def test_limits_and_pauses(api: httpx.AsyncClient, path: str, method: str, rest: str, body: Any) -> None:
    await api.post("/v1/jobs", json={"task": "noop"})
    first = await version(api, path)
    assert first == '"1"', "nothing was set"
    answer = await changed(api, method, path + rest, first, body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["ETag"] == await version(api, path) == f'"{answer.json()["version"]}"' != first
    refused = await changed(api, method, path + rest, first, body)
    assert (refused.status_code, problem(refused)["code"]) == (412, "version_mismatch")
    assert await version(api, path) == answer.headers["ETag"]


async def test_everything_is_paused_and_resumed_by_version(api: httpx.AsyncClient) -> None:
    first = await version(api, "/v1/tenant/limits")
    assert (await changed(api, "POST", "/v1/pause", first)).status_code == 200
    assert (await changed(api, "POST", "/v1/resume", first)).status_code == 412
    assert (await api.get("/v1/tenant/limits")).json()["paused"] is True
