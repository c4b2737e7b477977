"""A limit is never exceeded, and counts stay exact, while backends are killed and servers, workers and limits race."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import Assembly
from mainspring.store import gates
from mainspring.upkeep.run_rescuer import RunRescuer
from mainspring.wire.exchange import ExchangeReply, RunOrder
from tests.eventually import PATIENCE
from tests.store.rows import all_fall_silent, until_blocked

from .gated import check_counts, put, submit
from .hand_worker import HandWorker, held, outcome
from .servers import another_server

pytestmark = pytest.mark.anyio

LIMIT = 5
RUNS = 30


class Workers:
    """Workers of 10 slots that take and report runs at random, and go on when an exchange fails."""

    def __init__(self, servers: list[httpx.AsyncClient], seed: int) -> None:
        self.random = random.Random(seed)
        self.servers = servers
        self.ended: set[str] = set()
        self.failures = 0

    async def work(self, until_ended: int) -> None:
        worker = HandWorker(self.random.choice(self.servers), queues=["limited", "free"])
        worker.card.slots = 10
        mine: dict[Any, RunOrder] = {}
        pending: list[RunOrder] = []
        ending: dict[Any, str] = {}
        lost = False
        async with asyncio.timeout(PATIENCE):
            while len(self.ended) < until_ended:
                worker.api = self.random.choice(self.servers)
                if not pending:
                    pending = [order for order in mine.values() if self.random.random() < 0.5]
                    ending = {order.run_id: self.random.choice(("SUCCESS", "SUCCESS", "RETURNED")) for order in pending}
                answer = await worker.ask(
                    hello=worker.card,
                    free=0 if lost else self.random.randrange(1, 12),
                    wait_ms=0 if pending or lost else 20,
                    outcomes=[outcome(order, ending[order.run_id]) for order in pending],
                    recover=lost,
                    inventory=held(*mine.values()) if lost else [],
                )
                if answer.status_code != 200:
                    assert answer.status_code in (409, 503), answer.text
                    self.failures += 1
                    lost = True
                    continue
                reply = msgspec.json.decode(answer.content, type=ExchangeReply)
                lost = False
                if reply.acked == len(pending):
                    assert not reply.fenced
                    for order in pending:
                        del mine[order.run_id]
                        if ending[order.run_id] == "SUCCESS":
                            assert str(order.run_id) not in self.ended
                            self.ended.add(str(order.run_id))
                    pending = []
                mine |= {order.run_id: order for order in reply.runs}


async def watch(connection: asyncpg.Connection, most: list[int]) -> None:
    while True:
        running = await connection.fetchval(
            """select count(*) from mainspring.runs r join mainspring.lanes l using (lane_id)
               where l.queue = 'limited' and r.state = 2"""
        )
        most.append(running)
        await check_counts(connection)
        await asyncio.sleep(0)


async def kill(connection: asyncpg.Connection, chance: random.Random) -> None:
    """End a backend of a server now and then, in whatever it does."""
    while True:
        await asyncio.sleep(chance.uniform(0.02, 0.1))
        await connection.execute(
            """select pg_terminate_backend(pid) from pg_stat_activity
               where application_name = 'mainspring server hot' and datname = current_database()
               order by random() limit 1"""
        )


@pytest.mark.slow
@pytest.mark.parametrize("wide", [10, 0], ids=["apart", "together"])  # with 0 every gate counts as far from closed
async def test_a_limit_holds_under_many_slots_and_kills(
    api: httpx.AsyncClient,
    database_url: str,
    connection: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    wide: int,
) -> None:
    monkeypatch.setattr("mainspring.operations.limits.gated_claim._WIDE", wide)
    monkeypatch.setattr("mainspring.operations.limits.gate_registry._FULL_FOR", 0.01)  # the servers send no hints here
    observer, killer = [await asyncpg.connect(database_url) for _ in range(2)]
    most: list[int] = []
    async with another_server(database_url) as other:
        limited = await submit(api, RUNS, "limited")
        await submit(api, 20, "free")
        await put(api, "limited", concurrency=LIMIT)
        await put(api, None, concurrency=LIMIT + 3)
        await other.get("/v1/queues")  # it learns the lanes
        workers = Workers([api, other], 1)
        beside = [asyncio.create_task(watch(observer, most)), asyncio.create_task(kill(killer, workers.random))]
        try:
            await asyncio.gather(*(workers.work(RUNS + 20) for _ in range(5)))
        finally:
            for task in beside:
                if task.done():
                    task.result()
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    assert set(limited) <= workers.ended
    assert 0 < max(most) <= LIMIT
    assert workers.failures > 0
    await check_counts(connection)
    assert await connection.fetchval("select sum(in_use) - (select coalesce(sum(n), 0) from mainspring.gate_marks) "
                                     "from mainspring.gates") == 0  # fmt: skip
    await observer.close()
    await killer.close()


async def test_runs_of_a_lost_worker_give_their_places_back_once(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    await submit(api, 6)
    await put(api, concurrency=2)
    worker = HandWorker(api)
    await worker.hello(free=5)
    await all_fall_silent(connection)
    await connection.execute("update mainspring.workers set state = 3, ended_at = clock_timestamp()")  # LOST
    [rescuer] = [task for task in assembly.periodic_tasks if isinstance(task, RunRescuer)]
    assert await rescuer.run_once() == 2
    await check_counts(connection)
    assert (await api.get("/v1/queues/default")).json()["limits"]["in_use"] == 0
    assert len((await HandWorker(api).hello(free=5)).runs) == 2
    await check_counts(connection)


async def test_a_pause_is_acknowledged_when_no_claim_from_before_is_under_way(
    api: httpx.AsyncClient, connection: asyncpg.Connection, database_url: str
) -> None:
    """A claim that has not seen the pause is in the middle of its transaction, at another server."""
    settings = {"application_name": "mainspring server hot"}
    claim = await asyncpg.connect(database_url, server_settings=settings)
    transaction = claim.transaction()
    await transaction.start()
    await claim.fetchval("select revision from mainspring.gate_revision")
    pause = asyncio.create_task(api.post("/v1/queues/default:pause"))
    async with asyncio.timeout(PATIENCE):
        while not await connection.fetchval("select count(*) from mainspring.gates where paused_at is not null"):
            await asyncio.sleep(0)
    for _ in range(20):
        await connection.fetchval("select 1")
        assert not pause.done()
    await transaction.commit()
    assert (await pause).status_code == 200
    await claim.close()


@pytest.mark.parametrize(("pool", "claims"), [("hot", True), ("groups", True), ("reads", False), ("urgent", False)])
async def test_a_pause_waits_for_the_transactions_of_every_pool_that_claims(
    connection: asyncpg.Connection, database_url: str, pool: str, claims: bool
) -> None:
    settings = {"application_name": f"mainspring server {pool}"}
    server = await asyncpg.connect(database_url, server_settings=settings)
    async with server.transaction():
        await server.fetchval("select revision from mainspring.gate_revision")
        assert len(await gates.hot_transactions(connection)) == claims
    assert await gates.hot_transactions(connection) == []
    await server.close()


async def test_two_claims_through_one_gate_wait_for_each_other(
    connection: asyncpg.Connection, database_url: str, api: httpx.AsyncClient
) -> None:
    await put(api, concurrency=5)
    other = await asyncpg.connect(database_url)
    gate = await gates.lock(connection, DEFAULT_TENANT, "default")
    async with connection.transaction():
        await gates.lock_for_claim(connection, [gate.gate_id])
        second = asyncio.create_task(gates.lock_for_claim(other, [gate.gate_id]))
        observer = await asyncpg.connect(database_url)
        await until_blocked(observer, other.get_server_pid())
        await gates.give_back(observer, {gate.gate_id: 3, -5: 1, 2**40: 2})  # a report waits for no claim
        await gates.pass_through(connection, [gates.Passed(gate.gate_id, 4, None)])
    [locked] = await second
    assert locked.in_use == 4
    assert await gates.take_marks(other, [gate.gate_id]) == {gate.gate_id: 3}
    assert await gates.take_marks(other, [gate.gate_id]) == {}
    await other.close()
    await observer.close()


async def test_outcomes_and_a_claim_through_wide_gates_are_one_transaction(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, 6)
    worker = HandWorker(api)
    for limit, together in ((100_000, True), (50, False), (100_000, True)):
        await put(api, concurrency=limit)
        await put(api, None, concurrency=limit, rate="1000000/s")
        [first] = (await (worker.exchange(free=1) if worker.seq else worker.hello(free=1))).runs
        [second] = (await worker.exchange(outcomes=[outcome(first)], free=1)).runs
        ended, claimed = [
            await connection.fetchval(f"select xmin::text from mainspring.{table} where run_id = $1", run.run_id)
            for table, run in (("run_history", first), ("runs", second))
        ]
        assert (ended == claimed) == together
        await check_counts(connection)
        assert await in_use(connection) == {1}
        await worker.report(outcome(second))
        await check_counts(connection)


async def test_outcomes_wait_for_no_gate_that_another_claim_holds(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, 2)
    await put(api, concurrency=100_000)
    await put(api, None, concurrency=100_000)
    worker = HandWorker(api)
    [first] = (await worker.hello(free=1)).runs
    gate = await gates.lock(connection, DEFAULT_TENANT, None)
    async with connection.transaction():
        await gates.lock_for_claim(connection, [gate.gate_id])
        reply = await worker.exchange(outcomes=[outcome(first)], free=1)
        assert (reply.acked, reply.runs) == (1, []), "the outcome is recorded, and nothing is claimed"
    await check_counts(connection)
    assert len((await worker.exchange(free=1)).runs) == 1
    await check_counts(connection)
    assert await in_use(connection) == {1}


async def in_use(connection: asyncpg.Connection) -> set[int]:
    """Of all gates, without their marks."""
    rows = await connection.fetch(
        """select g.in_use - coalesce((select sum(n) from mainspring.gate_marks m where m.gate_id = g.gate_id), 0) as n
           from mainspring.gates g where g.concurrency is not null"""
    )
    return {row["n"] for row in rows}
