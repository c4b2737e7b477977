"""An idempotency key is known as long as its job exists, and at least for 30 days after its end."""

from __future__ import annotations

from datetime import UTC, timedelta

import asyncpg
import httpx
import pytest

from mainspring.store import idempotency_keys
from mainspring.store.pool import Store
from mainspring.upkeep.partition_maintainer import HistoryPruner
from tests.operations.hand_worker import HandWorker, outcome
from tests.store.rows import now_of

pytestmark = pytest.mark.anyio


async def submit(api: httpx.AsyncClient, key: str, **fields: object) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", "idempotency_key": key, **fields})
    assert answer.status_code == 201, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def grow_old(connection: asyncpg.Connection, days: float) -> None:
    """All keys and ids were made that long ago."""
    ago = timedelta(days=days)
    await connection.execute("update mainspring.idempotency_keys set created_at = created_at - $1::interval", ago)
    await connection.execute("update mainspring.run_now_keys set created_at = created_at - $1::interval", ago)
    await connection.execute("update mainspring.taken_ids set taken_at = taken_at - $1::interval", ago)


async def end_before(connection: asyncpg.Connection, days: int) -> None:
    """The ended runs ended that long ago, and stand in the partition of that day."""
    day = (await now_of(connection)).astimezone(UTC).date() - timedelta(days=days)
    await connection.execute(
        f"""create table if not exists mainspring.run_history_{day:%Y%m%d} partition of mainspring.run_history
            for values from ('{day} 00:00+00') to ('{day + timedelta(days=1)} 00:00+00')"""
    )
    await connection.execute(
        "update mainspring.run_history set ended_at = $1::date::timestamp at time zone 'UTC' + interval '12 h'", day
    )


async def known(connection: asyncpg.Connection) -> set[str]:
    return {row["key"] for row in await connection.fetch("select key from mainspring.idempotency_keys")}


async def test_a_key_lives_as_long_as_its_job(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store
) -> None:
    first = await submit(api, "recurring", schedule={"every": "1h"})
    await submit(api, "later", schedule={"at": "2099-01-01T00:00:00Z"})
    await submit(api, "by hand", schedule="manual", job_id="chosen")
    await submit(api, "queued")
    await submit(api, "queued with an id", job_id="mine")
    await grow_old(connection, 400)
    await HistoryPruner(store, 30).run_once()
    assert await known(connection) == {"recurring", "later", "by hand", "queued", "queued with an id"}
    again = await api.post(
        "/v1/jobs", json={"task": "noop", "idempotency_key": "recurring", "schedule": {"every": "1h"}}
    )
    assert (again.status_code, again.json()) == (200, {"job_id": first})


@pytest.mark.parametrize("retention", [1, 30, 90])
@pytest.mark.parametrize("fields", [{}, {"job_id": "mine"}])
async def test_a_key_of_an_ended_job_is_kept_for_30_days_after_its_end_whatever_the_retention_of_the_history(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store, retention: int, fields: dict[str, str]
) -> None:
    await submit(api, "key", **fields)
    worker = HandWorker(api)
    [order] = await worker.claim()
    await worker.report(outcome(order))
    await grow_old(connection, 400)
    await end_before(connection, 29)
    for _ in range(2):
        await HistoryPruner(store, retention).run_once()
        assert await known(connection) == {"key"}
    ended = await connection.fetchval("select count(*) from mainspring.run_history")
    assert ended == (0 if retention == 1 else 1)


@pytest.mark.parametrize(("retention", "days"), [(1, 32), (30, 32), (90, 92)])
async def test_a_key_is_forgotten_after_that(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store, retention: int, days: int
) -> None:
    await submit(api, "key")
    await submit(api, "key of another", job_id="mine")
    worker = HandWorker(api)
    for order in await worker.claim(2):
        await worker.report(outcome(order))
    await grow_old(connection, 400)
    await end_before(connection, days)
    await HistoryPruner(store, retention).run_once()
    assert await known(connection) == set()


async def test_the_ends_of_many_runs_are_noted_page_by_page(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    for number in range(5):
        await submit(api, f"key {number}")
    worker = HandWorker(api)
    for order in await worker.claim(5):
        await worker.report(outcome(order))
    await grow_old(connection, 400)
    now = await now_of(connection)
    await idempotency_keys.keep(connection, now - timedelta(days=1), now, batch=2)
    rows = await connection.fetch(
        """select k.created_at = h.ended_at as same from mainspring.idempotency_keys k
           join mainspring.run_history h on h.run_id = k.job_id::uuid"""
    )
    assert [row["same"] for row in rows] == [True] * 5


async def run_now(api: httpx.AsyncClient, job_id: str) -> int:
    answer = await api.post(f"/v1/jobs/{job_id}:runNow", json={"idempotency_key": "key"})
    return answer.status_code


async def end_all(api: httpx.AsyncClient, count: int) -> None:
    worker = HandWorker(api)
    for order in await worker.claim(count):
        await worker.report(outcome(order))


@pytest.mark.parametrize("retention", [1, 90])
async def test_a_key_of_run_now_lives_as_long_as_its_job_and_30_days_longer(
    api: httpx.AsyncClient, connection: asyncpg.Connection, store: Store, retention: int
) -> None:
    recurring = await submit(api, "a", schedule={"every": "1h"}, overlap="allow")
    once = [await submit(api, "b", overlap="allow"), await submit(api, "c", overlap="allow", job_id="mine")]
    for job_id in (recurring, *once):
        assert await run_now(api, job_id) == 202
    await end_all(api, 5)
    await grow_old(connection, 400)
    await end_before(connection, 29)
    for _ in range(2):
        await HistoryPruner(store, retention).run_once()
        assert [await run_now(api, job_id) for job_id in (recurring, *once)] == [200] * 3
    await grow_old(connection, 80)
    if retention == 90:
        await end_before(connection, 92)
    await HistoryPruner(store, retention).run_once()
    keys = await connection.fetch("select job_id from mainspring.run_now_keys")
    assert [key["job_id"] for key in keys] == [recurring]
    assert await run_now(api, recurring) == 200
