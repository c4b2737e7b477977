"""How many live workers a tenant has: a hello counts only near the limit."""

from __future__ import annotations

from datetime import UTC, datetime

import asyncpg
import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.exchange.worker_counts import WorkerCounts
from tests.store.rows import a_worker

pytestmark = pytest.mark.anyio


async def test_the_count_is_read_every_five_seconds_and_exact_near_the_limit(connection: asyncpg.Connection) -> None:
    clock = ManualClock(datetime(2026, 11, 18, tzinfo=UTC))
    counts = WorkerCounts(clock)
    for _ in range(4):
        assert not await counts.is_full(connection, DEFAULT_TENANT, uuid7(), 10)
        await a_worker(connection)
    for _ in range(4):  # registered at another server: not known here yet
        await a_worker(connection)
    assert not await counts.is_full(connection, DEFAULT_TENANT, uuid7(), 10)
    clock.advance(5.0)
    assert not await counts.is_full(connection, DEFAULT_TENANT, uuid7(), 9), "8 of 9, counted exactly"
    known = await a_worker(connection)
    assert await counts.is_full(connection, DEFAULT_TENANT, uuid7(), 9)
    assert not await counts.is_full(connection, DEFAULT_TENANT, known, 9), "a worker that is registered comes back"
