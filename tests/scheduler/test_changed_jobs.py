"""A job that changes between the due-scan and its fire is fired in the same round, as it is now, if it is still due."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import asyncpg
import pytest

from mainspring.domain.job import Overlap
from mainspring.domain.schedules.schedule import Schedule
from mainspring.store import leases
from mainspring.store.pool import Store
from tests.store.rows import a_job, at, ended, every, job_row, live, until_blocking

from .a_node import Node, a_node

pytestmark = pytest.mark.anyio

CHANGE = "update mainspring.jobs set version = version + 1"
BOTH = pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP])


async def test_a_job_that_is_changed_before_every_fire_is_never_late(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    """680 changes a second of one job made its fires late by seconds: each fire met a newer version than its scan."""
    # An hour ago, because the database's clock does not wait for the test.
    first = node.now - timedelta(hours=1)
    await a_job(connection, lane_id, "ticker", every(1, first), first, overlap=Overlap.ALLOW)
    set_back(node, timedelta(hours=1))
    for number in range(30):
        await node.loader.run_once()
        await connection.execute(CHANGE)
        assert await node.fire() == 1
        assert [row["scheduled_for"] for row in await live(connection)][-1] == first + timedelta(seconds=number)
        node.clock.advance(1.0)
    assert (await job_row(connection, "ticker"))["version"] == 31


def set_back(node: Node, by: timedelta) -> None:
    """Set back what the node takes for the database's time."""
    node.clock.advance(11.0)  # its last observation is too old to be compared with
    node.database_clock.observe(node.now - by, node.clock.monotonic(), node.clock.monotonic())
    node.clock.advance(0.01)


@pytest.mark.parametrize("schedule", ["again", "once"])
@BOTH
async def test_a_change_that_the_fire_has_to_wait_for_does_not_cost_the_round(
    database_url: str, connection: asyncpg.Connection, node: Node, lane_id: int, schedule: str, overlap: Overlap
) -> None:
    wanted = every(60, node.now) if schedule == "again" else at(node.now)
    await a_job(connection, lane_id, "nightly", wanted, node.now, overlap=overlap)
    await node.loader.run_once()
    changer = await asyncpg.connect(database_url)
    async with changer.transaction():
        await changer.execute(CHANGE)
        fire = asyncio.create_task(node.fire())
        await until_blocking(connection, changer.get_server_pid())
    assert await fire == 1
    await changer.close()
    assert [row["scheduled_for"] for row in await live(connection)] == [node.now]
    assert node.ready == [{lane_id: 1}]


async def test_the_run_is_that_of_the_new_definition(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    due = node.now
    await a_job(connection, lane_id, "nightly", every(60, due), due)
    await node.loader.run_once()
    await connection.execute(
        f"""{CHANGE}, payload = '{{"n": 2}}',
            schedule = (schedule::jsonb || '{{"every": 3600}}')::json"""
    )
    assert await node.fire() == 1
    [run] = await live(connection)
    assert run["payload"] == '{"n": 2}'
    assert (await job_row(connection, "nightly"))["next_fire_at"] == due + timedelta(hours=1)


@pytest.mark.parametrize(
    "change",
    [
        "status = 2, next_fire_at = null, paused_from = next_fire_at",
        "next_fire_at = next_fire_at + interval '1 hour'",
        "status = 4, next_fire_at = null",
    ],
)
@pytest.mark.parametrize("schedule", ["again", "once"])
async def test_a_job_that_is_no_longer_due_is_not_fired(
    connection: asyncpg.Connection, node: Node, lane_id: int, change: str, schedule: str
) -> None:
    wanted: Schedule = every(60, node.now) if schedule == "again" else at(node.now)
    await a_job(connection, lane_id, "nightly", wanted, node.now)
    await a_job(connection, lane_id, "other", wanted, node.now)
    await node.loader.run_once()
    await connection.execute(f"{CHANGE}, {change} where job_id = 'nightly'")
    assert await node.fire() == 1
    assert [row["job_id"] for row in await live(connection)] == ["other"]
    assert len(await connection.fetch("select from mainspring.jobs where job_id = 'nightly'")) == 1


async def test_a_changed_job_of_a_lost_shard_is_not_fired(
    connection: asyncpg.Connection, store: Store, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await node.loader.run_once()
    await connection.execute(CHANGE)
    await leases.release(connection, node.node_id, node.held)
    successor = await a_node(store, connection)
    assert await node.fire() == 0
    assert await successor.turn() == 1


async def test_overlap_skip_holds_for_a_changed_job(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    assert await node.turn() == 1
    again: datetime = node.now - timedelta(minutes=1)
    await connection.execute(
        "update mainspring.jobs set next_fire_at = $1, last_fired_for = null, last_nominal_for = null", again
    )
    await node.loader.run_once()
    await connection.execute(CHANGE)
    assert await node.fire() == 0
    assert len(await live(connection)) == 1
    assert {row["scheduled_for"] for row in await ended(connection)} <= {again, node.now}
