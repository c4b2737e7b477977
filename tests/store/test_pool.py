"""Connections that are dead without an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from mainspring.operations.signals import Signals
from mainspring.store.pool import AWAY, Store, open_store
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
    opened = await open_store(
        f"postgresql://postgres@127.0.0.1:{link.port}{urlsplit(database_url).path}?sslmode=disable"
    )
    yield opened
    await opened.close()


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
