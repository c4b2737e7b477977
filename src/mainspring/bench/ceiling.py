"""The plain-SQL ceiling: what this PostgreSQL does on this machine with the same statements and nothing around them.

One connection, batches of 500: insert the run rows with their definition, claim them, move them to history.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from mainspring.kernel.ids import DEFAULT_TENANT, uuid7, uuid7_texts
from mainspring.store import runs
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from mainspring.store.pool import HOT_SETTINGS, connect

BATCH = 500
DATABASE = "ceiling"


async def measure(postgres: EmbeddedPostgres, payloads: list[str]) -> float:
    """Life cycles per second, in a database of its own on the same server."""
    admin = await connect(postgres.url("postgres"), application="bench")
    await admin.execute(f"drop database if exists {DATABASE}")
    await admin.execute(f"create database {DATABASE}")
    try:
        await migrate(postgres.url(DATABASE))
        return await _measure(postgres.url(DATABASE), payloads)
    finally:
        await admin.execute(f"drop database {DATABASE} with (force)")
        await admin.close()


async def _measure(url: str, payloads: list[str]) -> float:
    connection = await connect(url, application="bench ceiling", settings=HOT_SETTINGS)
    worker, beginning = uuid7(), datetime(2000, 1, 1, tzinfo=UTC)
    started = time.perf_counter()
    for start in range(0, len(payloads), BATCH):
        batch = payloads[start : start + BATCH]
        await runs.insert_plain(connection, DEFAULT_TENANT, 1, 4, uuid7_texts(len(batch)), batch)
        claimed = await runs.claim(connection, [(1, 1, beginning)], BATCH, worker, 1)
        zeros = [0.0] * len(claimed)
        recorded = await runs.report_successes(
            connection,
            worker,
            [row["run_id"] for row in claimed],
            [row["fence"] for row in claimed],
            zeros,
            zeros,
            [None] * len(claimed),
        )
        if len(recorded) != len(batch):
            raise AssertionError(f"the ceiling lost runs: {len(recorded)} of {len(batch)}")
    elapsed = time.perf_counter() - started
    await connection.close()
    return len(payloads) / elapsed
