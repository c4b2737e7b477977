"""FEATURES 1.2: GET /v1/jobs/{id}/timeline, the life of a job with its runs, newest first."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.api.test_job_status import make
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def timeline(api: httpx.AsyncClient, job_id: str, limit: int = 50) -> list[dict[str, Any]]:
    """The entries of all pages."""
    found: list[dict[str, Any]] = []
    url: str | None = f"/v1/jobs/{job_id}/timeline?limit={limit}"
    while url is not None:
        answer = await api.get(url)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()) <= limit
        found += answer.json()
        link = answer.headers.get("link")
        url = link[1 : link.index(">")] if link else None
    return found


async def test_the_life_of_a_recurring_job(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await make(api, "j", schedule="@daily", retries=0)
    worker = HandWorker(api)
    ran = []
    for end in ("SUCCESS", "FAILED"):
        await make_due(connection, "j")
        await fire_due(assembly, connection)
        [order] = await worker.claim()
        ran.append(str(order.run_id))
        await worker.report(outcome(order, end, error="no"))
    await make_due(connection, "j")
    await api.post("/v1/jobs/j:pause")  # what is due is missed
    ran.append((await api.post("/v1/jobs/j:runNow")).json()["run_id"])
    entries = await timeline(api, "j")
    assert [entry["event"] for entry in entries] == ["RUN", "MISSED", "PAUSED", "RUN", "RUN", "CREATED"]
    assert entries == sorted(entries, key=lambda entry: entry["at"], reverse=True)
    assert [entry["run"]["run_id"] for entry in entries if "run" in entry] == ran[::-1]
    states = [(entry["run"]["status"], entry["run"]["error_message"]) for entry in entries if "run" in entry]
    assert states == [("QUEUED", None), ("FAILED", "no"), ("SUCCESS", None)]
    assert (entries[1]["count"], entries[1]["reason"]) == (1, "paused")
    for limit in (1, 2, 4):
        assert await timeline(api, "j", limit) == entries
    await api.post("/v1/jobs/j:resume")
    assert "CHANGED" in [entry["event"] for entry in await timeline(api, "j")]
    await api.delete("/v1/jobs/j")
    assert "CANCELLED" in [entry["event"] for entry in await timeline(api, "j")]


async def test_the_life_of_a_one_time_job(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    worker = HandWorker(api)
    for chosen in (None, "mine"):
        made = await make(api, chosen, schedule={"at": "2020-01-01T00:00:00Z"}, retries=0)
        assert [entry["event"] for entry in await timeline(api, made)] == ["CREATED"]
        await fire_due(assembly, connection)
        [order] = await worker.claim()
        await worker.report(outcome(order, "FAILED", error="no"))
        again = (await api.post(f"/v1/runs/{order.run_id}:retry")).json()["run_id"]
        [order] = await worker.claim()
        await worker.report(outcome(order))
        entries = await timeline(api, made, 1)
        assert [entry["event"] for entry in entries] == ["RUN", "RUN", "CREATED"]
        assert [entry["run"]["status"] for entry in entries[:2]] == ["SUCCESS", "FAILED"]
        assert entries[0]["run"]["run_id"] == again
        assert entries[2]["at"] == (await api.get(f"/v1/jobs/{made}")).json()["created_at"]


async def test_a_timeline_of_nothing_and_a_bad_cursor(api: httpx.AsyncClient) -> None:
    assert (await api.get("/v1/jobs/nobody/timeline")).status_code == 404
    await make(api, "j", schedule="@daily")
    for cursor in ("x", "LSAtIC0", "LSAt", "bm8gLSAw", "LSA5OTk5OTk5OTk5OTk5OTk5OTk5OTkgMA"):
        refused = await api.get(f"/v1/jobs/j/timeline?cursor={cursor}")
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input"), cursor


async def test_entries_say_their_generation(api: httpx.AsyncClient) -> None:
    worker = HandWorker(api)
    for _ in range(2):
        await make(api, "again")
        [order] = await worker.claim()
        await worker.report(outcome(order))
    found = [(entry["event"], entry["generation"]) for entry in await timeline(api, "again")]
    assert found == [("RUN", 2), ("CREATED", 2), ("RUN", 1)]
