"""The life of jobs on two servers that run: submit, cron fire, claim, report, retry, cancel, lists, and a lost worker.

For databases that are reached in an unusual way: through a PgBouncer, or with a role that owns nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import httpx

from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import ManualClock, SystemClock
from mainspring.kernel.config import Timing
from mainspring.kernel.lifecycle import Loops
from mainspring.operations.signals import Signals
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store import leases
from mainspring.store.database import Database
from mainspring.upkeep.run_rescuer import RunRescuer
from mainspring.wire.exchange import Outcome, RunOrder
from tests.conftest import TOKEN
from tests.operations.firing import let_backoff_pass, make_due
from tests.operations.hand_worker import HandWorker, held, outcome
from tests.operations.waiting import until
from tests.store.rows import all_fall_silent

PATIENT = Timing(lease_ttl=600.0, rescue=600.0, exclusive_rescue=600.0, base_rescue=600.0)
# Whatever happens, these hold. Each finds violations.
RULES = {
    "S1: one run per fire time": """
        select job_id from (select job_id, trigger, scheduled_for from mainspring.runs
                            union all select job_id, trigger, scheduled_for from mainspring.run_history) r
        where job_id is not null group by job_id, trigger, scheduled_for having count(*) > 1""",
    "S3: a shard has one owner, whose epoch is known": """
        select shard from mainspring.shard_leases where owner is not null and epoch < 1""",
    "S4: exactly one end": """
        select run_id from mainspring.run_history group by run_id having count(*) > 1
        union all select run_id from mainspring.runs join mainspring.run_history using (run_id)""",
    "S5: attempts are counted without gaps": """
        select run_id from mainspring.attempts group by run_id having count(*) <> max(attempt)""",
}


@asynccontextmanager
async def a_server(where: Database) -> AsyncIterator[tuple[Assembly, httpx.AsyncClient]]:
    """A server that runs, with its scheduler."""
    assembly = await assemble(where, SystemClock(), chance=lambda: 0.5, timing=PATIENT)
    loops = Loops()
    await assembly.start(loops)
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as api:
            yield assembly, api
    finally:
        await assembly.stop(loops)


async def live_through(where: Database, look: asyncpg.Connection) -> None:
    """`look` is a connection of the owner, without anything in between."""
    async with a_server(where) as (first, one), a_server(where) as (_, other):
        await _submit_and_report(one, other)
        await _retry(one, other, look)
        await _fire(one, other, look)
        await _cancel(one, other)
        await _lose_a_worker(first, one, look)
        await _read(one)
        await _all_tasks_work(first)
    for rule, violations in RULES.items():
        assert await look.fetch(violations) == [], rule
    owners = {row.owner for row in await leases.list_leases(look)}
    assert owners == {None}, "a server that stops gives its shards back"


async def _submit_and_report(one: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    """Also many at a time: the pools open all their connections."""
    worker = HandWorker(other, tasks=["noop"])
    waiting = asyncio.create_task(worker.exchange(hello=worker.card, free=1, wait_ms=10_000))
    job = await _made(one, task="noop", payload={"n": 1})
    reply = await waiting
    orders = reply.runs or await _claimed(worker)
    assert [order.job_id for order in orders] == [job]
    await _reported(worker, *(outcome(order, result={"ok": True}) for order in orders))
    assert (await one.get(f"/v1/runs/{orders[0].run_id}")).json()["status"] == "SUCCESS"
    jobs = await asyncio.gather(*(_made(one, task="noop", payload={"n": number}) for number in range(40)))
    batch = await one.post("/v1/jobs:batch", json={"jobs": [{"task": "noop"} for _ in range(60)]})
    assert batch.status_code == 201, batch.text
    workers = [HandWorker(api, tasks=["noop"]) for api in (one, other)]
    done: set[str] = set()
    while len(done) < 100:
        for some in await asyncio.gather(*(_claimed(each, 10, or_none=True) for each in workers)):
            assert not done & {order.job_id for order in some}, "a run is claimed once"
            done |= {order.job_id for order in some}
        for each in workers:
            each.seq += 1
    assert {*jobs, *batch.json()["job_ids"]} == done
    for each in workers:
        reply = await each.exchange(recover=True)
        await _reported(each, *(outcome(order) for order in reply.runs))


async def _retry(one: httpx.AsyncClient, other: httpx.AsyncClient, look: asyncpg.Connection) -> None:
    await _made(one, task="flaky")
    worker = HandWorker(other, tasks=["flaky"])
    [order] = await _claimed(worker)
    await _reported(worker, outcome(order, "FAILED", error="not today"))
    await let_backoff_pass(look)
    [again] = await _claimed(worker)
    assert (again.run_id, again.attempt) == (order.run_id, order.attempt + 1) and again.fence > order.fence
    await _reported(worker, outcome(order))  # a late copy changes nothing
    assert (await one.get(f"/v1/runs/{order.run_id}")).json()["status"] == "RUNNING"
    await _reported(worker, outcome(again))


async def _fire(one: httpx.AsyncClient, other: httpx.AsyncClient, look: asyncpg.Connection) -> None:
    job = await _made(one, task="cron", schedule="0 0 1 1 *")
    worker = HandWorker(other, tasks=["cron"])
    for _ in range(2):
        await make_due(look, job)
        [order] = await _claimed(worker)
        assert order.job_id == job
        await _reported(worker, outcome(order))


async def _cancel(one: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    job = await _made(one, task="long")
    worker = HandWorker(other, tasks=["long"])
    [order] = await _claimed(worker)
    assert (await one.delete(f"/v1/jobs/{job}")).status_code in (200, 202)

    async def told() -> bool:
        return order.run_id in (await worker.exchange(inventory=held(order))).stop

    await until(told)
    await _reported(worker, outcome(order, "CANCELLED"))
    assert (await other.get(f"/v1/runs/{order.run_id}")).json()["status"] == "CANCELLED"


async def _lose_a_worker(first: Assembly, one: httpx.AsyncClient, look: asyncpg.Connection) -> None:
    await _made(one, task="unlucky")
    [order] = await _claimed(HandWorker(one, tasks=["unlucky"]))
    clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
    rescuer = RunRescuer(first.store, Signals(first.store), clock, PATIENT, lambda: 0.5)
    await rescuer.run_once()
    clock.advance(2 * PATIENT.rescue)
    await all_fall_silent(look)

    async def rescued() -> bool:
        """By this rescuer, or by that of a server."""
        await rescuer.run_once()
        queued = "select state = $2 from mainspring.runs where run_id = $1"
        return bool(await look.fetchval(queued, order.run_id, int(StoredState.QUEUED)))

    await until(rescued)
    await let_backoff_pass(look)
    survivor = HandWorker(one, tasks=["unlucky"])
    [again] = await _claimed(survivor)
    assert again.run_id == order.run_id and again.fence > order.fence
    await _reported(survivor, outcome(again))


async def _read(one: httpx.AsyncClient) -> None:
    """Lists are read with cursors of PostgreSQL."""
    for address in ("jobs", "runs", "workers", "queues", "dead-letters", "tasks"):
        answer = await one.get(f"/v1/{address}?limit=20" if address in ("jobs", "runs") else f"/v1/{address}")
        assert answer.status_code == 200, answer.text
    page = (await one.get("/v1/runs?limit=30")).json()
    following = (await one.get(f"/v1/runs?limit=30&cursor={page['next']}")).json()
    assert not {run["run_id"] for run in page["runs"]} & {run["run_id"] for run in following["runs"]}


async def _all_tasks_work(assembly: Assembly) -> None:
    for task in assembly.periodic_tasks:
        await task.run_once()
    assert (await assembly.services.readiness.check()).status == "ready"


async def _made(api: httpx.AsyncClient, **job: Any) -> str:
    answer = await api.post("/v1/jobs", json=job)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def _claimed(worker: HandWorker, count: int = 1, *, or_none: bool = False) -> list[RunOrder]:
    """Runs, as soon as there are some."""
    orders: list[RunOrder] = []

    async def asked() -> bool:
        orders.extend((await worker.exchange(free=count, hello=None if worker.seq else worker.card)).runs)
        return bool(orders) or or_none

    await until(asked)
    return orders


async def _reported(worker: HandWorker, *outcomes: Outcome) -> None:
    """A busy server may ask for the outcomes again."""

    async def asked() -> bool:
        return (await worker.exchange(outcomes=list(outcomes))).acked == len(outcomes)

    await until(asked)
