"""Schedulers that die, lose their lease or their database: nothing fires twice, is stuck or is forgotten."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from mainspring.domain.job import Overlap
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.ids import uuid7
from mainspring.store import leases
from mainspring.store.pool import AWAY, Store
from tests.scheduler.a_node import Node, a_node
from tests.store.rows import a_job, at, ended, every, job_row, live, until_blocking

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
# Between the two writes of a fire, after both, and in the commit.
CRASHES = {
    "run not written yet": "create trigger crash before insert on mainspring.runs",
    "both written": "create trigger crash after insert on mainspring.runs",
    "in the commit": "create constraint trigger crash after insert on mainspring.runs deferrable initially deferred",
}


async def crash_at(connection: asyncpg.Connection, moment: str) -> None:
    """Let a backend end at that point, as if its server had been killed."""
    await connection.execute(
        "create function mainspring.crash() returns trigger language plpgsql as "
        "$$ begin perform pg_terminate_backend(pg_backend_pid()); return new; end $$"
    )
    await connection.execute(f"{moment} for each row execute function mainspring.crash()")


async def lapse(connection: asyncpg.Connection) -> None:
    """Let all leases expire."""
    await connection.execute("update mainspring.shard_leases set expires_at = clock_timestamp()")


@pytest.mark.parametrize("moment", CRASHES.values(), ids=CRASHES.keys())
async def test_a_crash_between_creating_the_run_and_advancing_the_job_leaves_neither(
    connection: asyncpg.Connection, node: Node, lane_id: int, moment: str
) -> None:
    """Each kind of job is tested, because each is fired by its own statement."""
    for kind in ("one-time", "overlap skip", "overlap allow"):
        schedule = at(node.now) if kind == "one-time" else every(60, node.now)
        overlap = Overlap.ALLOW if kind == "overlap allow" else Overlap.SKIP
        await a_job(connection, lane_id, kind, schedule, node.now, overlap=overlap)
        before = await job_row(connection, kind)
        await crash_at(connection, moment)
        with pytest.raises(AWAY):
            await node.turn()
        assert await live(connection, kind) == [] == await ended(connection)
        assert await job_row(connection, kind) == before
        await connection.execute("drop function mainspring.crash cascade")
        assert [await node.turn(), await node.turn()] == [1, 0]
        assert [row["scheduled_for"] for row in await live(connection, kind)] == [node.now]


async def test_a_scheduler_that_dies_leaves_no_job_acquired(
    connection: asyncpg.Connection, store: Store, node: Node, lane_id: int
) -> None:
    """The wheel of a node is only in its memory. No mark in the database remains after its death."""
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    before = await job_row(connection, "nightly")
    assert await node.loader.run_once() == 1
    assert await job_row(connection, "nightly") == before
    await lapse(connection)
    successor = await a_node(store, connection)
    assert await successor.turn() == 1
    assert await node.fire() == 0  # it was still alive


async def test_a_scheduler_that_lost_its_lock_fires_nothing_and_goes_on_when_it_has_it_again(
    connection: asyncpg.Connection, store: Store, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "ticker", every(1, node.now), node.now, overlap=Overlap.ALLOW)
    assert await node.turn() == 1
    await lapse(connection)
    other = await a_node(store, connection)
    node.clock.advance(1.0)
    assert await node.turn() == 0  # it still trusts its lease
    assert len(await live(connection)) == 1
    await leases.release(connection, other.node_id, other.held)
    node.held = await leases.take(connection, node.node_id, range(128), 600.0)
    assert await node.turn() == 1
    assert [row["scheduled_for"] for row in await live(connection)] == [node.now, node.now + SECOND]


async def test_a_change_of_leader_loses_no_fire(
    connection: asyncpg.Connection, store: Store, node: Node, lane_id: int
) -> None:
    """Three fires became due without an owner, within the time of a take-over. The new owner runs all of them."""
    first = node.now - 3 * SECOND
    await a_job(connection, lane_id, "ticker", every(1, first), first, overlap=Overlap.ALLOW)
    await lapse(connection)
    successor = Node(store, node.now, uuid7())  # with the same time, however long the test has taken
    successor.held = await leases.take(connection, successor.node_id, range(128), 600.0)
    assert await node.turn() == 0
    assert await successor.turn() == 4
    fired = [row["scheduled_for"] for row in await live(connection)]
    assert fired == [first + number * SECOND for number in range(4)]


async def test_a_database_blip_does_not_unarm_a_schedule(
    connection: asyncpg.Connection, database_url: str, store: Store, node: Node, lane_id: int
) -> None:
    """Every second all connections are lost during the fire, which PostgreSQL may or may not finish. There is no
    NOTIFY. The job is neither forgotten nor fired twice."""
    await a_job(connection, lane_id, "ticker", every(1, node.now), node.now, overlap=Overlap.ALLOW)
    blocker = await asyncpg.connect(database_url)
    for _ in range(3):
        await node.loader.run_once()
        async with blocker.transaction():
            await blocker.execute("select from mainspring.jobs for update")
            firing = asyncio.create_task(node.fire())
            await until_blocking(connection, blocker.get_server_pid())
            store.cut()
            with pytest.raises(AWAY):
                await firing
        await node.turn()
        node.clock.advance(1.0)
    await blocker.close()
    fired = [row["scheduled_for"] for row in await live(connection)]
    assert fired == [node.now + number * SECOND for number in range(3)]
    job = await job_row(connection, "ticker")
    assert (job["status"], job["next_fire_at"]) == (StoredJobStatus.SCHEDULED, node.now + 3 * SECOND)
