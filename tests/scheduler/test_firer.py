"""The firer: late fires by their policy, stale ones not at all, and no job that stops the others."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import asyncpg
import pytest

from mainspring.domain.job import Overlap, Spec
from mainspring.domain.misfire import MisfirePolicy
from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.scheduler.firer import BATCH
from mainspring.store import jobs, leases
from mainspring.store.pool import Store
from tests.store.rows import a_job, a_lane, at, ended, every, job_row, live

from .a_node import Node, a_node, a_twin

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
ALLOW = Overlap.ALLOW


@pytest.fixture
async def node(store: Store, connection: asyncpg.Connection) -> Node:
    return await a_node(store, connection)


@pytest.fixture
async def lane_id(connection: asyncpg.Connection) -> int:
    return await a_lane(connection)


async def a_late_job(
    connection: asyncpg.Connection, lane_id: int, node: Node, misfire: MisfirePolicy, overlap: Overlap = ALLOW
) -> list[datetime]:
    """Every minute, last seen to ten and a half minutes ago: eleven fires are late. Answers their moments."""
    first = node.now - 10.5 * MINUTE
    await a_job(connection, lane_id, "late", every(60, first), first, overlap=overlap, spec=Spec(misfire=misfire))
    return [first + number * MINUTE for number in range(11)]


async def missed(connection: asyncpg.Connection, job_id: str = "late") -> list[tuple[datetime, datetime, int, str]]:
    rows = await jobs.list_missed(connection, DEFAULT_TENANT, job_id, 100)
    return [(row["first_at"], row["last_at"], row["count"], row["reason"]) for row in reversed(rows)]


async def runs_of(connection: asyncpg.Connection, job_id: str = "late") -> list[datetime]:
    return [row["scheduled_for"] for row in await live(connection, job_id)]


async def test_a_due_job_gives_one_run_and_its_lane_hears_of_it(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    assert await node.turn() == 1
    assert await node.turn() == 0
    assert node.ready == [{lane_id: 1}]
    assert await runs_of(connection, "nightly") == [node.now]


async def test_a_one_time_job_becomes_a_run_with_the_same_id(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    job_id = str(uuid7())
    await a_job(connection, lane_id, job_id, at(node.now), node.now, id_generated=True)
    await a_job(connection, lane_id, "launch", at(node.now), node.now)
    assert await node.turn() == 2
    assert await connection.fetchval("select count(*) from mainspring.jobs") == 0
    assert len(await live(connection, job_id)) == 1
    [chosen] = await live(connection, "launch")
    assert (chosen["job_id"], chosen["trigger"]) == ("launch", "at")


async def test_once_runs_the_latest_and_records_the_others(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("once"))
    assert await node.turn() == 1
    assert await runs_of(connection) == late[-1:]
    assert await missed(connection) == [(late[0], late[9], 10, "coalesced into a later fire")]


async def test_skip_runs_none_and_records_all(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("skip"))
    assert await node.turn() == 0
    assert await runs_of(connection) == []
    assert await missed(connection) == [(late[0], late[10], 11, "late: misfire policy skip")]


async def test_all_runs_each_up_to_the_cap_and_records_the_rest(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("all", cap=4))
    assert await node.turn() == 4
    assert await runs_of(connection) == late[-4:]
    assert await missed(connection) == [(late[0], late[6], 7, "over the misfire cap")]


async def test_all_leaves_out_what_is_older_than_the_grace(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("all", grace=300.0))
    assert await node.turn() == 5
    assert await runs_of(connection) == late[-5:]
    assert await missed(connection) == [(late[0], late[5], 6, "older than the misfire grace")]


async def test_all_with_overlap_skip_runs_the_first_and_skips_the_rest_with_the_reason(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy("all"), overlap=Overlap.SKIP)
    assert await node.turn() == 1
    assert await runs_of(connection) == late[:1]
    skipped = await ended(connection, "late")
    assert [row["scheduled_for"] for row in skipped] == late[1:]
    assert {row["state"] for row in skipped} == {StoredState.SKIPPED}


@pytest.mark.parametrize("policy", ["once", "skip", "all"])
async def test_every_late_fire_is_a_run_or_recorded_and_the_job_goes_on(
    connection: asyncpg.Connection, node: Node, lane_id: int, policy: str
) -> None:
    late = await a_late_job(connection, lane_id, node, MisfirePolicy(policy))
    await node.turn()
    await node.turn()
    counted = len(await runs_of(connection)) + sum(count for _, _, count, _ in await missed(connection))
    assert counted == len(late)
    job = await job_row(connection, "late")
    assert (job["last_fired_for"], job["next_fire_at"]) == (late[-1], late[-1] + MINUTE)


async def test_a_backlog_of_more_than_one_look_is_worked_off_and_none_is_lost(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    first = node.now - timedelta(seconds=12_000.5)
    await a_job(connection, lane_id, "late", every(1, first), first, overlap=ALLOW)
    turns = 0
    while (await job_row(connection, "late"))["next_fire_at"] <= node.now:
        await node.turn()
        turns += 1
        assert turns < 10
    runs = await runs_of(connection)
    gaps = await missed(connection)
    assert len(runs) + sum(count for _, _, count, _ in gaps) == 12_001
    assert gaps[0][0] == first
    for before, after in zip(gaps, gaps[1:], strict=False):
        assert after[0] - before[1] == timedelta(seconds=1)
    assert runs[-1] == first + timedelta(seconds=12_000)


async def test_what_is_due_within_the_window_is_fired_without_another_scan(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "ticker", every(1, node.now), node.now, overlap=ALLOW)
    assert await node.turn() == 1
    for _ in range(3):
        assert await node.fire() == 0
        node.clock.advance(1.0)
        assert await node.fire() == 1
    assert await runs_of(connection, "ticker") == [node.now + timedelta(seconds=number) for number in range(4)]


async def test_a_job_that_changed_after_the_scan_is_left_to_the_next_scan(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await node.loader.run_once()
    await connection.execute("update mainspring.jobs set version = version + 1")
    assert await node.fire() == 0
    assert await live(connection) == []
    assert await node.turn() == 1


@pytest.mark.parametrize("gone", ["paused", "deleted"])
async def test_a_job_that_is_paused_or_deleted_leaves_the_wheel_for_good(
    connection: asyncpg.Connection, node: Node, lane_id: int, gone: str
) -> None:
    """A ticker would otherwise come round every second for ever, only to fail."""
    await a_job(connection, lane_id, "ticker", every(1, node.now), node.now)
    await node.turn()
    assert len(node.wheel) == 1
    await connection.execute(
        "update mainspring.jobs set status = 2, next_fire_at = null, version = 2"
        if gone == "paused"
        else "delete from mainspring.jobs"
    )
    node.clock.advance(1.0)
    assert await node.turn() == 0
    assert len(node.wheel) == 0


async def test_a_shard_that_is_no_longer_held_is_not_fired(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await a_job(connection, lane_id, "launch", at(node.now), node.now)
    assert await node.loader.run_once() == 2
    node.held = {}
    assert await node.fire() == 0
    assert await live(connection) == []
    assert len(await connection.fetch("select from mainspring.jobs")) == 2


async def test_a_stale_epoch_fires_nothing_and_the_new_owner_fires(
    connection: asyncpg.Connection, store: Store, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await a_job(connection, lane_id, "launch", at(node.now), node.now)
    await node.loader.run_once()
    await leases.release(connection, node.node_id, node.held)
    successor = await a_node(store, connection)
    assert set(successor.held.values()) == {2}
    assert await node.fire() == 0  # it still believes in its leases
    assert await successor.turn() == 2


async def test_two_nodes_that_both_believe_they_own_a_shard_fire_each_moment_once(
    connection: asyncpg.Connection, store: Store, node: Node, lane_id: int
) -> None:
    twin = a_twin(store, node)
    for number in range(30):
        await a_job(connection, lane_id, f"again-{number}", every(60, node.now), node.now, overlap=Overlap(number % 2))
        await a_job(connection, lane_id, f"once-{number}", at(node.now), node.now)
    await node.loader.run_once()
    await twin.loader.run_once()
    born = await asyncio.gather(node.fire(), twin.fire())
    assert sum(born) == 60
    assert len({row["job_id"] for row in await live(connection)}) == 60
    assert await ended(connection) == []


async def test_more_than_a_batch_is_fired_in_batches(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    await connection.execute(
        """insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, overlap, max_attempts, one_time,
                                        id_generated, next_fire_at, created_at, updated_at, schedule)
           select 1, 'job-' || i, $1, i % 128, 1, 0, 4, true, false, $2, $2, $2, '{"kind": "FUTURE"}'
           from generate_series(1, $3) as i""",
        lane_id,
        node.now,
        2 * BATCH + 7,
    )
    assert await node.turn() == 2 * BATCH + 7
    assert [sum(born.values()) for born in node.ready] == [BATCH, BATCH, 7]


POISON = {
    "not a schedule": '{"kind": "LUNAR"}',
    "a part is missing": '{"kind": "CRON"}',
    "not a cron": '{"kind": "CRON", "cron": "every full moon"}',
    "a zone that is gone": '{"kind": "CRON", "cron": "* * * * *", "timezone": "Atlantis/Capital"}',
    "a zone that is a folder": '{"kind": "CRON", "cron": "* * * * *", "timezone": "Europe"}',
    "no interval": '{"kind": "INTERVAL", "every": 0, "anchor": "2026-01-01T00:00:00Z"}',
    "another shape": "[1, 2]",
}


@pytest.mark.parametrize("schedule", POISON.values(), ids=POISON.keys())
async def test_a_job_that_cannot_be_planned_is_set_aside_and_the_others_fire(
    connection: asyncpg.Connection, node: Node, lane_id: int, schedule: str
) -> None:
    for number in range(9):
        await a_job(connection, lane_id, f"job-{number}", every(60, node.now), node.now)
    await connection.execute("update mainspring.jobs set schedule = $1 where job_id = 'job-4'", schedule)
    assert await node.turn() == 8
    assert {row["job_id"] for row in await live(connection)} == {f"job-{number}" for number in range(9)} - {"job-4"}
    assert node.firer.in_flight((DEFAULT_TENANT, "job-4"))


@pytest.mark.parametrize("one_time", [True, False], ids=["one-time", "recurring"])
async def test_a_job_that_the_database_refuses_is_found_by_bisection_and_the_others_fire(
    connection: asyncpg.Connection, node: Node, lane_id: int, one_time: bool
) -> None:
    for number in range(9):
        schedule = at(node.now) if one_time else every(60, node.now)
        await a_job(connection, lane_id, f"job-{number}", schedule, node.now, overlap=ALLOW)
    await connection.execute("alter table mainspring.runs add constraint no_fives check (job_id <> 'job-5')")
    assert await node.turn() == 8
    assert {row["job_id"] for row in await live(connection)} == {f"job-{number}" for number in range(9)} - {"job-5"}
    poison = await job_row(connection, "job-5")
    assert (poison["next_fire_at"], poison["last_fired_for"]) == (node.now, None)


async def test_a_job_that_was_set_aside_is_tried_again_after_a_while(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "poison", every(3600, node.now), node.now)
    await connection.execute("update mainspring.jobs set name = schedule::text, schedule = '{}'")
    await node.turn()
    assert await node.loader.run_once() == 0
    await connection.execute("update mainspring.jobs set schedule = name::json")
    node.clock.advance(59.0)
    assert await node.turn() == 0
    node.clock.advance(1.0)
    assert await node.turn() == 1


async def test_a_database_that_is_away_sets_nothing_aside(
    connection: asyncpg.Connection, store: Store, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await node.loader.run_once()
    await store.close()
    with pytest.raises(asyncpg.InterfaceError):
        await node.fire()
    assert not node.firer.in_flight((DEFAULT_TENANT, "nightly"))
