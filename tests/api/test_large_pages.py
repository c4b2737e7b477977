"""Lists contain payloads and results, so a page is also limited in bytes. The next page continues after it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from mainspring.store.pages import PAGE_BYTES
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

KIB_250 = 250 * 1024
MANY = 40  # 10 MB of payloads


async def submit(api: httpx.AsyncClient, **more: Any) -> list[str]:
    """Large jobs between small ones, in two batches because the size of a request is limited."""
    made = []
    for first in range(0, MANY, 20):
        payloads = [{"n": n, "filler": "x" * (KIB_250 if n % 2 else 10)} for n in range(first, first + 20)]
        batch = await api.post("/v1/jobs:batch", json=[{"task": "noop", "payload": one, **more} for one in payloads])
        assert batch.status_code == 201, batch.text[:500]
        made += batch.json()["job_ids"]
    return made


async def turn_pages(api: httpx.AsyncClient, route: str, key: str) -> tuple[list[dict[str, Any]], int]:
    """All rows of a list, read page by page with the Link header, and the number of pages."""
    seen: list[dict[str, Any]] = []
    pages, address = 0, f"{route}?limit=1000"
    while True:
        answer = await api.get(address)
        assert answer.status_code == 200 and len(answer.content) < PAGE_BYTES + KIB_250 + 100_000
        rows = answer.json()[key]
        assert rows
        seen, pages = seen + rows, pages + 1
        if "link" not in answer.headers:
            assert answer.json()["next"] is None
            return seen, pages
        address = answer.headers["link"][1 : answer.headers["link"].index(">")]


async def test_runs_live_and_ended(api: httpx.AsyncClient) -> None:
    made = await submit(api, retries=0)
    worker = HandWorker(api)
    await worker.report(*(outcome(order, "FAILED", error="no") for order in await worker.claim(15)))
    runs, pages = await turn_pages(api, "/v1/runs", "runs")
    assert [run["run_id"] for run in runs] == made[::-1] and pages == 2
    assert all(run["payload"]["n"] == MANY - 1 - index for index, run in enumerate(runs))
    assert sorted({run["status"] for run in runs}) == ["FAILED", "QUEUED"]


async def test_dead_letters(api: httpx.AsyncClient) -> None:
    made = await submit(api, retries=0)
    worker = HandWorker(api)
    for _ in range(4):
        await worker.report(*(outcome(order, "FAILED", error="no") for order in await worker.claim(10)))
    letters, pages = await turn_pages(api, "/v1/dead-letters", "dead_letters")
    assert [letter["run_id"] for letter in letters] == made[::-1] and pages == 2
    replayed = (await api.post("/v1/dead-letters:replay", json={"all": True})).json()
    assert (replayed["replayed"], replayed["left"]) == (MANY, {})


async def test_jobs(api: httpx.AsyncClient) -> None:
    made = await submit(api, schedule="manual")
    jobs, pages = await turn_pages(api, "/v1/jobs", "jobs")
    assert sorted(job["job_id"] for job in jobs) == sorted(made) and pages == 2


async def test_runs_of_a_job_and_results(api: httpx.AsyncClient) -> None:
    payload = {"filler": "x" * KIB_250}
    job = {"job_id": "j", "task": "noop", "payload": payload, "schedule": "manual", "overlap": "allow", "retries": 0}
    await api.post("/v1/jobs", json=job)
    made = [(await api.post("/v1/jobs/j:runNow")).json()["run_id"] for _ in range(MANY)]
    worker = HandWorker(api)
    await worker.report(*(outcome(order, "FAILED", error="no") for order in await worker.claim(10)))
    seen: list[str] = []
    address: str | None = "/v1/jobs/j/runs?limit=1000"
    while address is not None:
        answer = await api.get(address)
        assert len(answer.content) < PAGE_BYTES + KIB_250 + 100_000
        seen += [run["run_id"] for run in answer.json()]
        link = answer.headers.get("link")
        address = link[1 : link.index(">")] if link else None
    assert seen == made[::-1]


async def test_a_page_has_one_row_at_least_and_a_small_limit_is_kept(api: httpx.AsyncClient) -> None:
    await submit(api, schedule="manual")
    page = (await api.get("/v1/jobs?limit=1")).json()
    assert len(page["jobs"]) == 1 and page["next"] is not None
    page = (await api.get("/v1/jobs?limit=33")).json()
    assert 16 <= len(page["jobs"]) <= 33 and page["next"] is not None
