"""Storms: many jobs are due in the same second. Critical ones fire first, whenever they were loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import pytest

from mainspring.domain.job import Overlap, Priority
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.scheduler import due_loader, firer
from mainspring.store import jobs
from mainspring.store.fires import DueJob
from mainspring.store.jobs import shard_of
from tests.store.rows import a_job, a_lane, every, live

from .a_node import Node

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)


@pytest.fixture
async def critical(connection: asyncpg.Connection) -> int:
    return await a_lane(connection, "urgent", priority=Priority.CRITICAL)


@pytest.fixture(autouse=True)
def one_small_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firer, "BATCH", 10)
    monkeypatch.setattr(firer, "_MAX_BATCHES", 1)


async def many(connection: asyncpg.Connection, node: Node, lane_id: int, count: int, name: str = "job") -> None:
    for number in range(count):
        await a_job(connection, lane_id, f"{name}-{number}", every(60, node.now), node.now, overlap=Overlap.ALLOW)


async def in_one_shard(
    connection: asyncpg.Connection, node: Node, lane_id: int, count: int, later: timedelta = timedelta()
) -> list[str]:
    """Jobs of shard 7."""
    names = (f"{lane_id}-{number}" for number in range(count * 1000))
    chosen = [name for name in names if shard_of(DEFAULT_TENANT, name) == 7][:count]
    for name in chosen:
        await a_job(connection, lane_id, name, every(60, node.now), node.now + later, overlap=Overlap.ALLOW)
    return chosen


async def fired_lanes(connection: asyncpg.Connection) -> list[int]:
    """The lanes of the runs, in the order in which these were created."""
    return [row["lane_id"] for row in await connection.fetch("select lane_id from mainspring.runs order by run_id")]


async def test_critical_jobs_of_a_storm_fire_first(
    connection: asyncpg.Connection, node: Node, lane_id: int, critical: int
) -> None:
    await many(connection, node, lane_id, 40)
    await many(connection, node, critical, 3, "critical")
    assert await node.turn() == 43
    assert await fired_lanes(connection) == [critical] * 3 + [lane_id] * 40


async def test_a_critical_job_that_a_later_scan_loads_overtakes_the_batches_that_wait(
    connection: asyncpg.Connection, node: Node, lane_id: int, critical: int
) -> None:
    await many(connection, node, lane_id, 40)
    await node.loader.run_once()
    storm = node.wheel.advance(node.database_clock.timestamp())
    await many(connection, node, critical, 3, "critical")
    await node.loader.run_once()
    assert await node.firer.fire(storm, lambda: node.wheel.advance(node.database_clock.timestamp())) == 43
    assert await fired_lanes(connection) == [lane_id] * 10 + [critical] * 3 + [lane_id] * 30


async def test_critical_jobs_are_found_behind_more_due_jobs_than_a_scan_reads(
    connection: asyncpg.Connection, node: Node, lane_id: int, critical: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_loader, "_FIRST", 5)
    monkeypatch.setattr(due_loader, "_PER_SHARD", 8)
    await in_one_shard(connection, node, lane_id, 20)
    urgent = await in_one_shard(connection, node, critical, 2, later=SECOND / 200)
    assert await node.loader.run_once() == 10
    assert all((DEFAULT_TENANT, job_id) in node.wheel for job_id in urgent)
    assert await node.fire() == 10
    assert (await fired_lanes(connection))[:2] == [critical] * 2
    assert await node.turn() == 8
    assert await node.turn() == 4


async def test_while_many_jobs_wait_for_their_fire_only_more_urgent_ones_are_loaded(
    connection: asyncpg.Connection, node: Node, lane_id: int, critical: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_loader, "_FIRST", 5)
    monkeypatch.setattr(due_loader, "_ENOUGH", 12)
    await in_one_shard(connection, node, lane_id, 12)
    await node.loader.run_once()
    storm = node.wheel.advance(node.database_clock.timestamp())
    node.firer._add(storm)
    high = await a_lane(connection, "soon", priority=Priority.HIGH)
    late = SECOND / 200
    others = await in_one_shard(connection, node, await a_lane(connection, "other"), 3, later=late)
    urgent = [
        *await in_one_shard(connection, node, critical, 2, late),
        *await in_one_shard(connection, node, high, 2, late),
    ]
    assert await node.loader.run_once() == 4
    assert all((DEFAULT_TENANT, job_id) in node.wheel for job_id in urgent)
    assert await node.fire() == 16
    assert await fired_lanes(connection) == [critical] * 2 + [high] * 2 + [lane_id] * 12
    assert await node.turn() == 3
    assert all([len(await live(connection, job_id)) == 1 for job_id in others])


async def test_a_storm_of_critical_jobs_leaves_a_fifth_of_each_batch_to_the_others(
    connection: asyncpg.Connection, node: Node, lane_id: int, critical: int
) -> None:
    await many(connection, node, critical, 30, "critical")
    await many(connection, node, lane_id, 4)
    assert await node.turn() == 34
    lanes = await fired_lanes(connection)
    assert [lanes[start : start + 10].count(lane_id) for start in (0, 10, 20)] == [2, 2, 0]


async def test_a_later_generation_is_fired_again_without_another_scan(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "ticker", every(1, node.now), node.now, overlap=Overlap.ALLOW)
    await connection.execute("update mainspring.jobs set generation = 2")
    assert await node.turn() == 1
    node.clock.advance(1)
    assert await node.fire_free() == 1
    assert len(node.firer.held_jobs) == 0
    assert (await jobs.get(connection, DEFAULT_TENANT, "ticker")) is not None


async def test_a_batch_that_fails_does_not_hold_up_critical_jobs_and_is_fired_later(
    connection: asyncpg.Connection, node: Node, lane_id: int, critical: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firer, "_MAX_BATCHES", 2)
    await many(connection, node, lane_id, 40)
    await node.loader.run_once()
    node.firer._add(node.wheel.advance(node.database_clock.timestamp()))
    await many(connection, node, critical, 3, "critical")
    await node.loader.run_once()
    fire_free, failed = node.firer._fire_free, [asyncpg.LockNotAvailableError("a table is locked")]

    async def failing(batch: Sequence[DueJob]) -> tuple[int, list[DueJob]]:
        if failed:
            raise failed.pop()
        return await fire_free(batch)

    monkeypatch.setattr(node.firer, "_fire_free", failing)
    assert await node.firer.fire((), lambda: node.wheel.advance(node.database_clock.timestamp())) == 33
    assert critical in (await fired_lanes(connection))[:20]
    assert await node.turn() == 10
    assert await node.turn() == 0


async def test_after_a_batch_that_fails_alone_nothing_stays_in_the_queue(
    connection: asyncpg.Connection, node: Node, lane_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await many(connection, node, lane_id, 25)
    await node.loader.run_once()
    with monkeypatch.context() as patch:

        async def failing(batch: Sequence[DueJob]) -> tuple[int, list[DueJob]]:
            raise asyncpg.LockNotAvailableError(f"{len(batch)} jobs")

        patch.setattr(node.firer, "_fire_free", failing)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await node.fire()
    assert len(node.queue) == 0
    assert await node.turn() == 25


async def test_shards_take_turns_while_more_is_due_than_is_loaded(
    connection: asyncpg.Connection, node: Node, lane_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first shards do not get all the places of the queue, scan after scan."""
    for name, number in (("_FIRST", 1), ("_PER_SHARD", 10), ("_SHARDS", 1), ("_ENOUGH", 5)):
        monkeypatch.setattr(due_loader, name, number)
    names = [f"job-{number}" for number in range(6000)]
    by_shard = {shard: [name for name in names if shard_of(DEFAULT_TENANT, name) == shard] for shard in (3, 5)}
    for job_id in (*by_shard[3][:30], *by_shard[5][:8]):
        await a_job(connection, lane_id, job_id, every(60, node.now), node.now, overlap=Overlap.ALLOW)
    node.loader.loaded = lambda: node.firer._add(node.wheel.advance(node.database_clock.timestamp()))
    loaded = []
    for _ in range(2):
        await node.loader.run_once()
        loaded.append(Counter(job.shard for job in node.queue))
        await node.fire_free()
    assert loaded == [{3: 10, 5: 1}, {3: 1, 5: 7}]
