"""Output in PostgreSQL has bounds: for each run, tenant and day. What is beyond is dropped with the visible mark, and
no report waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import TenantId
from mainspring.operations.logs.log_bounds import CHUNK_OVERHEAD, LogBounds, LogBudget, cut
from mainspring.roles.assembly import Assembly, assemble
from mainspring.roles.log_storage import log_bounds
from mainspring.wire.exchange import RunOrder
from mainspring.wire.logs import LogChunk, LogReceipt
from tests.conftest import TOKEN
from tests.logs.scene import Follower, a_run, chunk, claim_soon, ship, text
from tests.operations.hand_worker import HandWorker, outcome

pytestmark = pytest.mark.anyio

MARK = "\n[mainspring: output truncated at {}]\n"
SMALL = LogBounds(run=20, tenant=4 * CHUNK_OVERHEAD, day=8 * CHUNK_OVERHEAD)
RETRY = {"max_attempts": 3, "base": "1ms", "backoff": "constant"}


@pytest.fixture
async def assembly(database_url: str) -> AsyncIterator[Assembly]:
    """A server with small bounds."""
    made = await assemble(database_url, SystemClock(), chance=lambda: 0.5, log_bounds=SMALL)
    yield made
    await made.close()


def budget_of(assembly: Assembly) -> LogBudget:
    (found,) = (task for task in assembly.periodic_tasks if isinstance(task, LogBudget))
    return found


async def ended(worker: HandWorker, order: RunOrder, **fields: Any) -> str:
    """The log of the run after its report, which was accepted."""
    await worker.report(outcome(order, **fields))
    answer = await worker.api.get(f"/v1/runs/{order.run_id}")
    assert answer.json()["status"] == "SUCCESS"
    return await text(worker.api, order.run_id)


async def test_output_beyond_the_bound_of_a_run_is_dropped_with_the_mark(worker: HandWorker) -> None:
    order = await a_run(worker)
    assert await ship(worker, chunk(order, 0, b"0123456789")) == LogReceipt(stored=1)
    assert await ship(worker, chunk(order, 10, b"abcdefghijKLMNO"), chunk(order, 25, b"more")) == LogReceipt(stored=2)
    assert await ship(worker, chunk(order, 29, b"and more")) == LogReceipt(stored=1), "it is dropped, and no gap"
    assert await ship(worker, chunk(order, 37, b"the end", end=True)) == LogReceipt(stored=1)
    assert await ended(worker, order) == "0123456789abcdefghij" + MARK.format(20)
    answer = await worker.api.get(f"/v1/runs/{order.run_id}/logs")
    assert answer.headers["mainspring-log-truncated"] == "true"
    follower = Follower(worker.api, order.run_id)
    await follower.run()
    assert follower.names == ["output", "truncated", "end"]


async def test_all_attempts_of_a_run_share_its_bound(worker: HandWorker) -> None:
    order = await a_run(worker, retry=RETRY)
    await ship(worker, chunk(order, 0, b"0123456789abcde", end=True))
    await worker.report(outcome(order, "FAILED", error="no"))
    (again,) = await claim_soon(worker)
    assert await ship(worker, chunk(again, 0, b"0123456789", end=True)) == LogReceipt(stored=1)
    assert await ended(worker, again) == "01234" + MARK.format(5)
    assert await text(worker.api, order.run_id, attempt=1) == "0123456789abcde"


async def test_a_character_is_not_cut_in_two(worker: HandWorker) -> None:
    order = await a_run(worker)
    await ship(worker, chunk(order, 0, "0123456789abcdefgh€€".encode(), end=True))
    assert await ended(worker, order) == "0123456789abcdefgh" + MARK.format(18)


async def test_the_output_of_a_tenant_on_a_day_has_a_bound_at_all_servers(
    worker: HandWorker, assembly: Assembly, connection: asyncpg.Connection, database_url: str
) -> None:
    """A chunk counts more than its bytes, because many small ones fill a disk too."""
    orders = [await a_run(worker) for _ in range(5)]
    for order in orders[:3]:
        await ship(worker, chunk(order, 0, b"0123456789", end=True))
    await budget_of(assembly).run_once()
    (used,) = await connection.fetch("select tenant_id, bytes from mainspring.log_usage")
    assert tuple(used) == (1, 3 * (CHUNK_OVERHEAD + 10))
    there = await assemble(database_url, SystemClock(), scheduler=False, log_bounds=SMALL)
    transport = httpx.ASGITransport(app=there.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as elsewhere:
        here, worker.api = worker.api, elsewhere
        await ship(worker, chunk(orders[3], 0, b"0123456789", end=True))
        await budget_of(there).run_once()
        worker.api = here
    await there.close()
    await budget_of(assembly).run_once()
    assert await ship(worker, chunk(orders[4], 0, b"0123456789", end=True)) == LogReceipt(stored=1)
    assert await ended(worker, orders[3]) == "0123456789"
    assert await ended(worker, orders[4]) == MARK.format(0)


async def test_the_next_day_has_room_again(
    worker: HandWorker, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    orders = [await a_run(worker) for _ in range(6)]
    for order in orders[:5]:
        await ship(worker, chunk(order, 0, b"0123456789", end=True))
    await budget_of(assembly).run_once()
    await connection.execute("update mainspring.log_usage set day = day - 1")
    await ship(worker, chunk(orders[5], 0, b"", truncated=True))
    await budget_of(assembly).run_once()
    late = await a_run(worker)
    await ship(worker, chunk(late, 0, b"0123456789", end=True))
    assert await ended(worker, late) == "0123456789"


async def test_one_tenant_at_its_bound_takes_nothing_from_others_until_the_bound_of_the_day(assembly: Assembly) -> None:
    budget = budget_of(assembly)
    await budget.know()
    budget.spend(TenantId(1), 1, SMALL.tenant)
    assert (budget.room(TenantId(1), 0), budget.room(TenantId(2), 0)) == (0, 20)
    budget.spend(TenantId(2), 1, SMALL.tenant)
    assert budget.room(TenantId(3), 0) == 0


async def test_a_server_without_output_asks_nothing(assembly: Assembly) -> None:
    assert await budget_of(assembly).run_once() == 0


@pytest.mark.parametrize("room", range(12))
def test_what_is_kept_is_the_beginning(room: int) -> None:
    chunks = [LogChunk(UUID(int=1), 1, 1, at, data) for at, data in ((0, b"abc"), (3, b"defg"), (7, b"hij"))]
    chunks[-1].end = True
    kept = cut(chunks, room)
    assert b"".join(each.data for each in kept) == b"abcdefghij"[:room]
    assert (kept[-1].truncated, kept[-1].end) == (room < 10, True)
    assert [each.truncated for each in kept[:-1]] == [False] * (len(kept) - 1)


def test_the_bounds_are_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert log_bounds() == LogBounds()
    monkeypatch.setenv("MAINSPRING_LOG_PER_TENANT", "1GB")
    assert log_bounds() == LogBounds(tenant=10**9)
    monkeypatch.setenv("MAINSPRING_LOG_PER_RUN", "much")
    with pytest.raises(InvalidInput) as refused:
        log_bounds()
    assert refused.value.field == "MAINSPRING_LOG_PER_RUN"
