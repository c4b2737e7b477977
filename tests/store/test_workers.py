"""Workers: an ended incarnation stays ended, and of two copies of one exchange, only one gets the row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT, TenantId, uuid7
from mainspring.store import workers
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import WorkerHello
from tests.eventually import PATIENCE

from .rows import a_lane, a_worker, beat, claim, queued, until_blocked

pytestmark = pytest.mark.anyio

HELLO = WorkerHello(name="a worker", queues=["default"], tasks=["work"], slots=10)


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(database_url)
    yield opened
    await opened.close()


async def advance(connection: asyncpg.Connection, worker_id: object, seq: int, *, again: bool = False) -> bool:
    return await workers.advance(connection, DEFAULT_TENANT, worker_id, seq, again=again)  # type: ignore[arg-type]


async def test_a_hello_that_is_repeated_changes_only_what_is_offered(connection: asyncpg.Connection) -> None:
    worker_id = uuid7()
    assert await workers.register(connection, DEFAULT_TENANT, worker_id, HELLO)
    assert await advance(connection, worker_id, 5)
    more = WorkerHello(name="a worker", queues=["default", "heavy"], tasks=["work"], slots=20)
    assert await workers.register(connection, DEFAULT_TENANT, worker_id, more)
    row = await workers.registration(connection, DEFAULT_TENANT, worker_id)
    assert row is not None
    assert (row.queues, row.slots, row.last_seq) == (["default", "heavy"], 20, 5)


@pytest.mark.parametrize("state", [WorkerState.LOST, WorkerState.STOPPED], ids=lambda state: state.name)
async def test_an_incarnation_that_ended_does_not_come_back(connection: asyncpg.Connection, state: WorkerState) -> None:
    worker_id = await a_worker(connection)
    assert await workers.set_state(connection, worker_id, state)
    assert not await workers.register(connection, DEFAULT_TENANT, worker_id, HELLO)
    assert not await advance(connection, worker_id, 1)
    assert not await workers.set_state(connection, worker_id, WorkerState.LIVE)
    row = await workers.registration(connection, DEFAULT_TENANT, worker_id)
    assert row is not None and row.state == state


async def test_another_tenants_worker_is_nobody(connection: asyncpg.Connection) -> None:
    worker_id = await a_worker(connection)
    stranger = TenantId(2)
    assert not await workers.register(connection, stranger, worker_id, HELLO)
    assert not await workers.advance(connection, stranger, worker_id, 1, again=False)
    assert await workers.registration(connection, stranger, worker_id) is None


async def test_the_number_of_an_exchange_must_rise(connection: asyncpg.Connection) -> None:
    worker_id = await a_worker(connection)
    assert await advance(connection, worker_id, 1)
    assert not await advance(connection, worker_id, 1)
    assert await advance(connection, worker_id, 1, again=True)  # the same exchange, after its long poll
    assert await advance(connection, worker_id, 7)
    assert not await advance(connection, worker_id, 6)
    assert not await advance(connection, worker_id, 6, again=True)


async def test_of_two_copies_of_one_exchange_the_second_waits_and_is_refused(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    worker_id = await a_worker(connection)
    transaction = connection.transaction()
    await transaction.start()
    assert await advance(connection, worker_id, 1)
    copy = asyncio.create_task(advance(other, worker_id, 1))
    await until_blocked(connection, other.get_server_pid())
    await transaction.commit()
    assert not await copy


async def test_the_silent_are_those_without_a_beat_in_either_table(connection: asyncpg.Connection) -> None:
    quiet = await a_worker(connection, "quiet")
    heard = [await a_worker(connection, f"heard in {table}") for table in (0, 1)]
    for table, worker_id in enumerate(heard):
        await beat(connection, worker_id, ago=300.0, table=table)
    await beat(connection, quiet, ago=700.0)
    assert [row.worker_id for row in await workers.silent(connection, 600.0)] == [quiet]
    assert len(await workers.silent(connection, 200.0)) == 3


async def test_the_list_says_what_each_holds_and_when_it_was_heard(connection: asyncpg.Connection) -> None:
    busy, idle = await a_worker(connection, "busy"), await a_worker(connection, "idle")
    lane_id = await a_lane(connection)
    await queued(connection, lane_id, 4)
    one, two, _ = await claim(connection, [lane_id], 3, busy)
    await workers.note_starts(connection, busy, [(one.run_id, one.fence, 300.0), (two.run_id, two.fence, 0.0)])
    for ago, table in ((60.0, 0), (5.0, 1)):
        await beat(connection, busy, ago=ago, table=table)
    rows = {row.worker_id: row for row in await workers.list_workers(connection, DEFAULT_TENANT, 1000)}
    assert [(row.running, row.holding) for row in (rows[busy], rows[idle])] == [(2, 3), (0, 0)]
    alone = await workers.view(connection, DEFAULT_TENANT, busy)
    assert alone is not None and (alone.running, alone.holding) == (2, 3)
    assert rows[idle].last_beat_at is None
    newest = await connection.fetchval("select max(at) from mainspring.worker_beats_1")
    assert rows[busy].last_beat_at == newest


async def test_offers_are_those_of_the_living(connection: asyncpg.Connection) -> None:
    await a_worker(connection)
    gone = await a_worker(connection)
    await workers.set_state(connection, gone, WorkerState.STOPPED)
    assert await workers.offers(connection, DEFAULT_TENANT) == [workers.Offer({"default"}, {"work"}, {})]
    assert await workers.offers_by_queue(connection, DEFAULT_TENANT) == {"default": 1}


async def test_emptying_a_table_of_beats_never_waits_for_a_reader(
    connection: asyncpg.Connection, other: asyncpg.Connection
) -> None:
    """A statement that waits for a table lock makes every heartbeat wait behind it."""
    await beat(connection, uuid7(), ago=31.0)
    async with other.transaction(), asyncio.timeout(PATIENCE):
        await other.fetch("select from mainspring.worker_beats_0")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await workers.truncate_beats(connection, 0)
    assert await workers.truncate_beats(connection, 0)


async def test_a_lost_worker_keeps_its_last_beat(connection: asyncpg.Connection) -> None:
    """Somebody on call wants to know when it was heard last, also after the tables of beats were emptied."""
    lost = await a_worker(connection)
    await beat(connection, lost, ago=40.0)
    heard = await connection.fetchval("select max(at) from mainspring.worker_beats_0")
    await workers.set_state(connection, lost, WorkerState.LOST)
    assert await workers.truncate_beats(connection, 0)
    [row] = await workers.list_workers(connection, DEFAULT_TENANT, 10)
    assert (row.worker_id, row.last_beat_at) == (lost, heard)
