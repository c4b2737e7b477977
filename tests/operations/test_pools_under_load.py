"""More callers than connections: all are answered, because no caller that holds a connection waits for another one."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.servers import another_server

pytestmark = pytest.mark.anyio

MANY = 40  # a pool has six or eight


async def answered(*requests: object) -> list[httpx.Response]:
    async with asyncio.timeout(PATIENCE):
        return list(await asyncio.gather(*requests))  # type: ignore[call-overload]


async def test_looking_ahead_of_jobs_that_have_fired_does_not_lock_up(api: httpx.AsyncClient) -> None:
    ids = (await api.post("/v1/jobs:batch", json=[{"task": "noop"}] * MANY)).json()["job_ids"]
    answers = await answered(*(api.get(f"/v1/jobs/{job_id}/upcoming") for job_id in ids))
    assert [answer.json()["fires"] for answer in answers] == [[]] * MANY


async def test_reading_and_changing_jobs_in_lanes_that_another_server_made_does_not_lock_up(
    api: httpx.AsyncClient, database_url: str
) -> None:
    jobs = [{"job_id": f"j{n}", "task": f"task{n}", "schedule": "@daily"} for n in range(MANY)]
    async with another_server(database_url) as other:
        assert (await other.post("/v1/jobs:batch", json=jobs)).status_code == 201
    changes = [
        {"path": "", "method": "GET"},
        {"path": "/status", "method": "GET"},
        {"path": ":pause", "method": "POST"},
    ]
    answers = await answered(
        *(api.request(changes[n % 3]["method"], f"/v1/jobs/j{n}{changes[n % 3]['path']}") for n in range(MANY))
    )
    assert {answer.status_code for answer in answers} == {200}


async def test_everything_at_once_is_answered(api: httpx.AsyncClient, assembly: Assembly) -> None:
    workers = [HandWorker(api, tasks=["t0", "t1", "t2"]) for _ in range(10)]

    async def work(worker: HandWorker) -> int:
        done = 0
        await worker.hello()
        for _ in range(6):
            runs = (await worker.exchange(free=3)).runs
            await worker.exchange(outcomes=[outcome(order) for order in runs])
            done += len(runs)
        return done

    async def use(n: int) -> httpx.Response:
        made = await api.post("/v1/jobs", json={"task": f"t{n % 3}", "idempotency_key": f"k{n}"})
        return await read(f"/v1/jobs/{made.json()['job_id']}")

    async def read(url: str) -> httpx.Response:
        """Reads have a time limit, which a busy machine may exceed: then the answer says when to ask again."""
        while (answer := await api.get(url)).status_code == 503 and "retry-after" in answer.headers:
            continue
        return answer

    async with asyncio.timeout(PATIENCE):
        done, answers = await asyncio.gather(
            asyncio.gather(*(work(worker) for worker in workers)),
            asyncio.gather(
                *(use(n) for n in range(MANY)),
                *(read(url) for url in ("/v1/queues", "/v1/workers", "/v1/runs", "/v1/jobs") for _ in range(5)),
            ),
        )
    assert {answer.status_code for answer in answers} == {200}
    waiting = (await api.get("/v1/runs?status=queued&limit=1000")).json()["runs"]
    assert sum(done) + len(waiting) == MANY
