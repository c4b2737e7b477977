"""The due-scan: jobs of the own shards that fire soon are put into the wheel once."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT
from tests.store.rows import a_job, at, every, job_row

from .a_node import TIMING, Node

pytestmark = pytest.mark.anyio


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


async def test_what_is_due_within_the_look_ahead_is_loaded_and_the_rest_is_not(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    for job_id, ahead in {"long ago": -86_400, "past": -1, "now": 0, "tomorrow": 86_400}.items():
        await a_job(connection, lane_id, job_id, at(node.now + seconds(ahead)), node.now + seconds(ahead))
    await a_job(connection, lane_id, "by hand", every(60, node.now), None)
    assert await node.loader.run_once() == 3
    assert len(node.wheel) == 3
    assert (DEFAULT_TENANT, "tomorrow") not in node.wheel
    assert (DEFAULT_TENANT, "by hand") not in node.wheel


async def test_what_is_loaded_ahead_waits_for_its_moment(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    moment = node.now + seconds(TIMING.look_ahead / 2)
    await a_job(connection, lane_id, "soon", at(moment), moment)
    assert await node.turn() == 0
    assert len(node.wheel) == 1
    node.clock.advance(TIMING.look_ahead / 2 - 0.01)
    assert await node.fire() == 0
    node.clock.advance(0.02)
    assert await node.fire() == 1


async def test_only_shards_that_are_held_are_scanned(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    for number in range(20):
        await a_job(connection, lane_id, f"job-{number}", at(node.now), node.now)
    shard = (await job_row(connection, "job-7"))["shard"]
    mine = await connection.fetchval("select count(*) from mainspring.jobs where shard = $1", shard)
    node.held = {shard: 1}
    assert await node.loader.run_once() == mine
    node.held = {}
    assert await node.loader.run_once() == 0


async def test_a_job_is_loaded_once_until_it_changes(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    assert await node.loader.run_once() == 1
    assert await node.loader.run_once() == 0
    await connection.execute("update mainspring.jobs set version = 2")
    assert await node.loader.run_once() == 1
    await connection.execute("update mainspring.jobs set next_fire_at = next_fire_at - interval '1 s'")
    assert await node.loader.run_once() == 1
    assert len(node.wheel) == 1
    known = node.wheel.get((DEFAULT_TENANT, "nightly"))
    assert known is not None
    assert (known.version, known.next_fire_at) == (2, node.now - seconds(1))


async def test_loading_wakes_the_driver_and_an_empty_scan_does_not(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    woken: list[int] = []
    node.loader.loaded = lambda: woken.append(1)
    await node.loader.run_once()
    assert woken == []
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await node.loader.run_once()
    assert woken == [1]


async def test_a_commit_that_comes_late_is_not_skipped(
    database_url: str, connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    """The fire time of a job can pass before its transaction is visible. The scan has no lower bound."""
    late = await asyncpg.connect(database_url)
    transaction = late.transaction()
    await transaction.start()
    await a_job(late, lane_id, "late", at(node.now - seconds(3600)), node.now - seconds(3600))
    assert await node.turn() == 0
    await transaction.commit()
    assert await node.turn() == 1
    await late.close()
