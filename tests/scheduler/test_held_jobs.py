"""Due jobs whose rows another transaction holds, such as that of a server which is stopped during a PATCH."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from mainspring.domain.job import Overlap
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import fires
from mainspring.store.pool import Store
from tests.eventually import PATIENCE
from tests.store.rows import a_job, at, every, job_row, live, until_blocking

from .a_node import Node

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def stopped(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The connection of a server that is stopped inside a transaction."""
    opened = await asyncpg.connect(database_url)
    await opened.execute("begin")
    yield opened
    await opened.close()


async def hold(stopped: asyncpg.Connection, job_id: str) -> None:
    await stopped.execute("select from mainspring.jobs where job_id = $1 for no key update", job_id)


async def some_jobs(connection: asyncpg.Connection, node: Node, lane_id: int, kind: str, count: int = 9) -> None:
    for number in range(count):
        schedule = at(node.now) if kind == "one-time" else every(60, node.now)
        overlap = Overlap.SKIP if kind == "skip" else Overlap.ALLOW
        await a_job(connection, lane_id, f"job-{number}", schedule, node.now, overlap=overlap)


@pytest.mark.parametrize("kind", ["one-time", "skip", "allow"])
async def test_a_job_that_somebody_holds_does_not_delay_the_others_and_fires_when_it_is_free(
    connection: asyncpg.Connection, node: Node, lane_id: int, stopped: asyncpg.Connection, kind: str
) -> None:
    await some_jobs(connection, node, lane_id, kind)
    await hold(stopped, "job-4")
    await node.loader.run_once()
    async with asyncio.timeout(PATIENCE):
        assert await node.fire_free() == 8
    assert {row["job_id"] for row in await live(connection)} == {f"job-{number}" for number in range(9)} - {"job-4"}
    assert node.firer.in_flight((DEFAULT_TENANT, "job-4"))
    assert await node.loader.run_once() == 0, "the scan does not bring it back meanwhile"
    await stopped.execute("rollback")
    assert await node.firer.held_jobs.wait() == 1
    assert [row["scheduled_for"] for row in await live(connection, "job-4")] == [node.now]
    assert not node.firer.in_flight((DEFAULT_TENANT, "job-4"))
    assert await node.turn() == 0


async def test_a_job_that_somebody_holds_for_long_is_not_set_aside(
    connection: asyncpg.Connection,
    node: Node,
    lane_id: int,
    stopped: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is waited for again and again, and others that become due meanwhile fire."""
    monkeypatch.setattr("mainspring.scheduler.firer.LOCK_TIMEOUT", "1ms")
    waited = 0
    await_due = fires.await_due

    async def count(*arguments: Any) -> list[fires.DueJob]:
        nonlocal waited
        waited += 1
        return await await_due(*arguments)

    monkeypatch.setattr(fires, "await_due", count)
    await some_jobs(connection, node, lane_id, "skip", 3)
    await hold(stopped, "job-0")
    await hold(stopped, "job-1")
    assert await node.loader.run_once() == 3
    assert await node.fire_free() == 1
    async with asyncio.timeout(PATIENCE):
        while waited < 5:
            await asyncio.sleep(0)
    await a_job(connection, lane_id, "later", every(60, node.now), node.now)
    assert await node.loader.run_once() == 1
    assert await node.fire_free() == 1
    await stopped.execute("rollback")
    assert await node.firer.held_jobs.wait() == 2
    assert len(await live(connection)) == 4


async def test_a_job_that_is_changed_by_its_holder_fires_as_it_is_then(
    connection: asyncpg.Connection, node: Node, lane_id: int, stopped: asyncpg.Connection
) -> None:
    await some_jobs(connection, node, lane_id, "skip", 1)
    await stopped.execute("""update mainspring.jobs set version = version + 1, payload = '{"n":2}'""")
    await node.loader.run_once()
    firing = asyncio.create_task(node.fire())
    await until_blocking(connection, stopped.get_server_pid())
    await stopped.execute("commit")
    assert await firing == 1
    assert (await job_row(connection, "job-0"))["last_fired_for"] == node.now
    assert [row["payload"] for row in await live(connection)] == ['{"n":2}']


async def test_many_jobs_that_changed_are_fired_in_one_batch(
    connection: asyncpg.Connection, node: Node, lane_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await some_jobs(connection, node, lane_id, "skip", 40)
    await node.loader.run_once()
    await connection.execute("update mainspring.jobs set version = version + 1")
    monkeypatch.setattr(fires, "await_due", None)  # nobody holds them
    assert await node.fire_free() == 0
    assert await node.firer.held_jobs.wait() == 40


async def test_a_one_time_job_that_is_run_by_hand_all_the_time_fires(
    connection: asyncpg.Connection, node: Node, lane_id: int, stopped: asyncpg.Connection
) -> None:
    """Each run by hand writes the job's row, and a fire that was prepared before does not match it."""
    await a_job(connection, lane_id, "launch", at(node.now), node.now, overlap=Overlap.ALLOW)
    await node.loader.run_once()
    await stopped.execute("update mainspring.jobs set version = version")
    firing = asyncio.create_task(node.fire())
    await until_blocking(connection, stopped.get_server_pid())
    await stopped.execute("commit")
    assert await firing == 1
    assert await connection.fetchval("select count(*) from mainspring.jobs") == 0


async def test_held_jobs_are_forgotten_when_the_database_is_away(
    connection: asyncpg.Connection, store: Store, node: Node, lane_id: int, stopped: asyncpg.Connection
) -> None:
    await some_jobs(connection, node, lane_id, "skip", 2)
    await hold(stopped, "job-1")
    await node.loader.run_once()
    assert await node.fire_free() == 1
    await until_blocking(connection, stopped.get_server_pid())
    store.cut()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await node.firer.held_jobs.wait()
    assert not node.firer.in_flight((DEFAULT_TENANT, "job-1"))
    await stopped.execute("rollback")
    assert await node.turn() == 1


async def test_a_job_that_is_changed_all_the_time_fires(
    connection: asyncpg.Connection, node: Node, lane_id: int, stopped: asyncpg.Connection
) -> None:
    """Its row is never free for long. The fire waits in line for it."""
    await some_jobs(connection, node, lane_id, "skip", 1)
    await hold(stopped, "job-0")
    await node.loader.run_once()
    firing = asyncio.create_task(node.fire())
    await until_blocking(connection, stopped.get_server_pid())
    next_in_line = asyncio.create_task(connection.execute("select from mainspring.jobs for no key update"))
    await stopped.execute("commit")
    assert await firing == 1
    await next_in_line
