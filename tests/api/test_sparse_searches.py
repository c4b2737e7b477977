"""A filter that matches few of very many jobs or runs: a page says how far it has looked, and the next one goes on."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mainspring.api.task_metrics import task_metrics
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.operations.read.jobs import JobReader
from mainspring.operations.read.runs import RunReader
from mainspring.operations.read.tenant_counts import TaskEnds
from mainspring.operations.read.windows import Sum
from mainspring.store import dead_letters
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages end after the first stretch, which has two jobs or runs."""
    for reader in (JobReader, RunReader):
        monkeypatch.setattr(reader, "budget", 0.0)
        monkeypatch.setattr(reader, "first_stretch", 2)


async def all_pages(api: httpx.AsyncClient, kind: str, query: str) -> list[dict[str, Any]]:
    pages, cursor = [], ""
    while True:
        answer = await api.get(f"/v1/{kind}?{query}&limit=3" + (f"&cursor={quote(cursor)}" if cursor else ""))
        assert answer.status_code == 200, answer.text
        pages.append(answer.json())
        if not (cursor := pages[-1]["next"]):
            return pages


async def test_a_search_for_jobs_goes_on_where_its_time_was_over(api: httpx.AsyncClient, no_time: None) -> None:
    for n in range(9):
        labels = {"team": "rare"} if n in (0, 7) else {}
        await api.post("/v1/jobs", json={"job_id": f"j{n}", "task": "noop", "schedule": "@daily", "labels": labels})
    for query in ("label=team:rare", "q=j0", "q=nobody"):
        pages = await all_pages(api, "jobs", query)
        assert len(pages) > 2
        ids = {"label=team:rare": ["j7", "j0"], "q=j0": ["j0"], "q=nobody": []}[query]
        assert [job["job_id"] for page in pages for job in page["jobs"]] == ids
        looked = [page["searched_to"] for page in pages]
        assert looked[-1] is None and looked[:-1] == sorted(looked[:-1], reverse=True) and all(looked[:-1])


async def test_jobs_of_a_rare_owner_and_workflows_are_found_at_once(api: httpx.AsyncClient, no_time: None) -> None:
    for n in range(9):
        owner = "eve" if n in (0, 7) else "bob"
        await api.post("/v1/jobs", json={"job_id": f"j{n}", "task": "noop", "schedule": "@daily", "owner": owner})
        if n in (2, 5):
            step = {"name": "a", "task": "noop"}
            made = await api.post("/v1/workflows", json={"workflow_id": f"w{n}", "steps": [step]})
            assert made.status_code == 201, made.text
    [page] = await all_pages(api, "jobs", "owner=eve")
    assert [job["job_id"] for job in page["jobs"]] == ["j7", "j0"]
    [page] = await all_pages(api, "workflows", "status=scheduled")
    assert [workflow["workflow_id"] for workflow in page["workflows"]] == ["w5", "w2"]


async def test_a_search_for_runs_goes_on_where_its_time_was_over(api: httpx.AsyncClient, no_time: None) -> None:
    made = await api.post("/v1/jobs:batch", json=[{"task": "noop", "max_retries": 0}] * 9 + [{"task": "other"}])
    assert made.status_code == 201
    worker = HandWorker(api)
    ended = await worker.claim(6)
    await worker.report(outcome(ended[0], "FAILED", error="KeyError: 'x'"), *(outcome(one) for one in ended[1:]))
    for query, expected in (("error=KeyError", [ended[0].run_id]), ("error=nobody", []), ("label=a:b", [])):
        pages = await all_pages(api, "runs", query)
        assert [run["run_id"] for page in pages for run in page["runs"]] == [str(each) for each in expected]
        assert pages[-1]["searched_to"] is None
        assert len(pages) > 1 and all(page["searched_to"] for page in pages[:-1])
    found = [run["task"] for page in await all_pages(api, "runs", "task=other") for run in page["runs"]]
    assert found == ["other"]


async def test_very_many_dead_letters_are_estimated(connection: asyncpg.Connection) -> None:
    await connection.execute(
        """insert into mainspring.dead_letters
               (run_id, tenant_id, lane_id, attempts, max_attempts, scheduled_for, died_at)
           select gen_random_uuid(), 1 + n % 2, 1, 1, 1, clock_timestamp(), clock_timestamp()
           from generate_series(1, 200) as n"""
    )
    assert await dead_letters.count(connection, DEFAULT_TENANT) == dead_letters.Size(100)
    assert await dead_letters.count(connection, DEFAULT_TENANT, 100) == dead_letters.Size(100)
    unknown = await dead_letters.count(connection, DEFAULT_TENANT, 50)
    assert unknown.estimated and unknown.number >= 51
    await connection.execute("analyze mainspring.dead_letters")
    assert await dead_letters.count(connection, DEFAULT_TENANT, 50) == dead_letters.Size(100, estimated=True)


async def test_the_metrics_of_tasks_are_in_the_format_of_prometheus() -> None:
    ends = Sum()
    ends.counts |= {"succeeded": 3, "failed": 1, "retried": 2}
    ends.ran_us = 1_500_000
    ends.ran.add_values([1.2, 400.0, 1e12])
    ends.lag.add_values([3.0])
    text = (await task_metrics([TaskEnds('a\\b"c\nd', "q", ends)])).decode()
    found = {
        (sample.name, sample.labels.get("outcome") or sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["task"] == 'a\\b"c\nd' and sample.labels["queue"] == "q"
    }
    assert found["mainspring_task_runs_total", "succeeded"] == 3
    assert found["mainspring_task_retries_total", None] == 2
    assert found["mainspring_task_duration_seconds_sum", None] == 1.5
    buckets = [value for (name, _), value in found.items() if name == "mainspring_task_duration_seconds_bucket"]
    assert buckets == sorted(buckets) and (buckets[0], buckets[-2], buckets[-1]) == (0, 2, 3)
    assert found["mainspring_task_duration_seconds_count", None] == 3
    assert found["mainspring_task_start_lag_seconds_count", None] == 1
