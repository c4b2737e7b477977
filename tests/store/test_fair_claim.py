"""Claims from lanes of several tenants: tenants take turns, and within a tenant the order is that of the plain
claim."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import asyncpg
import pytest

from mainspring.domain.job import Priority
from mainspring.domain.transitions import StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, TenantId, uuid7
from mainspring.store import runs
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.pool import HOT_SETTINGS, Connection

from .rows import BEGINNING, a_lane, live, queued

pytestmark = pytest.mark.anyio

A, B = TenantId(1), TenantId(2)  # the caller gives the tenant of each lane


async def claim(
    connection: Connection,
    lanes: Mapping[int, TenantId],
    limit: int,
    starts: Mapping[TenantId, int] | None = None,
    worker_id: UUID | None = None,
) -> list[ClaimedRun]:
    rows = await connection.fetch(
        "select lane_id, priority from mainspring.lanes where lane_id = any ($1) order by lane_id", list(lanes)
    )
    heads = [(row["lane_id"], row["priority"], BEGINNING) for row in rows]
    tenants = [lanes[row["lane_id"]] for row in rows]
    return await runs.claim_fairly(
        connection, heads, tenants, starts or dict.fromkeys(tenants, 0), limit, worker_id or uuid7(), 1
    )


def by_tenant(rows: list[ClaimedRun], lanes: Mapping[int, TenantId]) -> dict[TenantId, int]:
    return dict(Counter(lanes[row.lane_id] for row in rows))


async def test_where_tenants_stand_decides_how_many_each_gets(connection: asyncpg.Connection) -> None:
    lanes = {await a_lane(connection, task=f"t{n}"): tenant for n, tenant in enumerate((A, A, B))}
    for lane_id in lanes:
        await queued(connection, lane_id, 40)
    assert by_tenant(await claim(connection, lanes, 10), lanes) == {A: 5, B: 5}
    assert by_tenant(await claim(connection, lanes, 10, {A: 100, B: 104}), lanes) == {A: 7, B: 3}
    assert by_tenant(await claim(connection, lanes, 10, {A: 0, B: 50}), lanes) == {A: 10}
    assert by_tenant(await claim(connection, lanes, 100), lanes) == {A: 58, B: 32}, "the rest goes to the other"


async def test_within_a_tenant_priority_and_age_decide_as_ever(connection: asyncpg.Connection) -> None:
    low = await a_lane(connection, "l", priority=Priority.LOW)
    high = await a_lane(connection, "h", priority=Priority.HIGH)
    other = await a_lane(connection, "o")
    lanes = {low: A, high: A, other: B}
    [old] = await queued(connection, low, waited=11 * 60)
    fresh = await queued(connection, high, 2)
    await queued(connection, low, waited=9 * 60)
    theirs = await queued(connection, other, 5)
    taken = {row.run_id for row in await claim(connection, lanes, 4)}
    assert old in taken
    assert len(taken & set(fresh)) == 1
    assert len(taken & set(theirs)) == 2


async def test_critical_goes_before_everything_and_is_shared(connection: asyncpg.Connection) -> None:
    lanes = {
        await a_lane(connection, "c", priority=Priority.CRITICAL): A,
        await a_lane(connection, "d", priority=Priority.CRITICAL): B,
        await a_lane(connection, "n", priority=Priority.HIGH): B,
    }
    critical_a, critical_b, normal = lanes
    await queued(connection, normal, 5, waited=24 * 3600)
    await queued(connection, critical_a, 20, waited=60)
    await queued(connection, critical_b, 3)
    counts = Counter(row.lane_id for row in await claim(connection, lanes, 8))
    assert counts == {critical_a: 5, critical_b: 3}


async def test_what_backs_off_is_locked_or_over_its_time_is_left(
    database_url: str, connection: asyncpg.Connection
) -> None:
    lanes = {await a_lane(connection, task=f"t{n}"): tenant for n, tenant in enumerate((A, B))}
    first, second = lanes
    await queued(connection, first, waited=-60)
    [late] = await queued(connection, first, waited=5)
    [locked] = await queued(connection, second, waited=60)
    [free] = await queued(connection, second)
    await connection.execute("update mainspring.runs set deadline = clock_timestamp() where run_id = $1", late)
    other = await asyncpg.connect(database_url)
    await connection.execute("set lock_timeout = '2s'")
    async with other.transaction():
        await runs.lock_run(other, DEFAULT_TENANT, locked)
        rows = await claim(connection, lanes, 2)
    await other.close()
    assert [row.run_id for row in rows] == [free]


async def test_concurrent_claims_share_nothing_and_leave_nothing(
    database_url: str, connection: asyncpg.Connection
) -> None:
    lanes = {await a_lane(connection, task=f"t{n}", priority=n % 4): TenantId(1 + n % 3) for n in range(6)}
    expected = {run_id for lane_id in lanes for run_id in await queued(connection, lane_id, 400)}

    async def claim_all(limit: int) -> list[UUID]:
        own = await asyncpg.connect(database_url, server_settings=HOT_SETTINGS)
        worker_id, taken = uuid7(), []
        while rows := await claim(own, lanes, limit, worker_id=worker_id):
            assert len(rows) <= limit
            taken += [row.run_id for row in rows]
        await own.close()
        return taken

    # A claim is empty while others hold the last rows, so the remaining runs are claimed at the end.
    parts = await asyncio.gather(*(claim_all(limit) for limit in (1, 7, 50, 150)))
    taken = [run_id for part in [*parts, await claim_all(100)] for run_id in part]
    assert len(taken) == len(expected)
    assert set(taken) == expected
    assert {row["state"] for row in await live(connection)} == {StoredState.RUNNING}
