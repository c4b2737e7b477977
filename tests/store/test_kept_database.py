"""The database that tests share is for each of them as a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import asyncpg
import pytest

from tests.conftest import TEMPLATE, TOKEN, Databases
from tests.kept_database import KeptDatabase, at_the_end

pytestmark = pytest.mark.anyio


@pytest.fixture
async def kept(databases: Databases) -> AsyncIterator[KeptDatabase]:
    made = KeptDatabase(databases, TEMPLATE)
    yield made
    await made.close()


async def run(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def contents(url: str) -> dict[str, Any]:
    connection = await asyncpg.connect(url)
    tables = await connection.fetch(
        "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables where schemaname = 'mainspring'"
    )
    found: dict[str, Any] = {}
    for (table,) in tables:
        found[table] = sorted(row[0] for row in await connection.fetch(f"select t::text from {table} t"))
    found["sequences"] = await connection.fetch("select sequencename, last_value from pg_sequences order by 1")
    await connection.close()
    return found


async def test_the_next_test_finds_the_rows_and_numbers_of_a_new_database(kept: KeptDatabase) -> None:
    async with kept.used() as url:
        new = await contents(url)
        await run(
            url,
            f"select set_config('mainspring.token', '{TOKEN}', false), mainspring.submit('{{\"task\": \"t\"}}')",
            "update mainspring.shard_leases set epoch = 7, expires_at = now() where shard < 5",
            "delete from mainspring.tokens",
            "select nextval('mainspring.join_blocks')",
        )
        assert await contents(url) != new
    async with kept.used() as again:
        assert again == url
        assert await contents(again) == new


@pytest.mark.parametrize(
    "statement",
    [
        "create table mainspring.more ()",
        "create index more on mainspring.jobs (created_at)",
        "alter table mainspring.jobs add column more integer",
        "alter table mainspring.jobs set (fillfactor = 51)",
        "drop table mainspring.idempotency_keys",
        "create function mainspring.more() returns integer language sql as 'select 1'",
        "alter table mainspring.submissions disable trigger submissions_stored",
        "do $$ begin execute format('alter database %I set work_mem = ''5MB''', current_database()); end $$",
        "analyze mainspring.shard_leases",
        "grant select on mainspring.jobs to public",
    ],
)
async def test_a_database_with_other_changes_than_of_rows_is_dropped(kept: KeptDatabase, statement: str) -> None:
    async with kept.used() as url:
        await run(url, statement)
    async with kept.used() as other:
        assert other != url
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await run(url)


async def test_connections_stay_and_what_a_test_has_left_in_them_does_not(kept: KeptDatabase) -> None:
    async with kept.used() as url:
        store = await kept.lend(url, {})
        assert store is not None
        pid = await store.reads.fetchval("select pg_backend_pid()")
        open_transaction = await store.hot.acquire()
        await open_transaction.execute("begin; delete from mainspring.tokens")
        left = asyncio.create_task(asyncio.Event().wait())
        with at_the_end():
            await store.close()
    assert left.cancelled()
    async with kept.used() as url:
        store = await kept.lend(url, {})
        assert store is not None
        assert await store.reads.fetchval("select pg_backend_pid()") == pid
        assert await store.hot.fetchval("select count(*) from mainspring.tokens") == 1
        assert not await store.hot.fetchval("select pg_current_xact_id_if_assigned() is not null")


async def test_a_connection_stays_and_has_no_settings_locks_listeners_or_transaction_of_the_test_before(
    kept: KeptDatabase,
) -> None:
    async with kept.used(), kept.connection() as connection:
        pid = connection.get_server_pid()
        await connection.execute("set work_mem = '1MB'; select pg_advisory_lock(1)")
        await connection.add_listener("a", print)
        await connection.execute("begin; delete from mainspring.tokens")
    async with kept.used(), kept.connection() as connection:
        assert connection.get_server_pid() == pid and not connection.is_in_transaction()
        assert await connection.fetchval("show work_mem") != "1MB"
        assert await connection.fetchval("select count(*) from pg_locks where locktype = 'advisory'") == 0
        assert await connection.fetchval("select count(*) from pg_listening_channels()") == 0
        assert await connection.fetchval("select count(*) from mainspring.tokens") == 1


async def test_a_connection_with_a_prepared_statement_of_a_test_is_not_used_again(kept: KeptDatabase) -> None:
    async with kept.used():
        async with kept.connection() as connection:
            await connection.execute("prepare one as select 1")
        async with kept.connection() as other:
            assert other is not connection


async def test_variables_of_the_context_are_as_before(kept: KeptDatabase) -> None:
    new, old = ContextVar("new", default=1), ContextVar("old", default=1)
    old.set(2)
    async with kept.used():
        assert new.set(3) and old.set(3)
    assert (new.get(), old.get()) == (1, 2)


async def test_a_server_that_is_closed_before_the_end_stays_closed(kept: KeptDatabase) -> None:
    async with kept.used() as url:
        store = await kept.lend(url, {})
        assert store is not None
        await store.close()
        with pytest.raises(asyncpg.InterfaceError):
            await store.hot.fetchval("select 1")
        with at_the_end():
            await store.close()
    async with kept.used() as url:
        other = await kept.lend(url, {})
        assert other is not None and other.hot is not store.hot
        assert await other.hot.fetchval("select 1") == 1
