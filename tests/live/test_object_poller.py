"""The object poller reads by index what streams watch, whatever else there is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from mainspring.kernel.ids import uuid7
from mainspring.store.pool import HOT_SETTINGS
from tests.store.test_plans import Statement, explain, nodes, touched
from tests.store.test_read_plans import FILL, MANY

pytestmark = pytest.mark.anyio

ENDED = UUID(int=500)
LIVE = """
insert into mainspring.runs (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, ready_at,
                             job_id)
select lpad(to_hex(100000 + i), 32, '0')::uuid, 1, 1, 1, 0, 4, 0, t.now + i * interval '1 second', t.now,
       case when i % 2 = 1 then 'tick' else 'job-' || i end
from generate_series(1, $1) as i, (select clock_timestamp() as now) as t
"""


@pytest.mark.parametrize(
    ("name", "arguments", "most"),
    [
        ("watched_runs", [[1, 1], [ENDED, uuid7()]], 10),
        ("watched_jobs", [[1, 1], ["tick", "job-7"]], 250),
        ("watched_flows", [[1], [ENDED]], 10),
        ("tenants_of_runs", [[ENDED, uuid7()]], 10),
        ("watched_workers", [[1, 0]], 10),
    ],
)
async def test_a_look_reads_little(
    database_url: str, connection: asyncpg.Connection, name: str, arguments: list[Any], most: int
) -> None:
    await connection.execute(FILL, MANY)
    await connection.execute(LIVE, MANY)
    await connection.execute("analyze mainspring.run_history, mainspring.runs")
    hot = await asyncpg.connect(database_url, server_settings=HOT_SETTINGS)
    try:
        plan = await explain(hot, Statement("live", name, arguments, most))
    finally:
        await hot.close()
    reading = [node for node in nodes(plan) if "Scan" in node["Node Type"] and "Relation Name" in node]
    assert reading and sum(touched(node) for node in reading) <= most, reading
