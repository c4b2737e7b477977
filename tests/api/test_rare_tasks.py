"""Runs of a task that has few among very many: the rollups tell when they ended, and only these hours are read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import first_uuid7
from mainspring.operations.read.runs import RunReader
from mainspring.store import history
from mainspring.store.pool import Store
from tests.api.test_insights import folded
from tests.store.rows import a_lane

pytestmark = pytest.mark.anyio

RUN = """
insert into mainspring.run_history
    (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, started_at, ended_at, ran_ms)
values ($1, 1, $2, 10, 1, 4, 1, $3, $3, $4, 1.0)
"""


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that read runs in their order end after the first stretch, which has two."""
    monkeypatch.setattr(RunReader, "budget", 0.0)
    monkeypatch.setattr(RunReader, "first_stretch", 2)
    monkeypatch.setattr(RunReader, "rare_budget", 30.0)


async def add(connection: asyncpg.Connection, lane: int, created: datetime, lasted: timedelta, number: int = 0) -> UUID:
    run_id = UUID(int=first_uuid7(created).int | 7 << 76 | 1 << 63 | number)
    await connection.execute(RUN, run_id, lane, created, created + lasted)
    return run_id


async def page(api: httpx.AsyncClient, query: str) -> dict[str, Any]:
    answer = await api.get(f"/v1/runs?{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.slow
async def test_the_two_runs_of_a_task_among_many_are_one_page(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store, no_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare, busy = await a_lane(connection, task="rare"), await a_lane(connection, task="busy")
    now = datetime.now(UTC)
    for number in range(60):
        await add(connection, busy, now - timedelta(minutes=5 * number), timedelta(seconds=1), number)
    quick = await add(connection, rare, now - timedelta(hours=4, minutes=30), timedelta(seconds=1))
    # It was created before all others and ended in the last hour but one.
    long = await add(connection, rare, now - timedelta(hours=5), timedelta(hours=3))
    await folded(store, connection)
    read: list[Any] = []
    whole = history.ended_between

    async def counted(*args: Any, **kwargs: Any) -> Any:
        rows = await whole(*args, **kwargs)
        read.append(args[4])
        return rows

    monkeypatch.setattr(history, "ended_between", counted)
    found = await page(api, "task=rare")
    assert [run["run_id"] for run in found["runs"]] == [str(quick), str(long)]
    assert found["next"] is None and found["searched_to"] is None
    assert 2 <= len(read) <= 3, "the hours without a run of the task are not read"
    live = (await api.post("/v1/jobs", json={"task": "rare"})).json()["job_id"]
    first = await page(api, "task=rare&limit=1&view=row")
    assert [run["run_id"] for run in first["runs"]] == [live]
    rest = await page(api, f"task=rare&limit=5&cursor={quote(first['next'])}")
    assert [run["run_id"] for run in rest["runs"]] == [str(quick), str(long)]
    for query, expected in (
        ("task=rare&status=success", [str(quick), str(long)]), ("task=rare&status=queued", [live]),
        ("task=rare&status=failed", []), ("task=nobody", []), ("task=rare&queue=other", []),
        ("task=rare&label=a:b", []),
        ("task=rare&queue=default", [live, str(quick), str(long)]),
    ):  # fmt: skip
        answer = await page(api, query)
        assert ([run["run_id"] for run in answer["runs"]], answer["next"]) == (expected, None), query


async def test_what_has_just_ended_is_found_before_it_is_folded(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store, no_time: None
) -> None:
    rare, busy = await a_lane(connection, task="rare"), await a_lane(connection, task="busy")
    now = datetime.now(UTC)
    for number in range(20):
        await add(connection, busy, now - timedelta(minutes=number), timedelta(seconds=1), number)
    await folded(store, connection)
    fresh = await add(connection, rare, now - timedelta(hours=2), timedelta(hours=2, seconds=2))
    found = await page(api, "task=rare")
    assert [run["run_id"] for run in found["runs"]] == [str(fresh)] and found["next"] is None


@pytest.mark.slow
async def test_a_task_with_ends_in_many_hours_is_searched_in_order(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store, no_time: None
) -> None:
    often, now = await a_lane(connection, task="often"), datetime.now(UTC)
    added = [
        await add(connection, often, now - timedelta(minutes=30 * number), timedelta(seconds=1), number)
        for number in range(1, 56)
        if (now - timedelta(minutes=30 * number)).date() >= (now - timedelta(days=1)).date()
    ]
    await folded(store, connection)
    found: list[str] = []
    cursor = ""
    while True:
        answer = await page(api, "task=often&limit=1000" + (f"&cursor={quote(cursor)}" if cursor else ""))
        found += [run["run_id"] for run in answer["runs"]]
        if not (cursor := answer["next"] or ""):
            break
    assert found == [str(one) for one in added]
