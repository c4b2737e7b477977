"""The plain-SQL ceiling: how fast this PostgreSQL runs the same statements without the rest of the product."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import asyncpg

from mainspring.kernel.ids import DEFAULT_TENANT, uuid7, uuid7_texts
from mainspring.store import runs
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from mainspring.store.pool import HOT_SETTINGS, connect

BATCH = 500
DATABASE = "ceiling"
_LANE, _PRIORITY, _ATTEMPTS = 1, 1, 4


async def measure(postgres: EmbeddedPostgres, payloads: list[str]) -> float:
    """Runs per second over one connection, in batches of 500: insert the run rows with their definition, claim them,
    move them to history."""
    async with _database_of_its_own(postgres) as url:
        connection = await _connect(url)
        worker, beginning = uuid7(), datetime(2000, 1, 1, tzinfo=UTC)
        started = time.perf_counter()
        for start in range(0, len(payloads), BATCH):
            batch = payloads[start : start + BATCH]
            await runs.insert_plain(connection, DEFAULT_TENANT, _LANE, _ATTEMPTS, uuid7_texts(len(batch)), batch)
            claimed = await runs.claim(connection, [(_LANE, _PRIORITY, beginning)], BATCH, worker, 1)
            zeros = [0.0] * len(claimed)
            recorded = await runs.report_successes(
                connection,
                worker,
                [run.run_id for run in claimed],
                [run.fence for run in claimed],
                zeros,
                zeros,
                [None] * len(claimed),
            )
            if len(recorded) != len(batch):
                raise AssertionError(f"the ceiling lost runs: {len(recorded)} of {len(batch)}")
        elapsed = time.perf_counter() - started
        await connection.close()
    return len(payloads) / elapsed


async def measure_one_by_one(postgres: EmbeddedPostgres, payloads: list[str], connections: int) -> float:
    """Run rows inserted per second, one transaction each, over several connections at once."""
    async with _database_of_its_own(postgres) as url:
        opened = [await _connect(url) for _ in range(connections)]
        queue = iter(payloads)
        started = time.perf_counter()
        await asyncio.gather(*(_insert_each(connection, queue) for connection in opened))
        elapsed = time.perf_counter() - started
        inserted = await opened[0].fetchval("select count(*) from mainspring.runs")
        for connection in opened:
            await connection.close()
    if inserted != len(payloads):
        raise AssertionError(f"the ceiling lost runs: {inserted} of {len(payloads)}")
    return len(payloads) / elapsed


async def _insert_each(connection: asyncpg.Connection, queue: Iterator[str]) -> None:
    for payload in queue:
        await runs.insert_plain(connection, DEFAULT_TENANT, _LANE, _ATTEMPTS, uuid7_texts(1), [payload])


async def _connect(url: str) -> asyncpg.Connection:
    return await connect(url, application="bench ceiling", settings=HOT_SETTINGS)


@asynccontextmanager
async def _database_of_its_own(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    admin = await connect(postgres.url("postgres"), application="bench")
    await admin.execute(f"drop database if exists {DATABASE}")
    await admin.execute(f"create database {DATABASE}")
    try:
        await migrate(postgres.url(DATABASE))
        yield postgres.url(DATABASE)
    finally:
        with suppress(asyncpg.ObjectInUseError):  # after an error, connections may be open; the next call drops it
            await admin.execute(f"drop database {DATABASE}")
        await admin.close()
