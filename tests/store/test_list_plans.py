"""A page of a list reads about as many rows as it shows, regardless of the statistics.

The tables have 20,000 rows in every test. The tests differ in when ANALYZE ran: never, while the tables were empty,
while they had a few rows, and at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import dead_letters, fired_jobs, history, ids, jobs
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.store.fired_jobs import FiredFilter
from mainspring.store.history import RunFilter
from mainspring.store.jobs import RowFilter
from mainspring.store.pool import READ_SETTINGS, Connection
from tests.store.rows import BEGINNING

pytestmark = pytest.mark.anyio

MANY = 20_000
LIVE = 1_000_000  # live runs have ids from here on
TABLES = ("runs", "run_history", "dead_letters", "jobs")
# One run in a hundred is of the job `tick`. Every second run is itself a job.
FILL = """
with row as (
    select i, t.now, case when i % 100 = 1 then 'tick' when i % 2 = 1 then 'job-' || i end as job_id,
           '{"some": "payload of the usual length"}'::json as payload
    from generate_series($1::int, $2::int) as i, (select clock_timestamp() as now) as t
), live as (
    insert into mainspring.runs (run_id, tenant_id, lane_id, state, max_attempts, scheduled_for, ready_at, job_id,
                                 payload)
    select lpad(to_hex($3 + i), 32, '0')::uuid, 1, 1, 1, 4, $4::timestamptz + i * interval '1 ms', now, job_id, payload
    from row
), ended as (
    insert into mainspring.run_history (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for,
                                        ended_at, job_id, payload)
    select lpad(to_hex(i), 32, '0')::uuid, 1, 1, case when i % 50 = 0 then 11 else 10 end, 1, 4, 1, now, now, job_id,
           payload
    from row
), letter as (
    insert into mainspring.dead_letters (run_id, tenant_id, lane_id, attempts, max_attempts, scheduled_for, died_at,
                                         payload)
    select lpad(to_hex(i), 32, '0')::uuid, 1, 1, 4, 4, now, $4, payload
    from row
)
insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time, id_generated,
                             next_fire_at, created_at, updated_at, schedule, payload)
select 1, 'job-' || i, 1, i % 128, case when i % 25 = 0 then 3 else 1 end, 4, false, false, now,
       $4::timestamptz + i * interval '1 second', now, '{}', payload
from row
"""

Read = Callable[[Connection, int | None, int], Awaitable[int]]


def place(before: int | None, first: int = 0) -> UUID | None:
    return None if before is None else UUID(int=first + before)


async def live_runs(connection: Connection, before: int | None, limit: int) -> int:
    return len(await history.live_runs(connection, DEFAULT_TENANT, RunFilter(), place(before, LIVE), limit))


async def ended_runs(connection: Connection, before: int | None, limit: int) -> int:
    return len(await history.ended_runs(connection, DEFAULT_TENANT, RunFilter(), place(before), limit))


async def live_runs_of_one(connection: Connection, before: int | None, limit: int) -> int:
    chosen = RunFilter(job_id="tick")
    return len(await history.live_runs(connection, DEFAULT_TENANT, chosen, place(before, LIVE), limit))


async def ended_runs_of_one(connection: Connection, before: int | None, limit: int) -> int:
    return len(await history.ended_runs(connection, DEFAULT_TENANT, RunFilter(job_id="tick"), place(before), limit))


async def runs_of_job(connection: Connection, before: int | None, limit: int) -> int:
    return len(await history.runs_of_job(connection, DEFAULT_TENANT, "tick", place(before, LIVE), limit))


async def letters(connection: Connection, before: int | None, limit: int) -> int:
    return len(await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), place(before), limit))


async def letters_to_replay(connection: Connection, after: int | None, limit: int) -> int:
    begun = BEGINNING + timedelta(days=1)
    return len(await dead_letters.some(connection, DEFAULT_TENANT, DeadLetterFilter(), place(after), begun, limit))


def job_place(before: int | None) -> tuple[datetime, str] | None:
    return None if before is None else (BEGINNING + timedelta(seconds=before), f"job-{before}")


async def jobs_yet_to_fire(connection: Connection, before: int | None, limit: int) -> int:
    chosen = RowFilter([1, 2])
    return len(await jobs.list_jobs(connection, DEFAULT_TENANT, chosen, job_place(before), None, limit))


async def jobs_at_rest(connection: Connection, before: int | None, limit: int) -> int:
    chosen = RowFilter([3, 4])
    return len(await jobs.list_jobs(connection, DEFAULT_TENANT, chosen, job_place(before), None, limit))


async def end_of_jobs(connection: Connection, before: int | None, limit: int) -> int:
    found = await jobs.boundary(connection, DEFAULT_TENANT, RowFilter([1]), job_place(before), limit)
    return limit if found is not None else 0


def fired(ranks: list[int], states: list[int], first: int = 0) -> Read:
    """One-time jobs that have fired."""

    async def read(connection: Connection, before: int | None, limit: int) -> int:
        chosen = FiredFilter(ranks, states)
        return len(await fired_jobs.page(connection, DEFAULT_TENANT, chosen, place(before, first), None, limit))

    return read


def end_of_fired(ranks: list[int], states: list[int], first: int = 0) -> Read:
    async def read(connection: Connection, before: int | None, limit: int) -> int:
        found = await fired_jobs.boundary(connection, FiredFilter(ranks, states), place(before, first), limit)
        return limit if found is not None else 0

    return read


async def runs_by_a_part(connection: Connection, _: int | None, limit: int) -> int:
    found = await ids.runs_and_jobs(connection, DEFAULT_TENANT, "ffffffff", limit, 20, runs=True, jobs=False)
    return min(rows[0].scanned for rows in found[:2])


async def jobs_by_a_part(connection: Connection, _: int | None, limit: int) -> int:
    found = await ids.runs_and_jobs(connection, DEFAULT_TENANT, "nothing", limit, 20, runs=False, jobs=True)
    return min(rows[0].scanned for rows in found)


async def letters_by_a_part(connection: Connection, _: int | None, limit: int) -> int:
    rows = await ids.search(connection, ids.DEAD_LETTERS, DEFAULT_TENANT, "ffffffff", limit, 20)
    return rows[0].scanned


# The number is how many rows the list may read in addition to those that it shows. No index has the live runs of a job
# in order, because it would cost time for every submission. Either all of them are read, or the newest runs of all
# jobs.
LISTS: dict[str, tuple[Read, int]] = {
    "live runs": (live_runs, 0),
    "ended runs": (ended_runs, 0),
    "live runs of a job": (live_runs_of_one, MANY // 10),
    "ended runs of a job": (ended_runs_of_one, 0),
    "runs of a job": (runs_of_job, MANY // 10),
    "dead letters": (letters, 0),
    "dead letters to replay": (letters_to_replay, 0),
    "jobs": (jobs_yet_to_fire, 0),
    "runs by a part of the id": (runs_by_a_part, 0),
    "jobs by a part": (jobs_by_a_part, 200),
    "dead letters by a part of the id": (letters_by_a_part, 0),
}
ONCE: dict[str, tuple[Read, int]] = {
    "jobs at rest": (jobs_at_rest, 0),
    "end of a page of jobs": (end_of_jobs, 0),
    # Every second run belongs to a job that has a row. It is read, and so is the row.
    "fired jobs": (fired([1, 2, 3], [10, 11, 12, 13], LIVE), MANY // 20),
    "fired jobs that failed": (fired([], [11, 13]), 0),
    "end of a page of fired jobs": (end_of_fired([], [10]), 0),
    "end of a page of failed jobs": (end_of_fired([], [11]), 0),
}
OF_ONE_JOB = ("live runs of a job", "ended runs of a job", "runs of a job")


async def fill(connection: asyncpg.Connection, first: int, last: int) -> None:
    await connection.execute(FILL, first, last, LIVE, BEGINNING)


async def analyze(connection: asyncpg.Connection) -> None:
    await connection.execute("analyze " + ", ".join(f"mainspring.{table}" for table in TABLES))


async def never(connection: asyncpg.Connection) -> None:
    await fill(connection, 1, MANY)


async def empty(connection: asyncpg.Connection) -> None:
    await analyze(connection)
    await fill(connection, 1, MANY)


async def few(connection: asyncpg.Connection) -> None:
    await fill(connection, 1, 100)
    await analyze(connection)
    await fill(connection, 101, MANY)


async def fresh(connection: asyncpg.Connection) -> None:
    await fill(connection, 1, MANY)
    await analyze(connection)


@pytest.fixture
async def reading(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection like in the pool for lists."""
    opened = await asyncpg.connect(database_url, server_settings=READ_SETTINGS)
    yield opened
    await opened.close()


async def without_autovacuum(connection: asyncpg.Connection) -> None:
    """Only the test runs ANALYZE."""
    days = await connection.fetch("select inhrelid::regclass::text from pg_inherits where inhparent = $1::regclass",
                                  "mainspring.run_history")  # fmt: skip
    for table in [*(row[0] for row in days), *(f"mainspring.{table}" for table in TABLES if table != "run_history")]:
        await connection.execute(f"alter table {table} set (autovacuum_enabled = off)")


async def rows_read(reading: asyncpg.Connection) -> int:
    """How many rows of our tables this session has read in its current transaction."""
    count: int = await reading.fetchval(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables"
    )
    return count


@pytest.mark.slow
@pytest.mark.parametrize("statistics_of", [never, empty, few, fresh], ids=lambda moment: moment.__name__)
async def test_a_page_reads_what_it_shows_whenever_statistics_were_taken(
    connection: asyncpg.Connection,
    reading: asyncpg.Connection,
    statistics_of: Callable[[asyncpg.Connection], Awaitable[None]],
) -> None:
    await without_autovacuum(connection)
    await statistics_of(connection)
    found: list[str] = []
    # Many times on one connection, because PostgreSQL may switch to a generic plan.
    for name, (read, besides) in [*LISTS.items()] * 4 + [*ONCE.items()]:
        for before in (None, MANY // 2):
            for limit in (20, 51, 151):
                async with reading.transaction():
                    already = await rows_read(reading)
                    came = await read(reading, before, limit)
                    total = await rows_read(reading) - already
                shown = min(limit, MANY // 100) if name in OF_ONE_JOB else limit
                if came < min(shown, 50) or total > 2 * limit + besides + 50:
                    found.append(f"{name}, {limit} before {before}: {came} rows came, {total} were read")
    assert not found, "\n".join(sorted(set(found)))


async def test_running_jobs_are_found_among_many_that_wait(
    connection: asyncpg.Connection, reading: asyncpg.Connection
) -> None:
    await without_autovacuum(connection)
    await never(connection)
    await connection.execute(
        "update mainspring.runs set state = 2, worker_id = gen_random_uuid(), claimed_at = now(), started_at = now() "
        "where job_id is null and run_id in (select run_id from mainspring.runs where job_id is null limit 60)"
    )
    async with reading.transaction():
        already = await rows_read(reading)
        assert await fired([3], [])(reading, None, 51) == 51
        assert await rows_read(reading) - already < 300


async def test_what_follows_a_page_in_its_transaction_is_planned_as_always(reading: asyncpg.Connection) -> None:
    names = ("plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "enable_sort")
    as_always = [await reading.fetchval(f"show {name}") for name in names]
    async with reading.transaction():
        for read, _ in LISTS.values():
            await read(reading, None, 51)
            assert [await reading.fetchval(f"show {name}") for name in names] == as_always
    for read, _ in LISTS.values():
        await read(reading, None, 51)
        assert [await reading.fetchval(f"show {name}") for name in names] == as_always
