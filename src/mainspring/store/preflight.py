"""Checks the database before a process uses it: is it one that Mainspring can work with, and as it was told?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.store.database import OLDEST_MAJOR, Database, Pooling, checked_url
from mainspring.store.database_errors import database_in_words, in_recovery, pooler_unnamed, read_only
from mainspring.store.pool import SESSION_SETTINGS, connect

_ANSWER = 10.0  # a PgBouncer accepts connections, and lets their statements wait, while PostgreSQL is down
_TOLD = "idle_in_transaction_session_timeout"
_SEEN = f"""
select current_setting('server_version') as version, current_setting('server_version_num')::int / 10000 as major,
       pg_is_in_recovery() as in_recovery, current_setting('transaction_read_only')::boolean as read_only,
       current_setting('{_TOLD}')::interval = $1::text::interval as settings_kept,
       (select oid from pg_database where datname = current_database()) as oid, pg_postmaster_start_time() as started
"""


async def check_database(database: Database) -> None:
    """Raises an error that names host, database, role and the fix."""
    checked_url(database.url)
    pooled = database.pooling is not Pooling.NONE
    seen = await _check(replace(database, pooling=Pooling.TRANSACTION) if pooled else database)
    if database.pooling is Pooling.SESSION:
        with database_in_words(database):
            async with asyncio.timeout(_ANSWER):
                await _require_sessions(database)
    if database.direct_url is None:
        return
    checked_url(database.direct_url, "direct_url")
    direct = await _check_directly(database)
    if (seen["oid"], seen["started"]) != (direct["oid"], direct["started"]):
        raise InvalidInput(
            f"it leads to another database than the URL: {database.direct.address}",
            code="direct_url_elsewhere",
            field="direct_url",
            hint=f"both have to lead to {database.address}",
        )


async def _check_directly(database: Database) -> asyncpg.Record:
    try:
        return await _check(database.direct)
    except Conflict as error:
        if error.code != "pooler_unnamed":
            raise
        raise Conflict(
            f"the direct URL leads to a PgBouncer: {database.direct.address}",
            code="pooler_unnamed",
            field="direct_url",
            hint="name host and port of PostgreSQL itself, or leave the direct URL out",
        ) from None


async def _check(database: Database) -> asyncpg.Record:
    with database_in_words(database):
        async with asyncio.timeout(_ANSWER), _connected(database) as connection:
            seen = await connection.fetchrow(_SEEN, SESSION_SETTINGS[_TOLD])
    if seen["major"] < OLDEST_MAJOR:
        raise Conflict(
            f"{database.address} is PostgreSQL {seen['version']}",
            code="postgres_too_old",
            expected=f"PostgreSQL {OLDEST_MAJOR} or newer",
        )
    if seen["in_recovery"]:
        raise in_recovery(database.address)
    if seen["read_only"]:
        raise read_only(database.address)
    if not seen["settings_kept"]:  # a PgBouncer that was told to ignore them
        raise pooler_unnamed(database.address)
    return seen


async def _require_sessions(database: Database) -> None:
    """Raise Conflict if PgBouncer gives the session of one connection to another one. The connections are those of
    transaction mode, which work in both."""
    careful = replace(database, pooling=Pooling.TRANSACTION)
    async with _connected(careful) as first, _connected(careful) as second:
        mine = await _session(first)
        async with second.transaction():
            shared = mine == await _session(second) or mine != await _session(first)
    if shared:
        raise Conflict(
            f"PgBouncer at {database.address.host} does not keep sessions: its pool_mode is transaction",
            code="pool_mode",
            hint="give --pgbouncer transaction",
        )


async def _session(connection: asyncpg.Connection) -> int:
    number: int = await connection.fetchval("select pg_backend_pid()")
    return number


@asynccontextmanager
async def _connected(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect(database, application="start")
    try:
        yield connection
        await connection.close()
    finally:
        if not connection.is_closed():  # an orderly end could wait for PostgreSQL
            connection.terminate()
