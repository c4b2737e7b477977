"""Exchanges that arrive together share one statement. What does not fit in goes on by itself, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel import metrics
from mainspring.roles.assembly import Assembly
from mainspring.wire.exchange import ExchangeReply
from mainspring.wire.protocol import PROTOCOL
from tests.eventually import PATIENCE
from tests.operations.hand_worker import HandWorker, held, outcome
from tests.operations.servers import another_server
from tests.operations.test_exchange import submit
from tests.store.rows import ended, live

pytestmark = pytest.mark.anyio


async def greeted(api: httpx.AsyncClient, count: int, **fields: Any) -> list[HandWorker]:
    workers = [HandWorker(api, **fields) for _ in range(count)]
    for worker in workers:
        worker.card.protocol = PROTOCOL.number
        await worker.hello()
    return workers


async def at_once(workers: list[HandWorker], **fields: Any) -> list[ExchangeReply]:
    return list(await asyncio.gather(*(worker.exchange(**fields) for worker in workers)))


def grouped() -> tuple[float, float]:
    """How many statements there were, and how many exchanges they wrote."""
    return metrics.exchange_groups._value.get(), metrics.grouped_exchanges._value.get()


async def test_many_exchanges_are_written_by_few_statements_and_each_gets_its_own_answer(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    workers = await greeted(api, 20)
    made = await submit(api, 40)
    before = grouped()
    replies = await at_once(workers, free=2)
    taken = [[order.job_id for order in reply.runs] for reply in replies]
    assert sorted(job_id for each in taken for job_id in each) == sorted(made)
    reports = await asyncio.gather(
        *(
            worker.report(*map(outcome, reply.runs))
            for worker, reply in zip(workers, replies, strict=True)
            if reply.runs
        )
    )
    assert all(reply.fenced == [] and not reply.superseded for reply in reports)
    statements, exchanges = (after - earlier for after, earlier in zip(grouped(), before, strict=True))
    assert exchanges >= 20 and statements <= exchanges / 2, "on a busy machine a few go on by themselves"
    rows = await ended(connection)
    assert sorted(str(row["run_id"]) for row in rows) == sorted(made)
    owners = {str(row["run_id"]): row["worker_id"] for row in rows}
    for worker, jobs in zip(workers, taken, strict=True):
        assert {owners[job_id] for job_id in jobs} <= {worker.worker_id}


async def test_an_exchange_alone_is_one_statement(api: httpx.AsyncClient) -> None:
    await submit(api, 2)
    [worker] = await greeted(api, 1)
    [order] = (await worker.exchange(free=1)).runs
    before = grouped()
    reply = await worker.exchange(free=1, outcomes=[outcome(order, result={"sum": 3})])
    assert (reply.acked, len(reply.runs)) == (1, 1)
    assert tuple(after - earlier for after, earlier in zip(grouped(), before, strict=True)) == (1, 1)


async def test_outcomes_of_every_kind_in_exchanges_that_arrive_together_are_recorded(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api, 8, retry={"max_attempts": 1})
    workers = await greeted(api, 4)
    orders = [(await worker.exchange(free=2)).runs for worker in workers]
    assert [len(each) for each in orders] == [2, 2, 2, 2]
    outcomes = [
        [outcome(orders[0][0], result={"n": 1}), outcome(orders[0][1])],
        [outcome(orders[1][0]), outcome(orders[1][1], "FAILED", error="no")],
        [outcome(orders[2][0]), outcome(orders[3][0])],  # the second is not its own
        [outcome(orders[3][0]), outcome(orders[3][0]), outcome(orders[3][1])],  # one twice
    ]
    replies = await asyncio.gather(
        *(worker.exchange(outcomes=each) for worker, each in zip(workers, outcomes, strict=True))
    )
    assert [reply.acked for reply in replies] == [2, 2, 2, 3]
    assert [reply.fenced for reply in replies] == [[], [], [orders[3][0].run_id], []]
    rows = {row["run_id"]: row for row in await ended(connection)}
    assert len(rows) == 7 and [row["run_id"] for row in await live(connection)] == [orders[2][1].run_id]
    assert rows[orders[1][1].run_id]["error"] == "no"
    assert rows[orders[3][0].run_id]["worker_id"] == workers[3].worker_id
    assert rows[orders[0][0].run_id]["result"] == '{"n":1}'


async def test_a_report_that_is_repeated_is_acknowledged_and_counts_once(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await submit(api)
    [worker] = await greeted(api, 1)
    [order] = (await worker.exchange(free=1)).runs
    for _ in range(2):
        reply = await worker.exchange(outcomes=[outcome(order)])
        assert (reply.acked, reply.fenced, reply.superseded) == (1, [], False)
    assert len(await ended(connection)) == 1


@pytest.mark.parametrize("wrong", ["fence", "seq"])
async def test_an_exchange_that_cannot_be_stored_is_refused_and_does_not_touch_the_others(
    api: httpx.AsyncClient, connection: asyncpg.Connection, wrong: str
) -> None:
    """PostgreSQL refuses one of the values, and the driver the other."""
    await submit(api, 3)
    workers = await greeted(api, 3)
    orders = [(await worker.exchange(free=1)).runs[0] for worker in workers]
    bad = outcome(orders[1])
    if wrong == "fence":
        bad.fence = 2**40
    else:
        workers[1].seq = 2**70
    answers = await asyncio.gather(
        workers[0].ask(outcomes=[outcome(orders[0])]), workers[1].ask(outcomes=[bad], free=1),
        workers[2].ask(outcomes=[outcome(orders[2])]),
    )  # fmt: skip
    assert [answer.status_code for answer in answers[::2]] == [200, 200]
    assert 400 <= answers[1].status_code < 500
    assert {row["run_id"] for row in await ended(connection)} == {orders[0].run_id, orders[2].run_id}


async def test_an_answer_that_is_lost_with_its_connection_is_recovered(
    api: httpx.AsyncClient, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    """The statement is carried out, and the server does not learn it: no answer says that the worker got nothing."""
    await submit(api, 2)
    [worker] = await greeted(api, 1)
    [first] = (await worker.exchange(free=1)).runs
    async with assembly.store.groups.acquire() as own:
        pid = await own.fetchval("select pg_backend_pid()")
    await connection.execute(
        f"""create function mainspring.cut() returns trigger language plpgsql as $$
            begin perform pg_terminate_backend({pid}); return null; end $$"""
    )
    await connection.execute(
        """create constraint trigger cut after update on mainspring.workers deferrable initially deferred
           for each row execute function mainspring.cut()"""
    )
    answer = await worker.ask(free=1, outcomes=[outcome(first)])
    assert answer.status_code == 503, answer.text
    await connection.execute("drop trigger cut on mainspring.workers")
    reply = await worker.exchange(recover=True, outcomes=[outcome(first)], inventory=held())
    assert reply.acked == 1 and reply.fenced == []
    rest = reply.runs or (await worker.exchange(free=1)).runs
    assert len(rest) == 1 and len(await ended(connection)) == 1


async def test_workers_of_several_tasks_and_labels_share_a_statement_and_get_only_their_runs(
    api: httpx.AsyncClient,
) -> None:
    for task in ("a", "b", "c"):
        await submit(api, 10, task=task)
    workers = [*await greeted(api, 5, tasks=["a", "b"]), *await greeted(api, 5, tasks=["b", "c"])]
    replies = await at_once(workers, free=3)
    tasks = [Counter(order.task for order in reply.runs) for reply in replies]
    assert all(set(each) <= {"a", "b"} for each in tasks[:5]) and all(set(each) <= {"b", "c"} for each in tasks[5:])
    runs = [order.run_id for reply in replies for order in reply.runs]
    assert len(runs) == len(set(runs)) >= 20, "two groups of lanes may want the same run; only one gets it"


async def test_two_servers_with_groups_never_give_a_run_to_two_workers(
    api: httpx.AsyncClient, database_url: str, connection: asyncpg.Connection
) -> None:
    made = await submit(api, 60)
    async with another_server(database_url) as other:
        workers = [*await greeted(api, 10), *await greeted(other, 10)]
        done = 0
        while done < len(made):
            replies = await at_once(workers, free=2)
            orders = [reply.runs for reply in replies]
            done += sum(map(len, orders))
            await asyncio.gather(
                *(worker.report(*map(outcome, each)) for worker, each in zip(workers, orders, strict=True) if each)
            )
    rows = await ended(connection)
    assert sorted(str(row["run_id"]) for row in rows) == sorted(made) and {row["fence"] for row in rows} == {1}


@pytest.mark.parametrize("which", ["paused", "limited"])
async def test_a_queue_that_is_paused_or_limited_meanwhile_is_known_to_the_next_group(
    api: httpx.AsyncClient, database_url: str, which: str
) -> None:
    """The change is made at another server, and this one has heard nothing of it."""
    await submit(api, 4)
    workers = await greeted(api, 2)
    assert len((await workers[0].exchange(free=1)).runs) == 1
    async with another_server(database_url) as other:
        if which == "paused":
            answer = await other.post("/v1/queues/default:pause")
        else:
            answer = await other.put("/v1/queues/default", json={"concurrency": 2})
        assert answer.status_code == 200, answer.text
        replies = await at_once(workers, free=1)
        replies += await at_once(workers, free=1)
    assert sum(len(reply.runs) for reply in replies) == (0 if which == "paused" else 1)


async def test_a_table_that_somebody_has_locked_delays_no_reply_for_long(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    """As a change of the schema does. The workers keep their leases and come back."""
    await submit(api, 6)
    workers = await greeted(api, 3)
    orders = [(await worker.exchange(free=1)).runs[0] for worker in workers]
    async with connection.transaction():
        await connection.execute("lock table mainspring.runs in access exclusive mode")
        async with asyncio.timeout(PATIENCE):
            replies = await asyncio.gather(
                *(
                    worker.exchange(outcomes=[outcome(order)], free=1)
                    for worker, order in zip(workers, orders, strict=True)
                )
            )
    assert all(reply.superseded and reply.retry_in and not reply.runs for reply in replies)
    replies = await asyncio.gather(
        *(worker.exchange(outcomes=[outcome(order)], free=1) for worker, order in zip(workers, orders, strict=True))
    )
    assert [(reply.acked, len(reply.runs), reply.fenced) for reply in replies] == [(1, 1, [])] * 3


async def test_exchanges_that_wait_for_a_statement_that_hangs_are_answered_within_a_second(
    api: httpx.AsyncClient, assembly: Assembly
) -> None:
    """The connection of the groups hangs. A few exchanges go on by themselves, the others are told to come back."""
    await submit(api, 30)
    workers = await greeted(api, 12)
    assert (await workers[0].exchange(free=1)).runs
    async with assembly.store.groups.acquire():
        first = asyncio.create_task(workers[0].exchange(free=1))
        while assembly.store.urgent_wait == 0.0 and not first.done():
            await asyncio.sleep(0)
            if assembly.store.groups._queue.empty() and not assembly.services.exchanger._transaction._groups._pending:
                break
        async with asyncio.timeout(PATIENCE):
            replies = await at_once(workers[1:], free=1)
    assert sum(len(reply.runs) for reply in replies) >= 4, "some went on by themselves"
    assert all(len(reply.runs) == 1 or (reply.superseded and reply.retry_in) for reply in replies)
    assert len((await first).runs) == 1, "it was not sent, and is written when the connection is back"
