"""Hand-off: a fresh run goes to a worker that waits, in the statement that stores it. Otherwise it is queued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel import metrics
from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import ExchangeReply, QueueShare
from mainspring.wire.protocol import PROTOCOL
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.servers import another_server
from tests.operations.test_long_poll import (
    LONG_POLL,
    LongPoll,
    start_waiting,
    submit,
    submit_many,
    until_it_waits,
)  # fmt: skip
from tests.operations.test_long_poll import assembly as assembly
from tests.operations.waiting import until
from tests.store.rows import ended, live

pytestmark = pytest.mark.anyio

IDS_AND_TIMES = {
    "run_id", "job_id", "scheduled_for", "ready_at", "modified_time", "created_at", "idempotency_key", "executor_id",
    "lag_from",
}  # fmt: skip


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no reason to answer without knowing what became of a hand-off."""
    monkeypatch.setattr("mainspring.operations.exchange.patience._SECONDS", 60.0)


def handed_off() -> float:
    return float(metrics.handed_off._value.get())


async def waiting_worker(
    api: httpx.AsyncClient, assembly: Assembly, *, free: int = 1, known: bool = True, **fields: Any
) -> tuple[HandWorker, LongPoll]:
    """A worker of today's protocol that waits. The server knows the lanes of what it takes."""
    worker = HandWorker(api, **fields)
    worker.card.protocol = PROTOCOL.number
    await worker.hello()
    if known:
        for queue in worker.card.queues:
            for task in worker.card.tasks:
                await submit(api, queue=queue, task=task)
        for order in await worker.claim(len(worker.card.queues) * len(worker.card.tasks)):
            await worker.report(outcome(order))
    return worker, await start_waiting(assembly, worker, free=free)


async def taken(waiting: LongPoll) -> list[str]:
    return [order.job_id for order in (await waiting).runs]


@asynccontextmanager
async def held_up(connection: asyncpg.Connection, database_url: str) -> AsyncIterator[None]:
    """A statement that stores a run stands still in the middle, in this block."""
    await connection.execute(
        """create function mainspring.hold() returns trigger language plpgsql as $$
           begin perform pg_advisory_xact_lock(77); return new; end $$;
           create trigger hold before insert on mainspring.runs for each row execute function mainspring.hold()"""
    )
    holder = await asyncpg.connect(database_url)
    try:
        async with holder.transaction():
            await holder.execute("select pg_advisory_xact_lock(77)")
            yield
    finally:
        await holder.close()


async def stands(connection: asyncpg.Connection) -> int:
    """Wait until a hand-off is held up. Return the process that carries it out."""
    async with asyncio.timeout(PATIENCE):
        while True:
            pid: int | None = await connection.fetchval(
                """select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                   and query like '%clear as materialized%' and pid <> pg_backend_pid()"""
            )
            if pid is not None:
                return pid
            await asyncio.sleep(0)


async def test_a_submitted_run_goes_to_the_worker_that_waits(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    worker, waiting = await waiting_worker(api, assembly)
    before, groups = handed_off(), metrics.exchange_groups._value.get()
    job_id = await submit(api, payload={"n": 1}, retry={"max_attempts": 2}, name="a name")
    [order] = (await waiting).runs
    assert (order.job_id, order.attempt, order.fence, order.name) == (job_id, 1, 1, "a name")
    assert handed_off() - before == 1
    assert metrics.exchange_groups._value.get() == groups, "no other statement has claimed it"
    assert len(assembly.long_polls) == 0
    claiming = HandWorker(api)
    claiming.card.protocol = PROTOCOL.number
    await submit(api, payload={"n": 1}, retry={"max_attempts": 2}, name="a name")
    [claimed] = await claiming.claim()
    shown, other = [(await api.get(f"/v1/runs/{run}")).json() for run in (order.run_id, claimed.run_id)]
    assert {name for name in shown if shown[name] == other.get(name)} | IDS_AND_TIMES == set(other) == set(shown)
    await worker.report(outcome(order, result={"n": 2}))
    [row] = [row for row in await ended(connection) if row["run_id"] == order.run_id]
    assert (row["attempt"], row["fence"], row["worker_id"]) == (1, 1, worker.worker_id)


async def test_runs_that_arrive_together_are_divided_by_free_slots(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    _, first = await waiting_worker(api, assembly, free=2)
    _, second = await waiting_worker(api, assembly, free=4, known=False)
    before = handed_off()
    made = await submit_many(api, 3)
    assert [len(await taken(first)), len(await taken(second))] == [1, 2]
    assert {*await taken(first), *await taken(second)} == set(made) and handed_off() - before == 3


async def test_what_has_no_room_is_queued(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker, waiting = await waiting_worker(api, assembly, free=2)
    made = await submit_many(api, 3)
    first = await taken(waiting)
    assert first == made[:2]
    assert [order.job_id for order in await worker.claim()] == made[2:]


async def test_of_several_lanes_that_do_not_fit_a_claim_decides_which_come_first(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    worker, waiting = await waiting_worker(api, assembly)
    await submit(api, priority="high")
    await taken(waiting)
    waiting = await start_waiting(assembly, worker)
    jobs = [{"task": "noop", "payload": {"n": 1}}, {"task": "noop", "priority": "high"}]
    low, high = (await api.post("/v1/jobs:batch", json=jobs)).json()["job_ids"]
    assert await taken(waiting) == [high]
    assert [order.job_id for order in await worker.claim()] == [low]


async def test_an_older_run_goes_first(api: httpx.AsyncClient, assembly: Assembly, database_url: str) -> None:
    """Another server has stored it, and the hint was lost."""
    worker, waiting = await waiting_worker(api, assembly, tasks=["noop", "other"])
    before = handed_off()
    async with another_server(database_url) as server:
        older = await submit(server, task="other")
    job_id = await submit(api)
    assert await taken(waiting) == [older] and handed_off() == before
    assert [order.job_id for order in await worker.claim()] == [job_id]


@pytest.mark.parametrize("which", ["queue", "tenant"])
async def test_nothing_goes_through_a_pause_of_which_this_server_was_not_told(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection, which: str
) -> None:
    _, waiting = await waiting_worker(api, assembly)
    async with another_server(database_url) as other:
        path = "/v1/queues/default:pause" if which == "queue" else "/v1/pause"
        assert (await other.post(path)).status_code == 200
        await submit(api)
        [row] = await live(connection)
        assert (row["state"], row["worker_id"]) == (1, None)
    waiting.cancel()


async def test_a_pause_waits_for_a_hand_off_that_is_under_way(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    _, waiting = await waiting_worker(api, assembly)
    async with held_up(connection, database_url):
        submitted = asyncio.create_task(submit(api))
        await stands(connection)
        pause = asyncio.create_task(api.post("/v1/queues/default:pause"))
        while not await connection.fetchval("select count(*) from mainspring.gates where paused_at is not null"):
            await asyncio.sleep(0)
        for _ in range(20):
            await connection.fetchval("select 1")
            assert not pause.done()
    assert (await pause).status_code == 200
    assert await taken(waiting) == [await submitted]


async def test_a_limit_of_the_queue_is_kept(api: httpx.AsyncClient, assembly: Assembly) -> None:
    worker, waiting = await waiting_worker(api, assembly, free=5)
    before = handed_off()
    assert (await api.put("/v1/queues/default", json={"concurrency": 1})).status_code == 200
    first = await submit(api)
    assert await taken(waiting) == [first] and handed_off() == before
    await submit(api)
    assert (await worker.exchange(free=5)).runs == []


async def test_a_worker_that_drains_gets_nothing(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    """It was told at another server, and this one does not know it."""
    worker, waiting = await waiting_worker(api, assembly)
    async with another_server(database_url) as other:
        assert (await other.post(f"/v1/workers/{worker.worker_id}:drain")).status_code == 202
        await submit(api)
        [row] = await live(connection)
        assert (row["state"], row["worker_id"]) == (1, None)
    reply = await waiting
    assert reply.runs == [] and reply.drain


async def test_a_worker_that_has_gone_on_at_another_server_gets_nothing_here(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str
) -> None:
    worker, waiting = await waiting_worker(api, assembly)
    before = handed_off()
    async with another_server(database_url) as other:
        worker.api = other
        await worker.exchange(recover=True)
        job_id = await submit(api)
        reply = await waiting
        assert (reply.superseded, reply.runs, handed_off()) == (True, [], before)
        assert [order.job_id for order in await worker.claim()] == [job_id]


async def test_a_worker_whose_row_is_held_delays_no_submission(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    worker, waiting = await waiting_worker(api, assembly)
    holder = await asyncpg.connect(database_url)
    async with holder.transaction():
        await holder.execute("select from mainspring.workers where worker_id = $1 for update", worker.worker_id)
        await submit(api)
        [row] = await live(connection)
        assert row["state"] == 1
    await holder.close()
    reply = await waiting
    assert reply.superseded or len(reply.runs) == 1


@pytest.mark.parametrize("newer", ["at this server", "with recover"])
async def test_a_newer_exchange_does_not_take_the_answer_from_a_hand_off_that_is_under_way(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection, newer: str
) -> None:
    worker, waiting = await waiting_worker(api, assembly)
    async with held_up(connection, database_url):
        submitted = asyncio.create_task(submit(api))
        await stands(connection)
        if newer == "with recover":  # it waits for the row of the worker
            recovering = asyncio.create_task(worker.exchange(recover=True))
            await until(lambda: next(iter(assembly.long_polls._waiters.values())).seq == worker.seq)
        else:
            assert (await worker.exchange()).runs == []
        assert not waiting.done()
    job_id = await submitted
    reply = await waiting
    assert [order.job_id for order in reply.runs] == [job_id] and not reply.superseded
    if newer == "with recover":
        again = await recovering
        assert again.superseded or [order.run_id for order in again.runs] == [reply.runs[0].run_id]
    await worker.report(outcome(reply.runs[0]))


async def test_other_reasons_to_wake_do_not_take_the_answer_from_a_hand_off_that_is_under_way(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    worker, waiting = await waiting_worker(api, assembly, free=3)
    async with held_up(connection, database_url):
        submitted = asyncio.create_task(submit(api))
        await stands(connection)
        assembly.long_polls.request_stop(worker.worker_id)
        assembly.long_polls.offer(dict.fromkeys(assembly.long_polls.wanted_lanes(), 1))
        assembly.long_polls.close()
        for _ in range(20):
            await connection.fetchval("select 1")
        assert not waiting.done()
    assert await taken(waiting) == [await submitted]


async def test_a_hand_off_that_is_undone_leaves_the_worker_waiting(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    """PostgreSQL refuses the run. Nothing was stored."""
    _, waiting = await waiting_worker(api, assembly)
    await connection.execute("alter table mainspring.runs add constraint odd check (name is distinct from 'odd')")
    assert (await api.post("/v1/jobs", json={"task": "noop", "name": "odd"})).status_code >= 500
    assert not waiting.done()
    job_id = await submit(api)
    assert await taken(waiting) == [job_id]


@pytest.mark.parametrize("stored", [True, False])
async def test_after_a_commit_in_doubt_the_worker_recovers(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection, stored: bool
) -> None:
    """The connection is lost while the hand-off is under way: the exchange fails, and does not say that it got
    nothing."""
    worker, waiting = await waiting_worker(api, assembly)
    await give_up(waiting)
    asking = await start_asking(assembly, worker)
    if stored:
        await connection.execute(
            """create function mainspring.cut() returns trigger language plpgsql as $$
               begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$"""
        )
        await connection.execute(
            """create constraint trigger cut after insert on mainspring.runs deferrable initially deferred
               for each row execute function mainspring.cut()"""
        )
        answer = await api.post("/v1/jobs", json={"task": "noop"})
    else:
        async with held_up(connection, database_url):
            submitted = asyncio.create_task(api.post("/v1/jobs", json={"task": "noop"}))
            await connection.execute("select pg_terminate_backend($1)", await stands(connection))
            answer = await submitted
    assert answer.status_code == 503, answer.text
    assert (await asking).status_code == 503
    rows = await live(connection)
    reply = await worker.exchange(recover=True)
    assert [order.run_id for order in reply.runs] == [row["run_id"] for row in rows]


async def give_up(waiting: LongPoll) -> None:
    """The client of the exchange is gone. Return once the server knows it, and offers the exchange nothing."""
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting


async def start_asking(assembly: Assembly, worker: HandWorker) -> asyncio.Task[httpx.Response]:
    """Send a long poll whose answer may be an error. Return once it waits at the server."""
    async with until_it_waits(assembly.long_polls, worker.worker_id):
        return asyncio.create_task(worker.ask(free=1, wait_ms=LONG_POLL))


async def test_a_submission_whose_client_has_gone_leaves_no_worker_without_an_answer(
    api: httpx.AsyncClient, assembly: Assembly, database_url: str, connection: asyncpg.Connection
) -> None:
    worker, waiting = await waiting_worker(api, assembly)
    await give_up(waiting)
    asking = await start_asking(assembly, worker)
    async with held_up(connection, database_url):
        submitted = asyncio.create_task(submit(api))
        await stands(connection)
        submitted.cancel()
        answer = await asking
    assert answer.status_code == 503
    rows = await live(connection)
    reply = await worker.exchange(recover=True)
    assert [order.run_id for order in reply.runs] == [row["run_id"] for row in rows if row["state"] == 2]


@pytest.mark.parametrize("which", ["shares", "room", "old"])
async def test_workers_with_shares_and_old_workers_claim(
    api: httpx.AsyncClient, assembly: Assembly, which: str
) -> None:
    worker = HandWorker(api)
    worker.card.protocol = 1 if which == "old" else PROTOCOL.number
    await submit(api)
    await worker.hello()
    await worker.claim()
    fields = {"shares": {"shares": [QueueShare(1, "default")]}, "room": {"room": {"noop": 1}}, "old": {}}[which]
    before = handed_off()
    waiting = await start_waiting(assembly, worker, **fields)
    job_id = await submit(api)
    assert await taken(waiting) == [job_id] and handed_off() == before


async def test_queues_of_a_worker_that_got_runs_by_hand_off_have_had_their_turns(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    """As after claims: what one queue got one by one counts when both have a backlog."""
    worker, waiting = await waiting_worker(api, assembly, queues=["one", "two"])
    for _ in range(3):
        await submit(api, queue="one")
        await taken(waiting)
        waiting = await start_waiting(assembly, worker)
    await give_up(waiting)
    for queue in ("one", "two"):
        await submit_many(api, 4, queue=queue)
    first: ExchangeReply = await worker.exchange(free=4)
    assert [order.queue for order in first.runs].count("two") >= 2


async def test_a_plain_job_costs_one_statement_and_its_report_another(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    worker, waiting = await waiting_worker(api, assembly)
    said: list[str] = []

    def note(query: Any) -> None:
        if "mainspring." in query.query:  # not what the driver asks about types, once for each connection
            said.append(query.query)

    connections = list(assembly.store.connections)
    for connection in connections:
        connection.add_query_logger(note)
    job_id = await submit(api)
    [order] = (await waiting).runs
    assert order.job_id == job_id and len(assembly.store.connections) == len(connections)
    assert len(said) == 1 and "clear as materialized" in said[0], said
    said.clear()
    await worker.report(outcome(order))
    assert len(said) == 1, said
