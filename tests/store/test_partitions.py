"""Day partitions are created ahead and old ones are dropped. No report waits for either."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta

import asyncpg
import pytest

from mainspring.store import partitions, runs
from mainspring.store.migrate import migrate

from .rows import a_lane, a_worker, claim, ended, now_of, queued

pytestmark = pytest.mark.anyio

ATTACHED = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = $1::regclass order by c.relname
"""


@pytest.fixture(autouse=True)
async def week_ahead(database_url: str) -> None:
    """The template may have been created before midnight. No test starts shortly before midnight."""
    now = datetime.now(UTC)
    left = (now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1) - now).total_seconds()
    if left < 60:
        await asyncio.sleep(left)
    await migrate(database_url)


async def attached(connection: asyncpg.Connection, parent: str) -> list[str]:
    return [row["relname"] for row in await connection.fetch(ATTACHED, f"mainspring.{parent}")]


async def today(connection: asyncpg.Connection) -> date:
    return (await now_of(connection)).astimezone(UTC).date()


async def make(connection: asyncpg.Connection, parent: str, day: date) -> str:
    """Create a partition."""
    name = f"{parent}_{day:%Y%m%d}"
    low, high = (datetime(d.year, d.month, d.day, tzinfo=UTC) for d in (day, day + timedelta(days=1)))
    await connection.execute(
        f"create table mainspring.{name} partition of mainspring.{parent} for values from ('{low}') to ('{high}')"
    )
    return name


async def unmake(connection: asyncpg.Connection, day: date) -> list[str]:
    names = [f"{parent}_{day:%Y%m%d}" for parent in partitions.PARTITIONED]
    for name in names:
        await connection.execute(f"drop table mainspring.{name}")
    return names


async def report_one(connection: asyncpg.Connection) -> None:
    """Create, claim and report a run, which ends in today's partition."""
    worker_id = await a_worker(connection)
    lane_id = await a_lane(connection, task=str(worker_id))
    [run_id] = await queued(connection, lane_id)
    [row] = await claim(connection, [lane_id], 1, worker_id)
    assert await runs.report_successes(connection, worker_id, [run_id], [row.fence], [0.0], [1.0], [None])


async def test_today_and_the_week_ahead_are_there_after_a_migration(connection: asyncpg.Connection) -> None:
    first = await today(connection)
    for parent in partitions.PARTITIONED:
        expected = {f"{parent}_{first + timedelta(days=offset):%Y%m%d}" for offset in range(8)}
        assert expected <= set(await attached(connection, parent))


async def test_there_is_no_default_partition(connection: asyncpg.Connection) -> None:
    assert await connection.fetchval("select count(*) from pg_partitioned_table where partdefid <> 0") == 0


async def test_a_partition_has_the_indexes_of_its_parent(connection: asyncpg.Connection) -> None:
    counts = await connection.fetch(
        """select i.inhparent, count(*) from pg_inherits i join pg_index x on x.indrelid = i.inhrelid
           where i.inhparent = 'mainspring.run_history'::regclass group by i.inhparent, i.inhrelid"""
    )
    parent = await connection.fetchval(
        "select count(*) from pg_index where indrelid = 'mainspring.run_history'::regclass"
    )
    assert {row["count"] for row in counts} == {parent}


async def test_a_missing_day_is_made_and_nothing_is_made_twice(connection: asyncpg.Connection) -> None:
    missing = await unmake(connection, await today(connection) + timedelta(days=7))
    assert sorted(await partitions.ensure_ahead(connection)) == sorted(missing)
    assert await partitions.ensure_ahead(connection) == []


async def test_several_processes_may_make_them_at_once(database_url: str, connection: asyncpg.Connection) -> None:
    first = await today(connection)
    before = {parent: await attached(connection, parent) for parent in partitions.PARTITIONED}
    for offset in range(3, 8):
        await unmake(connection, first + timedelta(days=offset))
    others = [await asyncpg.connect(database_url) for _ in range(4)]
    await asyncio.gather(*(partitions.ensure_ahead(other) for other in others))
    for other in others:
        await other.close()
    assert {parent: await attached(connection, parent) for parent in partitions.PARTITIONED} == before


async def test_reports_go_on_while_a_long_reader_holds_a_snapshot_and_a_day_is_added(
    database_url: str, connection: asyncpg.Connection
) -> None:
    missing = await unmake(connection, await today(connection) + timedelta(days=7))
    reader = await asyncpg.connect(database_url)
    reporter = await asyncpg.connect(database_url, server_settings={"lock_timeout": "30s"})
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetch("select count(*) from mainspring.run_history")
        async with reporter.transaction():
            await report_one(reporter)  # it continues while the day is added
            assert sorted(await partitions.ensure_ahead(connection)) == sorted(missing)
            await report_one(reporter)
        await report_one(reporter)
    assert len(await ended(connection)) == 3
    for other in (reader, reporter):
        await other.close()


async def test_only_the_days_past_the_retention_are_dropped(connection: asyncpg.Connection) -> None:
    first = await today(connection)
    kept = {parent: await attached(connection, parent) for parent in partitions.PARTITIONED}
    for parent in partitions.PARTITIONED:
        kept[parent] = sorted([*kept[parent], await make(connection, parent, first - timedelta(days=30))])
    old = [await make(connection, parent, first - timedelta(days=31)) for parent in partitions.PARTITIONED]
    old += [await make(connection, parent, date(2020, 2, 29)) for parent in partitions.PARTITIONED]
    assert sorted(await partitions.drop_older(connection, 30)) == sorted(old)
    assert {parent: await attached(connection, parent) for parent in partitions.PARTITIONED} == kept
    for name in old:
        assert await connection.fetchval("select to_regclass($1)", f"mainspring.{name}") is None
    assert await partitions.drop_older(connection, 30) == []


async def test_a_drop_that_a_long_reader_held_up_is_finished_later_and_reports_go_on_meanwhile(
    database_url: str, connection: asyncpg.Connection
) -> None:
    """The later of two old days waits. No other partition can be detached before that is finished."""
    old = [await make(connection, "run_history", day) for day in (date(2020, 1, 1), date(2020, 1, 2))]
    reader = await asyncpg.connect(database_url)
    pruner = await asyncpg.connect(database_url, server_settings={"lock_timeout": "100ms"})
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetch("select count(*) from mainspring.run_history")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await pruner.execute(
                f"alter table mainspring.run_history detach partition mainspring.{old[1]} concurrently"
            )
        with pytest.raises(asyncpg.LockNotAvailableError):
            await partitions.drop_older(pruner, 30)
        await report_one(connection)
    await pruner.execute("set lock_timeout = '30s'")
    assert await partitions.drop_older(pruner, 30) == [old[1], old[0]]
    for other in (reader, pruner):
        await other.close()


async def test_a_day_that_was_detached_and_not_dropped_is_dropped_later(connection: asyncpg.Connection) -> None:
    name = await make(connection, "attempts", date(2020, 1, 1))
    await connection.execute(f"alter table mainspring.attempts detach partition mainspring.{name}")
    assert await partitions.drop_older(connection, 30) == [name]


async def test_dropping_leaves_the_session_as_it_was(connection: asyncpg.Connection) -> None:
    """Connections return to the pool without a reset."""
    before = await connection.fetch("select name, setting from pg_settings where source = 'session' order by name")
    await make(connection, "run_history", date(2020, 1, 1))
    await partitions.drop_older(connection, 30)
    assert (
        await connection.fetch("select name, setting from pg_settings where source = 'session' order by name") == before
    )


async def test_servers_that_prune_at_the_same_moment_do_not_trip_over_each_other(
    database_url: str, connection: asyncpg.Connection
) -> None:
    first = await today(connection)
    kept = {parent: await attached(connection, parent) for parent in partitions.PARTITIONED}
    for days in range(31, 37):
        for parent in partitions.PARTITIONED:
            await make(connection, parent, first - timedelta(days=days))
    servers = [await asyncpg.connect(database_url) for _ in range(4)]
    dropped = await asyncio.gather(*(partitions.drop_older(server, 30) for server in servers))
    await partitions.drop_older(connection, 30)  # the partitions that two servers left to each other
    assert len([name for names in dropped for name in names]) <= 6 * len(partitions.PARTITIONED)
    assert {parent: await attached(connection, parent) for parent in partitions.PARTITIONED} == kept
    parents = "|".join(partitions.PARTITIONED)
    left = f"select count(*) from pg_class where relkind = 'r' and relname ~ '^({parents})_[0-9]{{8}}$'"
    assert await connection.fetchval(left) == sum(map(len, kept.values()))
    for server in servers:
        await server.close()
