"""Lists of the runs of a job are read by an index, regardless of the size of the history."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from mainspring.store.pool import READ_SETTINGS
from mainspring.store.queries import load
from tests.store.test_plans import nodes, touched

pytestmark = pytest.mark.anyio

MANY = 20_000
OWN = UUID(int=500)
# Every second run is itself a job and has no job_id. One in a hundred belongs to the job in the query.
FILL = """
insert into mainspring.run_history (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for,
                                    ended_at, job_id)
select lpad(to_hex(i), 32, '0')::uuid, 1, 1, 10, 1, 4, 1, t.now, t.now,
       case when i % 100 = 1 then 'tick' when i % 2 = 1 then 'job-' || i end
from generate_series(1, $1) as i, (select clock_timestamp() as now) as t
"""


async def plan(connection: asyncpg.Connection, *arguments: Any) -> tuple[int, float]:
    """How many rows were returned, and how many were read."""
    text = await connection.fetchval(
        f"explain (analyze, buffers off, timing off, format json) {load('history')['ended_runs']}", *arguments
    )
    found = msgspec.json.decode(text)[0]["Plan"]
    return found["Actual Rows"], sum(touched(node) for node in nodes(found) if "Scan" in node["Node Type"])


@pytest.mark.parametrize(
    ("job", "own", "rows"), [("tick", None, 51), ("job-7", None, 1), ("nothing", None, 0), (None, OWN, 1)]
)
async def test_the_runs_of_a_job_are_found_without_a_walk_through_the_history(
    database_url: str, connection: asyncpg.Connection, job: str | None, own: UUID | None, rows: int
) -> None:
    await connection.execute(FILL, MANY)
    await connection.execute("analyze mainspring.run_history")
    reading = await asyncpg.connect(database_url, server_settings=READ_SETTINGS)
    try:
        came, total = await plan(reading, 1, None, job, None, None, None, None, None, own, *[None] * 9, 51)
    finally:
        await reading.close()
    assert came == rows and total <= MANY / 100
