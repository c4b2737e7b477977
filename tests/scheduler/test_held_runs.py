"""Due jobs with overlap cancel_previous whose runs another transaction holds, such as that of a server which is stopped
while it records an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from mainspring.domain.job import Overlap
from mainspring.kernel.ids import DEFAULT_TENANT
from tests.eventually import PATIENCE
from tests.store.rows import a_job, at, every, live

from .a_node import Node

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stopped(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The connection of a server that is stopped inside a transaction."""
    opened = await asyncpg.connect(database_url)
    await opened.execute("begin")
    yield opened
    await opened.close()


async def replaced_jobs(connection: asyncpg.Connection, node: Node, lane_id: int, kind: str) -> list[str]:
    """Two jobs that fire now, and whose earlier runs are alive."""
    names = ["replaced-1", "replaced-2"]
    for name in names:
        await a_job(connection, lane_id, name, every(60, node.now), node.now, overlap=Overlap.CANCEL_PREVIOUS)
    assert await node.turn() == 2
    await connection.execute("update mainspring.runs set scheduled_for = scheduled_for - interval '1 hour'")
    if kind == "one-time":
        await connection.execute("delete from mainspring.jobs")
        for name in names:
            await a_job(connection, lane_id, name, at(node.now), node.now, overlap=Overlap.CANCEL_PREVIOUS)
    else:
        await connection.execute(
            "update mainspring.jobs set next_fire_at = $1, last_fired_for = null, last_nominal_for = null", node.now
        )
    return names


@pytest.mark.parametrize("kind", ["recurring", "one-time"])
async def test_a_run_that_somebody_holds_delays_only_the_job_that_replaces_it(
    connection: asyncpg.Connection, node: Node, lane_id: int, stopped: asyncpg.Connection, kind: str
) -> None:
    held, free = await replaced_jobs(connection, node, lane_id, kind)
    for number in range(3):
        schedule = at(node.now) if kind == "one-time" else every(60, node.now)
        await a_job(connection, lane_id, f"other-{number}", schedule, node.now, overlap=Overlap.SKIP)
    await stopped.execute("select from mainspring.runs where job_id = $1 for no key update", held)
    await node.loader.run_once()
    async with asyncio.timeout(PATIENCE):
        assert await node.fire_free() == 4
    assert len(await live(connection, free)) == 1, "the new run has replaced the old one"
    assert len(await live(connection, held)) == 1
    assert node.firer.in_flight((DEFAULT_TENANT, held))
    before = [row["run_id"] for row in await live(connection, held)]
    await stopped.execute("rollback")
    assert await node.firer.held_jobs.wait() == 1
    after = [row["run_id"] for row in await live(connection, held)]
    assert len(after) == 1 and after != before
