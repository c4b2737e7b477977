"""A transaction that changes the schema of a database in use.

While a statement waits for a lock on a table, all later statements on that table wait behind it. So the transaction
waits for a short time only, lets the other statements continue, and starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg

from mainspring.domain.errors import Unavailable
from mainspring.kernel.logs import get_logger
from mainspring.store.queries import render

log = get_logger("migrate")

# Only one process migrates at a time. The others wait and find nothing to do. A database without a schema has no number
# that could make the key unguessable.
_FIRST_LOCK = 0x4D41494E  # "MAIN"
# This does not use to_regclass, which reads a cache of the backend. After a wait for an advisory lock the cache may be
# out of date, also for later statements. A query of the catalog renews it.
_HAS_ROUTINES = """
select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where n.nspname = 'mainspring' and c.relname = 'routines')
"""
_MIGRATION_LOCK = render("select {{numbered_lock_of('migration')}}")

_HOLDERS = """
select a.pid, a.usename, a.application_name, coalesce(a.state, 'active') as state,
       extract(epoch from (select clock_timestamp()) - a.xact_start)::float8 as seconds
from pg_stat_activity a
where a.pid <> pg_backend_pid() and a.pid in (
    select l.pid from pg_locks l left join pg_class c on c.oid = l.relation
    where l.granted and l.database = (select oid from pg_database where datname = current_database())
      and (c.relnamespace = to_regnamespace('mainspring')
           or (l.locktype = 'advisory' and l.objsubid = 1
               and (l.classid::bigint << 32) | l.objid::bigint = $1)))
order by a.xact_start nulls last, a.pid
limit 1
"""


@dataclass(frozen=True, slots=True)
class LockPatience:
    """How long one attempt waits for a lock, how many attempts there are, and the pause between two of them. In
    seconds."""

    wait: float = 2.0
    attempts: int = 15
    pause: float = 1.0


DEFAULT_PATIENCE = LockPatience()


async def in_ddl_transaction(
    connection: asyncpg.Connection, what: str, work: Callable[[], Awaitable[bool]], patience: LockPatience
) -> bool:
    """Do the work in a transaction with a lock timeout. Return its result: whether there was anything to do when this
    process got its turn. Raises Unavailable if it never got its locks."""
    for attempts_left in reversed(range(patience.attempts)):
        try:
            while True:
                key = await migration_lock(
                    connection
                )  # outside: a process that waits for the lock must not hold the table
                async with connection.transaction():
                    await connection.execute(f"set local lock_timeout = '{patience.wait * 1000:.0f}ms'")
                    await connection.execute("select pg_advisory_xact_lock($1)", key)
                    if await migration_lock(connection) == key:
                        return await work()
        except asyncpg.LockNotAvailableError:
            holder = await _oldest_holder(connection)
        if attempts_left:
            log.warning("waiting for a lock", on_behalf_of=what, held_by=holder, attempts_left=attempts_left)
            await asyncio.sleep(patience.pause)
    raise Unavailable(
        f"{what} did not get its locks in {patience.attempts} attempt(s); they are held by {holder}",
        code="migration_blocked",
        hint="end that transaction, or try again later",
    )


async def migration_lock(connection: asyncpg.Connection) -> int:
    """The key of the lock for migrations, as it is now. The migration that stores the number changes it."""
    known = await connection.fetchval(_HAS_ROUTINES)
    key: int | None = await connection.fetchval(_MIGRATION_LOCK) if known else None
    return _FIRST_LOCK if key is None else key


async def _oldest_holder(connection: asyncpg.Connection) -> str:
    """The oldest transaction that holds a lock on one of our tables. This is nearly always the blocking one."""
    row = await connection.fetchrow(_HOLDERS, await migration_lock(connection))
    if row is None:
        return "no transaction any more"
    return (
        f"backend {row['pid']} (user {row['usename']}, application {row['application_name']!r}, {row['state']},"
        f" in a transaction for {row['seconds'] or 0:.0f} s)"
    )
