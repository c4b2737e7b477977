"""Large answers and large exchanges use no more than 100 ms of the loop's CPU time in one go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import uuid7
from mainspring.roles.assembly import Assembly
from tests.api.slices import Slices, ask, listening, measured, request, within_budget

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
async def port(assembly: Assembly) -> AsyncIterator[int]:
    async with listening(assembly) as listened:
        await ask(listened, request("GET", "/v1/jobs"))
        yield listened


@pytest.fixture
def slices() -> Iterator[Slices]:
    with measured() as found:
        yield found


async def submit(api: httpx.AsyncClient, jobs: list[dict[str, Any]]) -> list[str]:
    answer = await api.post("/v1/jobs:batch", json=jobs)
    assert answer.status_code == 201, answer.text
    ids: list[str] = answer.json()["job_ids"]
    return ids


async def check(port: int, slices: Slices, method: str, path: str, body: bytes = b"") -> Any:
    async def once() -> Any:
        status, answer = await ask(port, request(method, path, body))
        assert status in (200, 201), answer[:300]
        return answer

    answer = await within_budget(slices, once, f"{method} {path}", tries=1 if body else 3)
    return json.loads(answer) if answer.startswith((b"{", b"[")) else None


@pytest.mark.parametrize("schedule", ["0 4 29 2 *", None], ids=["crons", "runs"])
@pytest.mark.parametrize("size", [10, 250_000], ids=["small", "large payloads"])
async def test_lists(api: httpx.AsyncClient, port: int, slices: Slices, schedule: str | None, size: int) -> None:
    count = 1100 if size < 1000 else 200
    when = {} if schedule is None else {"schedule": schedule, "timezone": "Europe/Berlin", "labels": {"a": "b"}}
    await submit(api, [{"task": "x", "payload": {"a": "x" * size}, "name": f"n{n}", **when} for n in range(count)])
    kind = "runs" if schedule is None else "jobs"
    seen, cursor, pages = set(), "", 0
    while True:
        page = await check(port, slices, "GET", f"/v1/{kind}?limit=1000{cursor}")
        seen |= {one["job_id"] for one in page[kind]}
        pages += 1
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(seen) == count and pages < 20


async def test_fire_times_far_away(api: httpx.AsyncClient, port: int, slices: Slices) -> None:
    for schedule in ("0 4 29 2 *", "59 23 31 12 *", "0 0 29 2 1", "* * * * *"):
        answer = await api.post("/v1/jobs", json={"task": "x", "schedule": schedule, "timezone": "Europe/Berlin"})
        await check(port, slices, "GET", f"/v1/jobs/{answer.json()['job_id']}/upcoming?n=1000")


@pytest.mark.parametrize("failing", [pytest.param(False, marks=pytest.mark.long), True], ids=["successes", "failures"])
async def test_exchanges_of_a_worker_with_10_000_slots(
    api: httpx.AsyncClient, port: int, slices: Slices, failing: bool
) -> None:
    await submit(api, [{"task": "x", "payload": {"a": "x" * 200}, "name": f"n{n}"} for n in range(10_000)])
    worker, number = str(uuid7()), 0

    async def exchange(**fields: Any) -> Any:
        nonlocal number
        number += 1
        body = json.dumps({"worker_id": worker, "seq": number, **fields}).encode()
        return await check(port, slices, "POST", "/v1/exchange", body)

    await exchange(hello={"name": "w", "queues": ["default"], "tasks": ["x"], "slots": 10_000})
    runs: list[Any] = []
    while len(runs) < 10_000:
        runs += (await exchange(free=10_000))["runs"]
    held = [[run["run_id"], run["fence"]] for run in runs]
    assert len((await exchange(recover=True))["runs"]) == 10_000
    assert (await exchange(recover=True, inventory=held)).get("runs", []) == []
    failed = {"status": "FAILED", "error": "it" * 100}
    outcomes = [
        {"run_id": run_id, "fence": fence, **({**failed, "retry": n % 2 > 0} if failing else {"result": "x" * 300})}
        for n, (run_id, fence) in enumerate(held)
    ]
    for _ in range(2):
        assert (await exchange(outcomes=outcomes))["acked"] == 10_000
    for path in ("/v1/runs?limit=1000", "/v1/dead-letters?limit=1000", "/v1/queues", "/metrics"):
        await check(port, slices, "GET", path)


async def test_lists_of_10_000_workers(connection: asyncpg.Connection, port: int, slices: Slices) -> None:
    await connection.execute(
        "insert into mainspring.workers (worker_id, tenant_id, name, queues, tasks, slots, labels, state) "
        "select gen_random_uuid(), 1, 'w' || n, '{default}', "
        "array(select 'task' || t from generate_series(1, 20) as t), 10, '{\"a\": \"b\"}', 1 "
        "from generate_series(1, 10000) as n"
    )
    for path in ("/v1/workers", "/v1/tasks"):
        await check(port, slices, "GET", path)


async def test_the_timeline_of_a_run_with_1_000_attempts(
    api: httpx.AsyncClient, connection: asyncpg.Connection, port: int, slices: Slices
) -> None:
    [run_id] = await submit(api, [{"task": "x"}])
    await connection.execute(
        "insert into mainspring.attempts (run_id, attempt, fence, worker_id, outcome, started_at, ended_at, "
        "error) select $1::uuid, n, n, gen_random_uuid(), 'FAILED', now(), now(), repeat('x', 4000) "
        "from generate_series(1, 1000) as n",
        run_id,
    )
    await check(port, slices, "GET", f"/v1/runs/{run_id}/timeline")
