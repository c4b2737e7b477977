"""Servers share the connections that PostgreSQL has, and say in plain words when there is none left."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import assemble
from mainspring.store import tokens
from mainspring.store.connection_budget import LEAST, OUTSIDE_POOLS, ConnectionBudget, PoolSizes, ResizablePool, share
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from mainspring.store.pool import AWAY, NoFreeConnection, Store, connect
from tests.conftest import TOKEN
from tests.eventually import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WANTED = PoolSizes(8, 6)


@pytest.mark.parametrize("usable", [50, 97, 197, 1000])
def test_the_shares_of_all_fit_into_what_there_is_unless_even_the_least_does_not(usable: int) -> None:
    for processes in range(1, 15):
        sizes = share(WANTED, usable, processes)
        assert LEAST <= sizes.hot <= WANTED.hot and LEAST <= sizes.reads <= WANTED.reads, processes
        if processes * (2 * LEAST + OUTSIDE_POOLS) <= usable:
            assert sizes.connections * processes <= usable, processes
        if processes * WANTED.connections <= usable:
            assert sizes == WANTED, processes


async def sessions(connection: asyncpg.Connection, like: str) -> int:
    query = "select count(*) from pg_stat_activity where application_name like $1 and datname = current_database()"
    number: int = await connection.fetchval(query, like)
    return number


async def test_a_pool_becomes_smaller_and_larger_again(store: Store, connection: asyncpg.Connection) -> None:
    async def busy() -> None:
        await asyncio.gather(*(store.hot.fetchval("select pg_sleep(0.01)") for _ in range(30)))

    async def down_to(count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while await sessions(connection, "mainspring server hot") > count:
                pass

    pool = ResizablePool(store.hot)
    await busy()
    assert await sessions(connection, "mainspring server hot") == 8
    await pool.resize(3)
    await down_to(3)
    await busy()
    assert (pool.size, await sessions(connection, "mainspring server hot")) == (3, 3)
    await pool.resize(8)
    await busy()
    assert (pool.size, await sessions(connection, "mainspring server hot")) == (8, 8)


async def test_a_server_makes_room_for_others_and_takes_it_back_when_they_have_gone(
    store: Store, connection: asyncpg.Connection, database_url: str
) -> None:
    budget = ConnectionBudget(store)
    assert await budget.run_once(starting=True) == WANTED
    others = [await connect(database_url, application="pulse") for _ in range(20)]
    assert await budget.run_once() != WANTED
    assert await store.hot.fetchval("select 1") == await store.reads.fetchval("select 1") == 1
    for other in others:
        await other.close()
    async with asyncio.timeout(PATIENCE):
        while await sessions(connection, "mainspring pulse"):
            pass
    assert await budget.run_once() == WANTED


@pytest.fixture(scope="module")
def ordinary_postgres() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL with its usual 100 connections."""
    folder = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    server = EmbeddedPostgres(folder / "data", settings={"fsync": "off", "max_connections": "100"})
    server.start()
    try:
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def url(ordinary_postgres: EmbeddedPostgres) -> str:
    address = ordinary_postgres.url()
    await migrate(address)
    connection = await asyncpg.connect(address)
    if not await connection.fetchval("select exists (select from mainspring.tokens)"):
        await tokens.insert(connection, DEFAULT_TENANT, TOKEN, "admin", "test")
    await connection.close()
    return address


@pytest.fixture
async def full(url: str) -> AsyncIterator[str]:
    """The same, with all its connections in use."""
    opened = []
    with pytest.raises(asyncpg.TooManyConnectionsError):
        while True:
            opened.append(await asyncpg.connect(url))
    yield url
    for connection in opened:
        await connection.close()


async def test_eight_busy_servers_fit_into_a_postgresql_with_100_connections(url: str) -> None:
    async with AsyncExitStack() as stack:
        servers = []
        for _ in range(8):
            servers.append(await assemble(url, SystemClock()))
            stack.push_async_callback(servers[-1].close)
            assert await servers[-1].pulse.run_once()
        for server in servers:
            await server.connection_budget.run_once()
        await asyncio.gather(
            *(
                pool.fetchval("select pg_sleep(0.02)")
                for server in servers
                for pool in (server.store.hot, server.store.reads)
                for _ in range(20)
            )
        )
        others = [await connect(url, application="listener") for _ in servers]  # the listener of each, and its leases
        others += [await connect(url, application="leases") for _ in servers]
        assert await sessions(others[0], "mainspring %") <= 97
        for other in others:
            await other.close()


async def test_a_connection_that_postgresql_refuses_says_what_to_do(full: str) -> None:
    with pytest.raises(NoFreeConnection, match=r"too many clients.*raise max_connections") as caught:
        await connect(full, application="test")
    assert isinstance(caught.value, AWAY)


async def test_a_server_that_gets_no_connection_says_so_and_ends(full: str, tmp_path: Path) -> None:
    for role in (["server", "--port", "8799", "--data", str(tmp_path)], ["scheduler"]):
        command = [sys.executable, "-m", "mainspring", *role, "--database-url", full, "--database-wait", "0"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)
        assert done.returncode != 0
        assert "error: PostgreSQL has no free connection (too many clients)" in done.stderr
        assert "hint: raise max_connections" in done.stderr


async def test_a_request_that_gets_no_connection_is_told_so(url: str) -> None:
    server = await assemble(url, SystemClock(), scheduler=False)
    opened: list[asyncpg.Connection] = []
    transport = httpx.ASGITransport(app=server.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as client:
            assert (await client.get("/v1/jobs")).status_code == 200
            server.store.cut()
            with pytest.raises(asyncpg.TooManyConnectionsError):
                while True:
                    opened.append(await asyncpg.connect(url))
            refused = await client.get("/v1/jobs")
        assert (refused.status_code, refused.json()["code"]) == (503, "store_down")
        assert "too many clients" in refused.json()["detail"]
        assert "max_connections" in refused.json()["hint"]
    finally:
        for connection in opened:
            await connection.close()
        await server.close()
