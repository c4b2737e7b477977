"""The statements of rates and circuit breakers find their runs by an index of their own."""

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
