"""Pain 19: a list that loads everything. A page reads only its rows, however long the list is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.store import dead_letters, history, jobs
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.store.history import RunFilter
from mainspring.store.jobs import RowFilter
from mainspring.store.pool import READ_SETTINGS, Connection
from mainspring.store.rows import PageRow
from tests.store.rows import BEGINNING

pytestmark = pytest.mark.anyio

MANY = 20_000
PAGE = 51  # 50 rows, and one to know whether there are more
MIDDLE = MANY // 2

RUNS = """
insert into mainspring.runs (run_id, tenant_id, lane_id, state, max_attempts, scheduled_for, ready_at)
select lpad(to_hex(i), 32, '0')::uuid, 1, 1, 1, 4, $2, $2 from generate_series(1, $1) as i
"""
HISTORY = """
insert into mainspring.run_history (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for,
                                    ended_at)
select lpad(to_hex(i), 32, '0')::uuid, 1, 1, 10, 1, 4, 1, $2, clock_timestamp() from generate_series(1, $1) as i
"""
LETTERS = """
insert into mainspring.dead_letters (run_id, tenant_id, lane_id, attempts, max_attempts, scheduled_for, died_at)
select lpad(to_hex(i), 32, '0')::uuid, 1, 1, 4, 4, $2, $2 from generate_series(1, $1) as i
"""
JOBS = """
insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time, id_generated,
                             created_at, updated_at, schedule)
select 1, 'job-' || i, 1, i % 128, 1, 4, false, false, $2::timestamptz + i * interval '1 second', $2, '{}'
from generate_series(1, $1) as i
"""
ANALYZE = "analyze mainspring.runs, mainspring.run_history, mainspring.dead_letters, mainspring.jobs"

Read = Callable[[Connection, int | None], Awaitable[Sequence[PageRow]]]


def place(before: int | None) -> UUID | None:
    return None if before is None else UUID(int=before)


async def live_runs(connection: Connection, before: int | None) -> Sequence[PageRow]:
    return await history.live_runs(connection, DEFAULT_TENANT, RunFilter(), place(before), PAGE)


async def ended_runs(connection: Connection, before: int | None) -> Sequence[PageRow]:
    return await history.ended_runs(connection, DEFAULT_TENANT, RunFilter(), place(before), PAGE)


async def letters(connection: Connection, before: int | None) -> Sequence[PageRow]:
    return await dead_letters.page(connection, DEFAULT_TENANT, DeadLetterFilter(), place(before), PAGE)


async def all_jobs(connection: Connection, before: int | None) -> Sequence[PageRow]:
    before_job = None if before is None else (BEGINNING + timedelta(seconds=before), f"job-{before}")
    chosen = RowFilter([1, 2, 3, 4])
    return await jobs.list_jobs(connection, DEFAULT_TENANT, chosen, before_job, None, PAGE)


LISTS = {"live runs": (RUNS, live_runs), "ended runs": (HISTORY, ended_runs), "dead letters": (LETTERS, letters),
         "jobs": (JOBS, all_jobs)}  # fmt: skip


@pytest.fixture
async def reading(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection with the settings of the read pool."""
    opened = await asyncpg.connect(database_url, server_settings=READ_SETTINGS)
    yield opened
    await opened.close()


async def rows_read(reading: asyncpg.Connection) -> int:
    """How many rows of all tables this session has read in its current transaction."""
    count: int = await reading.fetchval(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables"
    )
    return count


@pytest.mark.parametrize(("fill", "read"), LISTS.values(), ids=LISTS.keys())
async def test_a_page_of_a_long_list_does_not_load_the_list(
    connection: asyncpg.Connection, reading: asyncpg.Connection, fill: str, read: Read
) -> None:
    """Also on a connection that has read so many pages that PostgreSQL can use a generic plan."""
    await connection.execute(
        "analyze mainspring.runs, mainspring.run_history, mainspring.dead_letters, mainspring.jobs"
    )
    for _ in range(10):
        assert await read(reading, MIDDLE) == []
    await connection.execute(fill, MANY, BEGINNING)
    await connection.execute(ANALYZE)
    for before in (None, MIDDLE):
        async with reading.transaction():
            already = await rows_read(reading)
            assert len(await read(reading, before)) == PAGE
            assert await rows_read(reading) - already < 10 * PAGE
