"""The sweepers: unused heartbeats, new partitions and old partitions."""

from __future__ import annotations

from datetime import UTC, timedelta

import asyncpg
import pytest

from mainspring.kernel.ids import uuid7
from mainspring.store import workers
from mainspring.store.pool import Store
from mainspring.store.workers import WorkerState
from mainspring.upkeep.beat_sweeper import BeatSweeper
from mainspring.upkeep.partition_maintainer import HistoryPruner, PartitionMaintainer
from tests.store.rows import a_lane, a_worker, beat, claim, now_of, queued

pytestmark = pytest.mark.anyio


async def count(connection: asyncpg.Connection, table: int) -> int:
    rows: int = await connection.fetchval(f"select count(*) from mainspring.worker_beats_{table}")
    return rows


async def test_a_table_of_beats_is_emptied_once_it_has_been_quiet_for_half_a_minute(
    connection: asyncpg.Connection, store: Store
) -> None:
    sweeper, worker_id = BeatSweeper(store), uuid7()
    for ago in (31.0, 45.0, 90.0):
        await beat(connection, worker_id, ago=ago, table=0)
    await beat(connection, worker_id, ago=45.0, table=1)
    await beat(connection, worker_id, ago=1.0, table=1)
    assert await sweeper.run_once() == 1
    assert (await count(connection, 0), await count(connection, 1)) == (0, 2)
    assert await sweeper.run_once() == 0


async def test_two_quiet_tables_are_both_emptied(connection: asyncpg.Connection, store: Store) -> None:
    for table in (0, 1):
        await beat(connection, uuid7(), ago=31.0, table=table)
    assert await BeatSweeper(store).run_once() == 2
    assert (await count(connection, 0), await count(connection, 1)) == (0, 0)


@pytest.mark.parametrize("newer", [0, 1])
async def test_the_last_beat_of_a_worker_is_kept_when_both_tables_are_emptied(
    connection: asyncpg.Connection, store: Store, newer: int
) -> None:
    """After an outage both tables are old, and the one that is emptied first may contain the later beat."""
    worker_id, server_id = await a_worker(connection), uuid7()
    await beat(connection, worker_id, ago=31.0, table=newer, server_id=server_id)
    await beat(connection, worker_id, ago=35.0, table=newer)
    await beat(connection, worker_id, ago=85.0, table=1 - newer)
    [before] = await workers.last_heard(connection, [worker_id])
    assert await BeatSweeper(store).run_once() == 2
    assert await workers.last_heard(connection, [worker_id]) == [before]
    assert before.server_id == server_id


async def test_a_table_is_left_for_the_next_time_while_the_row_of_a_worker_is_locked(
    database_url: str, connection: asyncpg.Connection, store: Store
) -> None:
    worker_id = await a_worker(connection)
    await beat(connection, worker_id, ago=31.0, table=0)
    await beat(connection, worker_id, ago=85.0, table=1)
    async with connection.transaction():
        await connection.execute("select from mainspring.workers where worker_id = $1 for update", worker_id)
        assert await BeatSweeper(store).run_once() == 1
    assert (await count(connection, 0), await count(connection, 1)) == (1, 0)
    assert await BeatSweeper(store).run_once() == 1


async def test_a_table_that_somebody_reads_is_left_for_the_next_time(
    connection: asyncpg.Connection, store: Store
) -> None:
    sweeper = BeatSweeper(store)
    for table in (0, 1):
        await beat(connection, uuid7(), ago=31.0, table=table)
    async with connection.transaction():
        await count(connection, 0)
        assert await sweeper.run_once() == 1
    assert (await count(connection, 0), await count(connection, 1)) == (1, 0)
    assert await sweeper.run_once() == 1


async def test_a_beat_that_arrives_while_the_sweeper_looks_is_kept(
    database_url: str, connection: asyncpg.Connection, store: Store
) -> None:
    """A heartbeat is written while the table still looks quiet. The sweeper does not wait for it, and does not lose
    it."""
    await beat(connection, uuid7(), ago=31.0, table=0)
    writer = await asyncpg.connect(database_url)
    async with writer.transaction():
        await workers.beat(writer, 0, uuid7(), [uuid7()])
        assert await BeatSweeper(store).run_once() == 0
    assert await BeatSweeper(store).run_once() == 0
    assert await count(connection, 0) == 2
    await writer.close()


@pytest.mark.parametrize("state", [WorkerState.LOST, WorkerState.STOPPED], ids=lambda state: state.name)
async def test_workers_that_ended_long_ago_and_hold_nothing_are_forgotten(
    connection: asyncpg.Connection, store: Store, state: WorkerState
) -> None:
    living, recent, old, holding = [await a_worker(connection, name) for name in ("living", "recent", "old", "holding")]
    lane_id = await a_lane(connection)
    await queued(connection, lane_id)
    await claim(connection, [lane_id], 1, holding)
    for worker_id in (recent, old, holding):
        await workers.set_state(connection, worker_id, state)
    await connection.execute(
        "update mainspring.workers set ended_at = ended_at - interval '25 h' where worker_id = any ($1)", [old, holding]
    )
    await BeatSweeper(store).run_once()
    left = {row["worker_id"] for row in await connection.fetch("select worker_id from mainspring.workers")}
    assert left == {living, recent, holding}


async def test_the_maintainer_makes_the_day_that_is_missing(connection: asyncpg.Connection, store: Store) -> None:
    maintainer = PartitionMaintainer(store)
    await maintainer.run_once()
    day = (await now_of(connection)).astimezone(UTC).date() + timedelta(days=7)
    names = [f"{parent}_{day:%Y%m%d}" for parent in ("run_history", "attempts")]
    for name in names:
        await connection.execute(f"drop table mainspring.{name}")
    assert await maintainer.run_once() == names
    assert await maintainer.run_once() == []


async def test_the_pruner_drops_what_is_past_the_retention(connection: asyncpg.Connection, store: Store) -> None:
    await connection.execute(
        """create table mainspring.run_history_20200101 partition of mainspring.run_history
           for values from ('2020-01-01 00:00+00') to ('2020-01-02 00:00+00')"""
    )
    assert await HistoryPruner(store, 36_500).run_once() == []
    assert await HistoryPruner(store, 30).run_once() == ["run_history_20200101"]
    assert await HistoryPruner(store, 30).run_once() == []


async def test_keys_and_chosen_ids_go_with_the_history_but_a_job_keeps_its_id(
    store: Store, connection: asyncpg.Connection
) -> None:
    old = "now() - interval '31 days'"
    await connection.execute(
        f"""insert into mainspring.idempotency_keys (tenant_id, key, body_hash, job_id, created_at)
            values (1, 'old', '', 'a', {old}), (1, 'new', '', 'b', now());
            insert into mainspring.taken_ids (tenant_id, job_id, taken_at)
            values (1, 'gone', {old}), (1, 'fresh', now()), (1, 'cron', {old});
            insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time,
                                         id_generated, created_at, updated_at, schedule)
            values (1, 'cron', 1, 1, 1, 4, false, false, {old}, {old}, '{{}}')"""
    )
    await HistoryPruner(store, 30).run_once()
    assert [row["key"] for row in await connection.fetch("select key from mainspring.idempotency_keys")] == ["new"]
    rows = await connection.fetch("select job_id from mainspring.taken_ids order by job_id")
    assert [row["job_id"] for row in rows] == ["cron", "fresh"]
