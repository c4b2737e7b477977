"""The statements of limits, rates and circuit breakers find their runs by an index of their own."""

from __future__ import annotations

import asyncpg
import pytest

from mainspring.store.pool import HOT_SETTINGS
from mainspring.store.queries import load

pytestmark = pytest.mark.anyio

LIMITS = load("limits")
CASES = [
    ("unstarted", ("'{5}'::bigint[]", "10"), {"runs_paced_1", "runs_paced_2"}),
    ("take_back", ("5", "10"), {"runs_behind_breaker"}),
    ("due_lines", ("10",), {"limit_keys_due"}),
    ("open_breakers", ("0", "10"), {"limit_keys_open"}),
    ("pick_heads", ("'{5}'", "'{3}'", "'{5}'", "array[now()]"), {"runs_line"}),
    ("pick_firsts", ("'{5}'", "'{5}'", "array[now()]"), {"runs_in_order"}),
    ("lines_with_room", ("0", "10"), {"runs_in_order"}),
]


@pytest.mark.parametrize(("name", "values", "indexes"), CASES, ids=[case[0] for case in CASES])
async def test_it_uses_its_index(
    connection: asyncpg.Connection, name: str, values: tuple[str, ...], indexes: set[str]
) -> None:
    for setting, value in HOT_SETTINGS.items():
        await connection.execute("select set_config($1, $2, false)", setting, value)
    await connection.execute(f"prepare it as {LIMITS[name]}")
    plan = await connection.fetch(f"explain execute it ({', '.join(values)})")
    text = "\n".join(row[0] for row in plan)
    assert all(index in text for index in indexes), text
    assert "Seq Scan" not in text


async def test_a_run_that_needs_a_line_and_stands_in_another_one_is_found_by_an_index(
    connection: asyncpg.Connection,
) -> None:
    """The table has grown since its statistics were made, as in production."""
    for setting, value in HOT_SETTINGS.items():
        await connection.execute("select set_config($1, $2, false)", setting, value)
    find = "select mainspring.first_elsewhere($1, now())"
    assert await connection.fetchval(find, 7) is None
    await connection.execute(
        """insert into mainspring.runs (run_id, tenant_id, lane_id, state, max_attempts, scheduled_for, ready_at,
                                        limit_keys, held_key, held_rank)
           select gen_random_uuid(), 1, 1, 4, 1, t.at, t.at, array[i, i + 1], i, t.at
           from generate_series(1, 2000) as i, (select now() - interval '1 hour' as at) as t"""
    )
    await connection.execute("select pg_stat_force_next_flush()")
    reads = """select s.idx_tup_read + t.seq_tup_read + t.idx_tup_fetch
               from pg_stat_user_indexes s join pg_stat_user_tables t using (relid)
               where s.indexrelname = 'runs_in_several_lines'"""
    before = await connection.fetchval(reads)
    assert await connection.fetchval(find, 7) is not None
    await connection.execute("select pg_stat_force_next_flush()")
    assert await connection.fetchval(reads) - before <= 10
