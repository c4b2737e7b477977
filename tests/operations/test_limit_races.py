"""Limits under races: servers, workers, cancels, rescues, fires and changes at the same time. In every snapshot of the
database the counts are right and no limit is exceeded, and in the end nobody is left in a line."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.operations.lifecycle.rescue_worker import WorkerRescue
from mainspring.operations.limits.admitter import Admitter
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store import workers
from mainspring.store.database import Database
from mainspring.store.workers import WorkerState
from tests.conftest import TOKEN
from tests.eventually import PATIENCE
from tests.operations.firing import fire_due, make_due
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

# One statement has one snapshot. A limit may be exceeded only by runs that had begun before the job had the limit.
VIOLATIONS = """
select l.name, k.key, k.in_use, l.slots, r.owned, r.running
from mainspring.limit_keys k
join mainspring.limits l using (limit_id)
cross join lateral (select count(*) filter (where r.state in (1, 2)) as owned,
                           count(*) filter (where r.state = 2) as running
                    from mainspring.runs r where k.key_id = any (r.limit_keys)) as r
where k.in_use <> r.owned or (k.in_use > l.slots and l.name not like 'overlap:%')
"""
OVERLAPS = """
select job_id, count(*) from mainspring.runs
where state = 2 and job_id in ('queued', 'replacing') group by job_id having count(*) > 1
"""
LIMITS: list[Any] = [
    {"key": "payload.account", "limit": 1},
    {"key": "payload.account", "limit": 1},
    {"key": "payload.region", "limit": 3},
    [{"key": "payload.account", "limit": 1}, {"key": "payload.region", "limit": 3}],
]
# A failed or lost run comes back at once. After its second loss it would wait for 15 s.
AT_ONCE = {"retry": {"base": 0.001}, "max_losses": 1}
STEPS = int(os.environ.get("MAINSPRING_RACE_STEPS", "8"))  # more for a longer search


class Race:
    def __init__(self, apis: list[httpx.AsyncClient], assemblies: list[Assembly], seed: int) -> None:
        self.apis = apis
        self.assemblies = assemblies
        self.chance = random.Random(seed)
        self.jobs: list[str] = []
        self.over = False

    @property
    def api(self) -> httpx.AsyncClient:
        return self.chance.choice(self.apis)

    async def submit(self) -> None:
        for _ in range(STEPS):
            jobs = []
            for _ in range(self.chance.randint(1, 6)):
                payload = {"account": self.chance.randint(1, 3), "region": self.chance.choice("ab")}
                limit = self.chance.choice(LIMITS)
                jobs.append({"task": "noop", "payload": payload, "concurrency": limit, **AT_ONCE})
            answer = await self.api.post("/v1/jobs:batch", json={"jobs": jobs})
            assert answer.status_code == 201, answer.text
            self.jobs += answer.json()["job_ids"]

    async def strict(self) -> None:
        for _ in range(STEPS):
            limit = {"key": "payload.account", "limit": 1, "order": "strict", "per": "task"}
            payload = {"account": self.chance.randint(1, 2)}
            job = {"task": "in-order", "payload": payload, "concurrency": limit, **AT_ONCE}
            await self.api.post("/v1/jobs", json=job)

    async def cancel(self) -> None:
        for _ in range(STEPS):
            if self.jobs:
                answer = await self.api.post(f"/v1/runs/{self.chance.choice(self.jobs)}:cancel")
                assert answer.status_code in (202, 404, 409), answer.text
            await asyncio.sleep(0)

    async def run_now(self) -> None:
        for _ in range(STEPS):
            job = self.chance.choice(("queued", "replacing"))
            assert (await self.api.post(f"/v1/jobs/{job}:runNow")).status_code == 202

    async def change(self) -> None:
        """The rule of `changing` alternates. The two others only get another description."""
        for number in range(max(3, STEPS // 3)):
            rule = self.chance.choice(("queue", "allow", "skip", "cancel_previous"))
            answer = await self.api.patch("/v1/jobs/changing", json={"overlap": rule})
            assert answer.status_code == 200, answer.text
            await self.api.post("/v1/jobs/changing:runNow")
            await self.api.patch("/v1/jobs/queued", json={"description": f"change {number}"})

    async def fire(self, connection: asyncpg.Connection) -> None:
        for _ in range(max(3, STEPS // 3)):
            for job in ("queued", "replacing", "changing"):
                await make_due(connection, job)
            await fire_due(self.assemblies[0], connection)

    async def work(self) -> None:
        """A worker that succeeds, fails, returns, confirms cancels, and is lost."""
        while not self.over:
            worker = HandWorker(self.api, tasks=("noop", "in-order"))
            assembly = self.chance.choice(self.assemblies)
            reply = await worker.hello(free=8)
            for _ in range(self.chance.randint(2, 20)):
                told = [
                    outcome(order, self.chance.choice(("SUCCESS", "SUCCESS", "SUCCESS", "FAILED", "RETURNED")))
                    for order in reply.runs
                ]
                reply = await worker.exchange(outcomes=told, free=8)
                assert reply.fenced == []
                if self.over:
                    break
            connection: Any
            async with assembly.store.hot.acquire() as connection:
                await workers.set_state(connection, worker.worker_id, WorkerState.LOST)
            await self.rescue(assembly, worker.worker_id)

    async def rescue(self, assembly: Assembly, worker_id: UUID) -> None:
        """Again and again, as the rescuer does: a run that somebody has locked is left for the next time."""
        connection: Any
        left = True
        while left:
            await WorkerRescue(assembly.signals, lambda: 0.5, worker_id).take_all(assembly.store)
            async with assembly.store.hot.acquire() as connection:
                left = await connection.fetchval(
                    "select exists (select from mainspring.runs where worker_id = $1 and state = 2)", worker_id
                )

    async def watch(self, connection: asyncpg.Connection) -> None:
        while not self.over:
            assert await connection.fetch(VIOLATIONS) == []
            assert await connection.fetch(OVERLAPS) == []
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", [int(os.environ.get("MAINSPRING_RACE_SEED", "1"))])
async def test_no_limit_is_exceeded_and_nobody_is_forgotten(
    where: Database, connection: asyncpg.Connection, database_url: str, seed: int
) -> None:
    assemblies = [await assemble(where, SystemClock(), chance=lambda: 0.5) for _ in range(2)]
    admitters = [Admitter(assembly.store, assembly.signals) for assembly in assemblies]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    apis = [
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app=assembly.app),  # type: ignore[arg-type]
            base_url="http://127.0.0.1:8700",
            headers=headers,
            timeout=60,
        )
        for assembly in assemblies
    ]
    race = Race(apis, assemblies, seed)
    for job, rule in (("queued", "queue"), ("replacing", "cancel_previous"), ("changing", "queue")):
        body = {"task": "noop", "job_id": job, "schedule": "0 0 1 1 *", "overlap": rule, **AT_ONCE}
        assert (await apis[0].post("/v1/jobs", json=body)).status_code == 201
    other, third = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    try:
        workers_and_watch = [asyncio.create_task(race.work()) for _ in range(3)]
        workers_and_watch.append(asyncio.create_task(race.watch(other)))
        acts = [race.submit, race.strict, race.cancel, race.run_now, race.change, race.run_now]
        await asyncio.gather(*(act() for act in acts), race.fire(third))
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval("select count(*) from mainspring.runs") > 0:
                for admitter in admitters:
                    await admitter.run_once()
                for task in workers_and_watch:
                    if task.done():
                        await task
        race.over = True
        await asyncio.gather(*workers_and_watch)
        assert await connection.fetchval("select coalesce(sum(in_use), 0) from mainspring.limit_keys") == 0
    finally:
        race.over = True
        for task in workers_and_watch:
            task.cancel()
        await asyncio.gather(*workers_and_watch, return_exceptions=True)
        for admitter in admitters:
            await admitter.close()
        for api, assembly in zip(apis, assemblies, strict=True):
            await api.aclose()
            await assembly.close()
        await other.close()
        await third.close()
