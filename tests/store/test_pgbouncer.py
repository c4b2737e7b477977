"""Through a real PgBouncer in both modes: jobs live as they do without, and a wrong setting is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import asyncpg
import pytest

from mainspring.domain.errors import MainspringError
from mainspring.roles.database import prepare_database
from mainspring.store.database import Database, Pooling
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from mainspring.store.pool import HOT_SETTINGS, SESSION_SETTINGS, connect, open_store
from mainspring.store.preflight import check_database
from tests.life_of_jobs import live_through
from tests.pgbouncer import PgBouncer, a_pgbouncer, needs_pgbouncer, through
from tests.store.test_schema import all_names

pytestmark = [pytest.mark.anyio, needs_pgbouncer]

SESSION, TRANSACTION = Pooling.SESSION, Pooling.TRANSACTION


class Bouncers(dict[Pooling, PgBouncer]):
    def __init__(self, postgres: EmbeddedPostgres, stack: ExitStack) -> None:
        super().__init__()
        self._postgres, self._stack = postgres, stack

    def __missing__(self, mode: Pooling) -> PgBouncer:
        self[mode] = self._stack.enter_context(a_pgbouncer(self._postgres, mode))
        return self[mode]


@pytest.fixture(scope="module")
def bouncers(postgres: EmbeddedPostgres) -> Iterator[Bouncers]:
    with ExitStack() as stack:
        yield Bouncers(postgres, stack)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "direct"), [(SESSION, False), (TRANSACTION, False), (TRANSACTION, True)])
async def test_jobs_live_as_they_do_without_it(
    bouncers: Bouncers, database_url: str, connection: asyncpg.Connection, mode: Pooling, direct: bool
) -> None:
    where = through(bouncers[mode], database_url, mode, direct=direct)
    assert await prepare_database(where) == []
    await live_through(where, connection)


@pytest.mark.parametrize(("mode", "direct"), [(SESSION, False), (TRANSACTION, False), (TRANSACTION, True)])
async def test_a_new_database_is_migrated_once_by_several_processes(
    bouncers: Bouncers, empty_url: str, mode: Pooling, direct: bool
) -> None:
    where = through(bouncers[mode], empty_url, mode, direct=direct)
    done = await asyncio.gather(*(migrate(where) for _ in range(4)))
    assert sorted(name for names in done for name in names) == sorted([*all_names(), "routines"])


async def shown(connection: Any, names: list[str]) -> dict[str, str]:
    return {name: await connection.fetchval("select current_setting($1)", name) for name in names}


@pytest.mark.parametrize("mode", [SESSION, TRANSACTION])
async def test_every_statement_has_the_settings_of_its_pool_and_leaves_none_behind(
    bouncers: Bouncers, database_url: str, connection: asyncpg.Connection, mode: Pooling
) -> None:
    store = await open_store(through(bouncers[mode], database_url, mode))
    names = [*HOT_SETTINGS, "idle_in_transaction_session_timeout"]
    wanted = {**HOT_SETTINGS, "idle_in_transaction_session_timeout": "1min"}
    assert SESSION_SETTINGS["idle_in_transaction_session_timeout"] == "60s"
    async with store.hot.acquire() as hot:
        assert await shown(hot, names) == wanted, "a statement outside a transaction"
        async with hot.transaction():
            assert await shown(hot, names) == wanted
    await store.close()
    if mode is TRANSACTION:  # another client of the same sessions
        other = await asyncpg.connect(bouncers[mode].url(database_url), statement_cache_size=0)
        for _ in range(50):
            assert await other.fetchval("select current_setting('enable_seqscan')") == "on"
        assert await other.fetchval("select count(*) from pg_prepared_statements where name <> ''") == 0
        await other.close()


async def test_a_statement_that_fails_leaves_the_connection_usable(bouncers: Bouncers, database_url: str) -> None:
    connection = await connect(through(bouncers[TRANSACTION], database_url, TRANSACTION), application="test")
    for _ in range(3):
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.fetchval("select 1 / $1::int", 0)
        assert await connection.fetchval("select 1 / $1::int", 1) == 1
    await connection.close()


async def told(where: Database) -> MainspringError:
    with pytest.raises(MainspringError) as caught:
        await check_database(where)
    return caught.value


@pytest.mark.parametrize("mode", [SESSION, TRANSACTION])
async def test_one_that_nobody_has_named_is_noticed(bouncers: Bouncers, database_url: str, mode: Pooling) -> None:
    error = await told(Database(bouncers[mode].url(database_url)))
    assert error.code == "pooler_unnamed"
    assert "PgBouncer" in error.detail and "--pgbouncer transaction" in (error.hint or "")
    assert "MAINSPRING_PGBOUNCER" in (error.hint or "")


async def test_one_that_drops_our_settings_silently_is_noticed(postgres: EmbeddedPostgres, database_url: str) -> None:
    ignored = ",".join(SESSION_SETTINGS)
    with a_pgbouncer(postgres, SESSION, ignore_startup_parameters=ignored) as bouncer:
        assert (await told(Database(bouncer.url(database_url)))).code == "pooler_unnamed"


async def test_transaction_mode_that_was_taken_for_session_mode_is_noticed(
    bouncers: Bouncers, database_url: str
) -> None:
    error = await told(through(bouncers[TRANSACTION], database_url, SESSION))
    assert (error.code, error.hint) == ("pool_mode", "give --pgbouncer transaction")


async def test_session_mode_that_was_taken_for_transaction_mode_works(bouncers: Bouncers, database_url: str) -> None:
    assert await prepare_database(through(bouncers[SESSION], database_url, TRANSACTION)) == []


async def test_statement_mode_is_refused(postgres: EmbeddedPostgres, database_url: str) -> None:
    bouncer = PgBouncer(postgres, pool_mode="statement")
    try:
        error = await told(through(bouncer, database_url, TRANSACTION))
    finally:
        bouncer.stop()
    assert error.code == "pool_mode" and "statement" in error.detail


async def test_a_direct_url_that_leads_elsewhere_is_refused(
    bouncers: Bouncers, database_url: str, empty_url: str
) -> None:
    error = await told(Database(bouncers[TRANSACTION].url(database_url), empty_url, TRANSACTION))
    assert (error.code, error.field) == ("direct_url_elsewhere", "direct_url")


async def test_a_direct_url_that_is_a_pgbouncer_too_is_refused(bouncers: Bouncers, database_url: str) -> None:
    both = bouncers[TRANSACTION].url(database_url)
    error = await told(Database(both, both, TRANSACTION))
    assert (error.code, error.field) == ("pooler_unnamed", "direct_url")
    assert "--pgbouncer" not in (error.hint or ""), "the option was given"


async def test_a_database_that_pgbouncer_cannot_reach_is_told(bouncers: Bouncers) -> None:
    error = await told(through(bouncers[TRANSACTION], "postgresql:///nosuch", TRANSACTION))
    assert error.code == "no_such_database" and "'nosuch'" in error.detail
