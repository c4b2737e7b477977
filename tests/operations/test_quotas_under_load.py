"""Quotas under 64 clients and 64 workers at two servers: never exceeded by more than docs/quotas.md says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from tests.logs.scene import ask, chunk
from tests.operations.gated import check_counts
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.tenants import Tenants, several_tenants

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CLIENTS = 64
RUNS = 100
AT_ONCE, PER_MINUTE, PER_SECOND, LOG_BYTES = 5, 2400, 40, 3000
QUOTAS = {
    "concurrent_runs": AT_ONCE, "runs_per_minute": PER_MINUTE, "submissions_per_second": PER_SECOND,
    "log_bytes_per_day": LOG_BYTES,
}  # fmt: skip


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        await made.add("acme")
        yield made


@pytest.fixture
async def clients(tenants: Tenants, database_url: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Of the tenant acme, at two servers in turn. The first one has stored the quotas, and the second one reads them
    when it starts: servers that are there learn of them within a second."""
    answer = await tenants.operator.put("/v1/tenants/acme/quotas", json=QUOTAS)
    assert answer.status_code == 200, answer.text
    other = await assemble(database_url, SystemClock(), chance=lambda: 0.5, scheduler=False)
    acme = tenants.clients["acme"]
    transport = httpx.ASGITransport(app=other.app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url=acme.base_url, headers=acme.headers) as there:
        yield [acme if number % 2 == 0 else there for number in range(CLIENTS)]
    await other.close()


async def test_no_quota_is_exceeded_by_more_than_is_documented(
    tenants: Tenants, clients: list[httpx.AsyncClient], connection: asyncpg.Connection, database_url: str
) -> None:
    accepted: list[tuple[float, float]] = []
    done, most = 0, 0
    clock = asyncio.get_running_loop().time

    async def submit(client: httpx.AsyncClient) -> None:
        while len(accepted) < RUNS:
            asked = clock()
            answer = await client.post("/v1/jobs", json={"task": "noop"})
            assert answer.status_code in (201, 429), answer.text
            if answer.status_code == 201:
                accepted.append((asked, clock()))
            else:
                await asyncio.wait([stop], timeout=0.05)

    async def work(client: httpx.AsyncClient) -> None:
        nonlocal done
        worker = HandWorker(client)
        while done < RUNS:
            hello = None if worker.seq else worker.card
            orders = (await worker.exchange(free=4, hello=hello, wait_ms=100)).runs
            for order in orders:
                await ask(worker, chunk(order, 0, b"x" * 100))
            if orders:
                await worker.report(*map(outcome, orders))
                done += len(orders)

    async def look() -> None:
        nonlocal most
        looker = await asyncpg.connect(database_url)
        count = "select count(*) from mainspring.runs where tenant_id = $1 and worker_id is not null"
        while done < RUNS:
            most = max(most, await looker.fetchval(count, tenants.ids["acme"]))
        await looker.close()

    stop = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(120):
        await asyncio.gather(look(), *map(submit, clients), *map(work, clients))

    assert 0 < most <= AT_ONCE
    check_windows(accepted, PER_SECOND, 2.0, 0)
    rows = await connection.fetch(
        "select extract(epoch from started_at)::float8 from mainspring.run_history where tenant_id = $1",
        tenants.ids["acme"],
    )
    check_windows([(row[0], row[0]) for row in rows], PER_MINUTE / 60, 2.25, 2)
    stored = await connection.fetchval(
        "select sum(bytes) from mainspring.run_logs where tenant_id = $1", tenants.ids["acme"]
    )
    assert stored < RUNS * 100, "output was cut"
    await check_counts(connection)


def check_windows(moments: list[tuple[float, float]], per_second: float, ahead: float, more: int) -> None:
    """In no window of t seconds there are more than per_second * (t + ahead) + more. Each was accepted between two
    moments, and is in a window for sure if both are."""
    for began, _ in moments:
        ends = sorted(end for start, end in moments if start >= began)
        for number, end in enumerate(ends, 1):
            assert number <= per_second * (end - began + ahead) + more, (number, end - began)
