"""Connections that are dead without an error, and those of processes that are stopped."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from mainspring.operations.signals import Signals
from mainspring.store.pool import AWAY, SESSION_SETTINGS, Store, connect, open_store
from mainspring.store.pooled_connection import StoreConnection
from tests.cluster.proxy import Links, ProxyLink
from tests.processes.cluster import eventually

pytestmark = pytest.mark.anyio

CUT = 25.0  # the pools' own command_timeout would end it after 35


@pytest.fixture
def links() -> Iterator[Links]:
    opened = Links()
    yield opened
    opened.close()


@pytest.fixture
def link(links: Links, database_url: str) -> ProxyLink:
    folder = parse_qs(urlsplit(database_url).query)["host"][0]
    return links.open("postgres", [Path(folder) / ".s.PGSQL.5432"])


@pytest.fixture
async def store(link: ProxyLink, database_url: str) -> AsyncIterator[Store]:
    parts = urlsplit(database_url)
    passfile = parse_qs(parts.query)["passfile"][0]
    opened = await open_store(
        f"postgresql://{parts.username}@127.0.0.1:{link.port}{parts.path}?sslmode=disable&passfile={passfile}"
    )
    yield opened
    await opened.close()


@pytest.mark.parametrize("kind", ["hot", "reads"])
async def test_a_cut_between_two_steps_of_a_statement_is_an_outage(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    prepare = StoreConnection._get_statement

    async def prepare_and_cut(connection: StoreConnection, *args: Any, **options: Any) -> Any:
        prepared = await prepare(connection, *args, **options)
        store.cut()
        return prepared

    monkeypatch.setattr(StoreConnection, "_get_statement", prepare_and_cut)
    with pytest.raises(AWAY):
        await getattr(store, kind).fetchval("select 1 + $1::int", 1)
    monkeypatch.undo()
    assert await getattr(store, kind).fetchval("select 1 + $1::int", 1) == 2


async def test_a_cut_ends_what_waits_on_a_dead_connection_and_the_pools_connect_again(
    links: Links, link: ProxyLink, store: Store
) -> None:
    assert await store.hot.fetchval("select 1") == 1
    links.strand(link)
    waiting = [asyncio.create_task(pool.fetchval("select 1")) for pool in (store.hot, store.reads)]
    await asyncio.sleep(0)
    store.cut()
    async with asyncio.timeout(CUT):
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert result == 1 or isinstance(result, AWAY), result
        assert await store.hot.fetchval("select 2") == 2
        assert await store.reads.fetchval("select 2") == 2


async def test_a_transaction_on_a_dead_connection_fails_and_its_place_in_the_pool_is_free_again(
    links: Links, link: ProxyLink, store: Store
) -> None:
    async def transact() -> None:
        async with store.hot.acquire() as connection, connection.transaction():
            links.strand(link)
            stuck.set()
            await connection.fetchval("select 1")

    stuck = asyncio.Event()
    waiting = asyncio.create_task(transact())
    await stuck.wait()
    await asyncio.sleep(0)
    store.cut()
    async with asyncio.timeout(CUT):
        with pytest.raises(AWAY):
            await waiting
        assert await asyncio.gather(*(store.hot.fetchval("select 1") for _ in range(20))) == [1] * 20


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancelled", "lost"])
async def test_a_listener_that_ends_before_it_listens_leaves_no_error_behind(
    store: Store, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A server that stops, or loses PostgreSQL, while its listener is being set up."""
    begun, unheard = asyncio.Event(), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(str(context)))
    plain = asyncpg.Connection.add_listener

    async def slow(listener: asyncpg.Connection, *arguments: Any) -> None:
        begun.set()
        if how == "cancelled":
            await asyncio.Event().wait()
        else:
            await connection.execute("select pg_terminate_backend($1, 10000)", listener.get_server_pid())
        await plain(listener, *arguments)

    monkeypatch.setattr(asyncpg.Connection, "add_listener", slow)
    listening = asyncio.create_task(Signals(store).listen_forever())
    await begun.wait()
    if how == "cancelled":
        listening.cancel()
    await asyncio.wait({listening})
    assert listening.cancelled() if how == "cancelled" else isinstance(listening.exception(), AWAY)
    del listening  # with its frames, so that the loop tells what nobody has heard
    gc.collect()
    assert unheard == []


async def test_a_cut_ends_the_listener_too_which_would_never_notice(store: Store) -> None:
    listening = asyncio.create_task(Signals(store).listen_forever())

    async def connected() -> bool:
        query = """select 1 from pg_stat_activity
                   where application_name = 'mainspring listener' and query like 'LISTEN%' and state = 'idle'"""
        return await store.reads.fetchval(query) == 1

    await eventually(connected, 60, "the listener listens")
    store.cut()
    async with asyncio.timeout(CUT):
        with pytest.raises(AWAY):  # the type depends on whether the reply to LISTEN has arrived
            await listening


async def test_every_connection_ends_an_idle_transaction_and_notices_a_dead_peer(store: Store) -> None:
    single = await connect(store.url, application="leases", settings={"lock_timeout": "1s"})
    names = list(SESSION_SETTINGS)
    query = "select name, reset_val from pg_settings where name = any ($1)"
    expected = {
        "idle_in_transaction_session_timeout": "60000",  # two seconds in production, see conftest.py
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "10000",
    }
    assert names == list(expected)
    for database in (store.hot, store.reads, single):
        assert dict(await database.fetch(query, names)) == expected
    await single.close()


async def test_this_end_of_a_connection_notices_a_dead_peer_too(store: Store) -> None:
    single = await connect(store.url, application="leases")
    async with store.hot.acquire(), store.reads.acquire():
        for connection in (single, *store.connections):
            opened = connection._transport.get_extra_info("socket")
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            options = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
            found = [opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in options]
            assert found == [5, 2, 3, 10_000]
    assert len(store.connections) == 2
    await single.close()


@pytest.mark.parametrize("kind", ["hot", "reads", "single"])
async def test_locks_of_a_process_that_is_stopped_inside_a_transaction_are_released(
    database_url: str, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The test process does not send anything, as if it were stopped. PostgreSQL ends the transaction by itself."""
    monkeypatch.setitem(SESSION_SETTINGS, "idle_in_transaction_session_timeout", "200ms")
    store = await open_store(database_url)
    single = await connect(database_url, application="stopped")
    async with {"hot": store.hot, "reads": store.reads}.get(kind, store.hot).acquire() as pooled:
        stopped = single if kind == "single" else pooled
        with suppress(*AWAY):  # on a busy machine the transaction may be over before its answer is read
            await stopped.execute("begin; lock table mainspring.tenants in access exclusive mode")
        async with asyncio.timeout(CUT):
            await connection.fetch("select from mainspring.tenants")
        # The notice of the end may arrive before the statement is sent, or in its place.
        with pytest.raises((*AWAY, asyncpg.InternalClientError)):
            await stopped.fetchval("select 1")
    async with asyncio.timeout(CUT):
        assert await store.hot.fetchval("select 1") == await store.reads.fetchval("select 1") == 1
    await store.close()
    await single.close()


async def test_changes_that_wait_leave_connections_for_heartbeats(
    store: Store, database_url: str, connection: asyncpg.Connection
) -> None:
    async def change() -> None:
        async with store.change() as changing:
            await changing.execute("lock table mainspring.tenants")

    async with connection.transaction():
        await connection.execute("lock table mainspring.tenants")
        changes = [asyncio.create_task(change()) for _ in range(20)]
        async with asyncio.timeout(CUT):
            query = "select count(*) from pg_locks where not granted"
            while await connection.fetchval(query) < 3:
                pass
            assert await store.reads.fetchval("select 1") == 1
    await asyncio.gather(*changes)


async def test_no_transaction_of_a_pool_lasts_longer_than_a_minute(database_url: str) -> None:
    """From PostgreSQL 17 on: a client that is gone in the middle of a message leaves a transaction that is not idle."""
    store = await open_store(database_url)
    try:
        for pool in (store.hot, store.reads):
            async with pool.acquire() as connection:
                if connection.get_server_version().major >= 17:
                    assert await connection.fetchval("show transaction_timeout") == "1min"
    finally:
        await store.close()
