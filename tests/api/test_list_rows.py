"""`view=row`: lists of jobs and runs without payloads, results and long errors."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.bookkeeping import problem
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

LARGE = {"text": "x" * 20_000}
NEVER = {"payload", "result", "command", "env", "http", "idempotency_key", "retry"}


async def ended_run(api: httpx.AsyncClient, **end: Any) -> str:
    job = {"task": "t", "payload": LARGE, "keep_payload": True, "retries": 0}
    job_id: str = (await api.post("/v1/jobs", json=job)).json()["job_id"]
    worker = HandWorker(api, tasks=["t"])
    (order,) = await worker.claim(1)
    await worker.report(outcome(order, **(end or {"result": LARGE})))
    return job_id


async def page(api: httpx.AsyncClient, path: str, **params: Any) -> httpx.Response:
    answer = await api.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer


async def test_rows_of_jobs_have_what_a_list_shows(api: httpx.AsyncClient) -> None:
    job = {"job_id": "j", "task": "t", "payload": LARGE, "schedule": "0 9 * * *", "owner": "ada", "labels": {"a": "b"}}
    await api.post("/v1/jobs", json=job)
    full, row = await page(api, "/v1/jobs"), await page(api, "/v1/jobs", view="row")
    (whole,), (short,) = full.json()["jobs"], row.json()["jobs"]
    assert not NEVER & set(short)
    assert short == {name: whole[name] for name in short}
    assert (short["owner"], short["labels"], short["schedule_in_words"]) == (
        "ada",
        {"a": "b"},
        "At 09:00, every day, UTC",
    )
    assert len(row.content) < 1500 < 20_000 < len(full.content)


async def test_rows_of_runs_have_what_a_list_shows(api: httpx.AsyncClient) -> None:
    job_id = await ended_run(api)
    for path in ("/v1/runs", f"/v1/jobs/{job_id}/runs"):
        full, row = (await page(api, path)), (await page(api, path, view="row"))
        runs = [answer.json()["runs"] if path == "/v1/runs" else answer.json() for answer in (full, row)]
        (whole,), (short,) = runs
        assert not NEVER & set(short)
        assert short == {name: whole[name] for name in short}
        assert whole["result"] == LARGE
        assert len(row.content) < 1500 < 20_000 < len(full.content)


async def test_one_time_jobs_that_fired_and_live_runs_are_rows_too(api: httpx.AsyncClient) -> None:
    done = await ended_run(api)
    live = (await api.post("/v1/jobs", json={"task": "u", "payload": LARGE})).json()["job_id"]
    listed = (await page(api, "/v1/jobs", view="row", status="COMPLETED,SCHEDULED")).json()["jobs"]
    assert [(one["job_id"], one["status"]) for one in listed] == [(live, "SCHEDULED"), (done, "COMPLETED")]
    runs = (await page(api, "/v1/runs", view="row")).json()["runs"]
    assert [(one["run_id"], one["status"]) for one in runs] == [(live, "QUEUED"), (done, "SUCCESS")]


async def test_a_page_of_rows_does_not_end_early_because_of_payloads(api: httpx.AsyncClient) -> None:
    jobs = [{"task": "t", "payload": {"text": "y" * 250_000}} for _ in range(30)]
    for part in (jobs[:15], jobs[15:]):
        assert (await api.post("/v1/jobs:batch", json={"jobs": part})).status_code == 201
    full = (await page(api, "/v1/runs", limit=30)).json()
    assert len(full["runs"]) < 30 and full["next"] is not None
    rows = (await page(api, "/v1/runs", limit=30, view="row")).json()
    assert len(rows["runs"]) == 30 and rows["next"] is None


async def test_pages_of_rows_continue(api: httpx.AsyncClient) -> None:
    await api.post("/v1/jobs:batch", json={"jobs": [{"task": "t"} for _ in range(3)]})
    first = await page(api, "/v1/runs", view="row", limit=2)
    assert "view=row" in first.headers["link"]
    rest = await api.get(first.links["next"]["url"])
    assert [len(answer.json()["runs"]) for answer in (first, rest)] == [2, 1]
    assert "payload" not in rest.json()["runs"][0]


async def test_errors_are_cut(api: httpx.AsyncClient) -> None:
    job_id = await ended_run(api, status="FAILED", error="e" * 5000)
    (run,) = (await page(api, "/v1/runs", view="row")).json()["runs"]
    assert (run["status"], run["error_message"]) == ("FAILED", "e" * 200)
    (job,) = (await page(api, "/v1/jobs", view="row", status="FAILED")).json()["jobs"]
    assert (job["job_id"], job["error_message"], job["latest_run"]["error_message"]) == (job_id, "e" * 200, "e" * 200)


async def test_another_view_is_refused(api: httpx.AsyncClient) -> None:
    for path in ("/v1/jobs", "/v1/runs"):
        refused = problem(await api.get(path, params={"view": "rows"}))
        assert (refused["status"], refused["field"]) == (422, "view")
