"""A queue or tenant with too many waiting runs refuses submissions with 429, and nothing of them is stored."""

from __future__ import annotations

import httpx
import pytest

from mainspring.operations.limits.gate_keeper import GateKeeper
from mainspring.roles.assembly import Assembly

from .gated import put, submit
from .hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio


async def count(assembly: Assembly) -> None:
    """What each server does once a second."""
    [keeper] = [task for task in assembly.periodic_tasks if isinstance(task, GateKeeper)]
    await keeper.run_once()


async def refused(answer: httpx.Response) -> None:
    assert answer.status_code == 429, answer.text
    assert (answer.json()["code"], answer.json()["field"]) == ("queue_full", "queue")
    assert int(answer.headers["Retry-After"]) >= 1


async def waiting(api: httpx.AsyncClient, queue: str = "default") -> int:
    found: int = (await api.get(f"/v1/queues/{queue}")).json()["depth"]
    return found


async def test_a_full_queue_refuses_and_takes_again_when_runs_have_started(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    await put(api, max_depth=3)
    await count(assembly)
    for _ in range(3):
        assert (await api.post("/v1/jobs", json={"task": "noop"})).status_code == 201
    await refused(await api.post("/v1/jobs", json={"task": "noop"}))
    assert (await api.post("/v1/jobs", json={"task": "noop", "queue": "other"})).status_code == 201
    assert await waiting(api) == 3
    worker = HandWorker(api)
    await worker.report(*map(outcome, await worker.claim(2)))
    await refused(await api.post("/v1/jobs", json={"task": "noop"}))  # as counted last
    await count(assembly)
    await submit(api, 2)
    await refused(await api.post("/v1/jobs", json={"task": "noop"}))


async def test_a_batch_is_refused_as_a_whole(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await put(api, max_depth=5)
    await count(assembly)
    jobs = [{"task": "noop"}] * 6
    await refused(await api.post("/v1/jobs:batch", json={"jobs": jobs}))
    await submit(api, 5)
    assert await waiting(api) == 5


async def test_the_tenant_counts_all_queues(api: httpx.AsyncClient, assembly: Assembly) -> None:
    await put(api, None, max_depth=4)
    await submit(api, 2, "a")
    await count(assembly)
    await refused(await api.post("/v1/jobs:batch", json={"jobs": [{"task": "noop", "queue": "b"}] * 3}))
    await submit(api, 2, "b")
    await refused(await api.post("/v1/jobs", json={"task": "noop", "queue": "c"}))


async def test_what_fires_later_and_what_was_accepted_before_is_not_refused(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    keyed = {"task": "noop", "idempotency_key": "k"}
    first = await api.post("/v1/jobs", json=keyed)
    await put(api, max_depth=1)
    await count(assembly)
    await refused(await api.post("/v1/jobs", json={"task": "noop", "idempotency_key": "another"}))
    again = await api.post("/v1/jobs", json=keyed)
    assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])
    assert (await api.post("/v1/jobs", json={"task": "noop", "delay": "1h"})).status_code == 201
    assert (await api.post("/v1/jobs", json={"task": "noop", "cron": "* * * * *", "job_id": "j"})).status_code == 201
    assert (await api.post("/v1/jobs/j:runNow")).status_code == 202
    # The refused key was not taken.
    await put(api, max_depth=None)
    await count(assembly)
    assert (await api.post("/v1/jobs", json={"task": "noop", "idempotency_key": "another"})).status_code == 201
