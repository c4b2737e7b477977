"""The firer: a due job fires once, an outdated entry does not fire, and no job blocks the others."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import asyncpg
import pytest

from mainspring.domain.job import Overlap
from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.scheduler.firer import BATCH
from mainspring.store import leases
from mainspring.store.pool import AWAY, Store
from tests.store.fire_scene import run_now
from tests.store.rows import a_job, at, ended, every, job_row, live, until_blocking

from .a_node import Node, a_node, a_twin

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
ALLOW = Overlap.ALLOW


async def runs_of(connection: asyncpg.Connection, job_id: str) -> list[datetime]:
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


@pytest.mark.parametrize("gone", ["paused", "deleted"])
async def test_a_job_that_is_paused_or_deleted_leaves_the_wheel_for_good(
    connection: asyncpg.Connection, node: Node, lane_id: int, gone: str
) -> None:
    """Otherwise a job that fires every second would be attempted every second and fail."""
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
    assert await node.fire() == 0  # it still considers its leases valid
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
    created = await asyncio.gather(node.fire(), twin.fire())
    assert sum(created) == 60
    assert len({row["job_id"] for row in await live(connection)}) == 60
    assert await ended(connection) == []


async def many_due(connection: asyncpg.Connection, node: Node, lane_id: int, count: int) -> None:
    await connection.execute(
        """insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, overlap, max_attempts, one_time,
                                        id_generated, next_fire_at, created_at, updated_at, schedule)
           select 1, 'job-' || i, $1, i % 128, 1, 0, 4, true, false, $2, $2, $2, '{"kind": "FUTURE"}'
           from generate_series(1, $3) as i""",
        lane_id,
        node.now,
        count,
    )


async def test_overlap_is_decided_after_the_lock(
    connection: asyncpg.Connection, database_url: str, node: Node, lane_id: int
) -> None:
    """A manual run is being created when the job fires. The fire waits for that transaction and then sees the run."""
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await node.loader.run_once()
    by_hand = await asyncpg.connect(database_url)
    transaction = by_hand.transaction()
    await transaction.start()
    assert await run_now(by_hand, "nightly")
    firing = asyncio.create_task(node.fire())
    await until_blocking(connection, by_hand.get_server_pid())
    await transaction.commit()
    await by_hand.close()
    assert await firing == 0
    assert len(await live(connection, "nightly")) == 1
    assert [row["state"] for row in await ended(connection, "nightly")] == [StoredState.SKIPPED]


async def test_more_than_a_batch_is_fired_in_batches(connection: asyncpg.Connection, node: Node, lane_id: int) -> None:
    await many_due(connection, node, lane_id, 2 * BATCH + 7)
    assert await node.turn() == 2 * BATCH + 7
    assert sorted(sum(created.values()) for created in node.ready) == [7, BATCH, BATCH]


async def test_a_scan_in_the_middle_of_a_storm_does_not_bring_back_what_waits_for_its_batch(
    connection: asyncpg.Connection, node: Node, lane_id: int, database_url: str
) -> None:
    await many_due(connection, node, lane_id, 4 * BATCH)
    blocker = await asyncpg.connect(database_url)
    try:
        await node.loader.run_once()
        async with blocker.transaction():
            await blocker.execute("select from mainspring.jobs for update")  # no batch can continue
            storm = asyncio.create_task(node.fire())
            assert await node.loader.run_once() == 0
    finally:
        await blocker.close()
    assert await storm == 4 * BATCH
    assert await node.turn() == 0


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


@pytest.mark.parametrize("sqlstate", ["53100", "25006"], ids=["the disk is full", "read-only"])
async def test_a_database_that_accepts_no_changes_sets_nothing_aside(
    connection: asyncpg.Connection, node: Node, lane_id: int, sqlstate: str
) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await node.loader.run_once()
    await connection.execute(f"""
        create function mainspring.refuse() returns trigger language plpgsql as
        $$ begin raise exception 'no' using errcode = '{sqlstate}'; end $$;
        create trigger refuse before insert on mainspring.runs execute function mainspring.refuse()""")
    with pytest.raises(AWAY):
        await node.fire()
    assert not node.firer.in_flight((DEFAULT_TENANT, "nightly"))
    await connection.execute("drop trigger refuse on mainspring.runs")
    assert await node.turn() == 1


async def test_a_deadlock_is_retried_and_sets_nothing_aside(
    connection: asyncpg.Connection, node: Node, lane_id: int
) -> None:
    await a_job(connection, lane_id, "nightly", every(60, node.now), node.now)
    await connection.execute("""
        create sequence mainspring.tries;
        create function mainspring.refuse() returns trigger language plpgsql as
        $$ begin if nextval('mainspring.tries') <= 2 then raise exception 'no' using errcode = '40P01'; end if;
           return null; end $$;
        create trigger refuse before insert on mainspring.runs execute function mainspring.refuse()""")
    assert await node.turn() == 1
    assert not node.firer.in_flight((DEFAULT_TENANT, "nightly"))
