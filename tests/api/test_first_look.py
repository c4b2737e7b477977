from __future__ import annotations

import httpx
import pytest

pytestmark = pytest.mark.anyio


async def test_a_job_is_created_and_found_by_its_id(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/jobs", json={"task": "hello", "payload": {"name": "ada"}})
    assert answer.status_code == 201
    job_id = answer.json()["job_id"]
    found = (await api.get(f"/v1/jobs/{job_id}")).json()
    assert found["task"] == "hello"
    assert found["payload"] == {"name": "ada"}
