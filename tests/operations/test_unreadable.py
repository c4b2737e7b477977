"""A row that this version cannot read, because a newer one wrote it: its run fails with the reason, others go on."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from tests.operations.hand_worker import HandWorker

pytestmark = pytest.mark.anyio

NEW_SPEC = '{"delivery": "twice on Sundays"}'
NEW_SCHEDULE = '{"kind": "FULL_MOON"}'


async def submit(api: httpx.AsyncClient, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


@pytest.mark.parametrize("limit", [None, {"limit": 1}], ids=["free", "under a limit"])
async def test_a_run_that_cannot_be_read_fails_with_the_reason_and_the_others_start(
    api: httpx.AsyncClient, connection: asyncpg.Connection, limit: Any
) -> None:
    ids = [await submit(api, concurrency=limit) if limit else await submit(api) for _ in range(3)]
    spec = "spec::jsonb || $1::jsonb" if limit else "$1::jsonb"
    await connection.execute(
        f"update mainspring.runs set spec = ({spec})::json where run_id::text = $2", NEW_SPEC, ids[0]
    )
    worker = HandWorker(api)
    claimed: list[str] = []
    for _ in range(3):
        reply = await worker.exchange(free=3, hello=None if worker.seq else worker.card)
        claimed += [order.job_id for order in reply.runs]
    assert claimed == (ids[1:2] if limit else ids[1:])
    run = (await api.get(f"/v1/runs/{ids[0]}")).json()
    assert run["status"] == "FAILED"
    assert "its stored settings cannot be read" in run["reason"] and "twice on Sundays" in run["reason"]
    view = (await api.get(f"/v1/jobs/{ids[0]}")).json()
    assert view["status"] == "FAILED" and "cannot be read" in view["error_message"]
    for path in ("/v1/jobs?status=failed", f"/v1/runs/{ids[0]}/timeline", "/v1/dead-letters", "/v1/runs"):
        answer = await api.get(path)
        assert answer.status_code == 200, answer.text
    again = await api.post(f"/v1/dead-letters/{ids[0]}:replay", json={"payload": {"a": 1}})
    assert (again.status_code, again.json().get("code")) == (409, "unreadable"), again.text


async def test_a_claim_whose_reply_was_lost_fails_too(api: httpx.AsyncClient, connection: asyncpg.Connection) -> None:
    job_id = await submit(api)
    worker = HandWorker(api)
    await worker.hello(free=1)
    await connection.execute("update mainspring.runs set spec = $1::text::json", NEW_SPEC)
    assert (await worker.exchange(recover=True)).runs == []
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["status"] == "FAILED"


@pytest.mark.parametrize(("column", "stored"), [("spec", NEW_SPEC), ("schedule", NEW_SCHEDULE)])
async def test_a_job_that_cannot_be_read_is_shown_with_the_reason_and_can_be_cancelled(
    api: httpx.AsyncClient, connection: asyncpg.Connection, column: str, stored: str
) -> None:
    for job_id in ("one", "other"):
        await submit(api, job_id=job_id, schedule="0 12 * * *")
    await connection.execute(f"update mainspring.jobs set {column} = $1::text::json where job_id = 'one'", stored)
    views = {view["job_id"]: view for view in (await api.get("/v1/jobs")).json()["jobs"]}
    assert "cannot be read" in views["one"]["error_message"] and views["other"]["error_message"] is None
    assert (await api.get("/v1/jobs/one")).json()["error_message"] == views["one"]["error_message"]
    for path in ("/v1/jobs/one/upcoming", "/v1/jobs/one/status", "/v1/insights/heatmap", "/v1/insights/upcoming"):
        assert (await api.get(path)).status_code == 200, path
    for verb, body in ((":pause", None), (":runNow", {"payload": {"a": 1}})):
        answer = await api.post(f"/v1/jobs/one{verb}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (409, "unreadable"), answer.text
    patch = await api.patch("/v1/jobs/one", json={"name": "new"})
    assert (patch.status_code, patch.json()["code"]) == (409, "unreadable"), patch.text
    before = await connection.fetchval("select version from mainspring.jobs where job_id = 'one'")
    assert (await api.delete("/v1/jobs/one")).status_code == 200
    row = await connection.fetchrow("select * from mainspring.jobs where job_id = 'one'")
    assert (row["status"], row["next_fire_at"], row["version"]) == (3, None, before + 1)
    assert row[column] == stored
    assert (await api.get("/v1/jobs/one")).json()["status"] == "CANCELLED"
