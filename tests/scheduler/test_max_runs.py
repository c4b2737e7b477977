"""A schedule makes max_runs runs and no more, whatever happens meanwhile. Then its job is COMPLETED, as when its end
has come."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import msgspec
import pytest

from mainspring.domain.job import DEFAULT_SPEC, Overlap, Spec
from mainspring.domain.schedules.misfire import MisfirePolicy
from mainspring.domain.schedules.schedule import Schedule
from mainspring.domain.transitions import StoredJobStatus
from mainspring.store.pool import Store
from tests.store.fire_scene import run_now
from tests.store.rows import a_job, ended, every, job_row, live

from .a_node import Node, a_twin

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
ALL = Spec(misfire=MisfirePolicy("all"))


def limited(schedule: Schedule, runs: int) -> Schedule:
    return msgspec.structs.replace(schedule, max_runs=runs)


async def state_of(connection: asyncpg.Connection, job_id: str) -> tuple[int, int | None, bool]:
    row = await job_row(connection, job_id)
    return row["status"], row["runs_left"], row["next_fire_at"] is None


async def test_of_two_jobs_the_one_with_max_runs_ends(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    await a_job(connection, lane_id, "some", limited(every(1, node.now), 3), node.now, overlap=Overlap.ALLOW)
    await a_job(connection, lane_id, "all", every(1, node.now), node.now, overlap=Overlap.ALLOW)
    await node.turn()
    for _ in range(4):
        node.clock.advance(1.0)
        await node.fire()  # out of the wheel, without another scan
    assert len(await live(connection, "some")) == 3
    assert len(await live(connection, "all")) == 5
    assert await state_of(connection, "some") == (StoredJobStatus.COMPLETED, 0, True)
    assert await state_of(connection, "all") == (StoredJobStatus.SCHEDULED, None, False)
    assert await node.turn() == 0


@pytest.mark.parametrize("policy", ["all", "once", "skip"])
async def test_late_fires_count_when_they_run_and_not_when_they_are_missed(
    connection: asyncpg.Connection, node: Node, lane_id: int, policy: str
) -> None:
    late = node.now - 5 * HOUR - timedelta(minutes=1)
    spec = Spec(misfire=MisfirePolicy(policy))
    await a_job(connection, lane_id, "late", limited(every(3600, late), 4), late, overlap=Overlap.ALLOW, spec=spec)
    await node.turn()
    made, missed = {"all": (4, 0), "once": (1, 5), "skip": (0, 6)}[policy]
    assert len(await live(connection, "late")) == made
    assert await connection.fetchval("select coalesce(sum(count), 0) from mainspring.missed_fires") == missed
    assert (await job_row(connection, "late"))["runs_left"] == 4 - made


async def test_the_oldest_late_fires_run_and_the_schedule_ends_with_the_last_of_them(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = node.now - 5 * HOUR - timedelta(minutes=1)
    await a_job(connection, lane_id, "late", limited(every(3600, late), 2), late, overlap=Overlap.ALLOW, spec=ALL)
    await node.turn()
    assert [row["scheduled_for"] for row in await live(connection, "late")] == [late, late + HOUR]
    assert (await job_row(connection, "late"))["last_fired_for"] == late + HOUR
    assert await state_of(connection, "late") == (StoredJobStatus.COMPLETED, 0, True)


async def test_a_node_that_fires_by_what_it_saw_before_another_one_makes_no_run_more(
    store: Store, connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "last", limited(every(60, node.now), 1), node.now, overlap=Overlap.ALLOW)
    twin = a_twin(store, node)
    await node.loader.run_once()
    await twin.loader.run_once()
    assert (await node.fire(), await twin.fire()) == (1, 0)
    assert await state_of(connection, "last") == (StoredJobStatus.COMPLETED, 0, True)


async def test_a_fire_that_was_planned_with_more_runs_than_are_left_makes_none(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    """The row decides, also if what the due-scan has read is outdated without a new version."""
    late = node.now - 3 * HOUR
    await a_job(connection, lane_id, "late", limited(every(3600, late), 4), late, overlap=Overlap.ALLOW, spec=ALL)
    await node.loader.run_once()
    await connection.execute("update mainspring.jobs set runs_left = 2")
    assert await node.fire() == 2
    assert await state_of(connection, "late") == (StoredJobStatus.COMPLETED, 0, True)


async def test_a_manual_run_does_not_count_and_a_skipped_one_does(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "skips", limited(every(1, node.now), 3), node.now)
    await run_now(connection, "skips")
    assert (await job_row(connection, "skips"))["runs_left"] == 3
    await node.turn()
    assert [row["reason"] for row in await ended(connection, "skips")] != []
    assert (await job_row(connection, "skips"))["runs_left"] == 2


async def test_of_two_jobs_the_one_with_an_end_is_completed(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    bounded = msgspec.structs.replace(every(1, node.now), end=node.now + timedelta(seconds=1))
    await a_job(connection, lane_id, "bounded", bounded, node.now, overlap=Overlap.ALLOW, spec=DEFAULT_SPEC)
    await a_job(connection, lane_id, "endless", every(1, node.now), node.now, overlap=Overlap.ALLOW)
    await node.turn()
    for _ in range(3):
        node.clock.advance(1.0)
        await node.fire()
    assert (len(await live(connection, "bounded")), len(await live(connection, "endless"))) == (2, 4)
    assert (await state_of(connection, "bounded"))[0] == StoredJobStatus.COMPLETED
