"""Day partitions of run_history and attempts: created a week ahead, so that no report ever waits for one.

A partition is made as a table of its own and then attached: `CREATE TABLE ... PARTITION OF` takes a lock that queues
behind a long reader and blocks every report behind itself; ATTACH takes one that does not.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import asyncpg

from mainspring.store.pool import Connection

PARTITIONED = ("run_history", "attempts")
DAYS_AHEAD = 7

# Every server prunes, and two may do so in the same moment: the day is gone, or half gone, and the other goes on.
_ANOTHER_IS_AT_IT = (
    asyncpg.UndefinedTableError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.DeadlockDetectedError,
)

_DAYS = """
select c.relname, i.inhparent is not null as attached, coalesce(i.inhdetachpending, false) as pending
from pg_class c
left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = $1::text::regclass
where c.relnamespace = 'mainspring'::regnamespace and c.relkind = 'r' and c.relname ~ $2
order by pending desc, c.relname
"""


async def ensure_ahead(connection: Connection) -> list[str]:
    """Create and attach the partitions of today and the week ahead; returns those that were missing."""
    today: date = await connection.fetchval("select (clock_timestamp() at time zone 'UTC')::date")
    existing = {
        row["relname"]
        for row in await connection.fetch(
            """select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
               join pg_class p on p.oid = i.inhparent join pg_namespace n on n.oid = p.relnamespace
               where n.nspname = 'mainspring' and p.relname = any($1::text[])""",
            list(PARTITIONED),
        )
    }
    made = []
    for parent in PARTITIONED:
        # From yesterday: a clock that is set back over midnight must find its day.
        for offset in range(-1, DAYS_AHEAD + 1):
            day = today + timedelta(days=offset)
            name = f"{parent}_{day:%Y%m%d}"
            if name not in existing:
                await _attach(connection, parent, name, day)
                made.append(name)
    return made


async def _attach(connection: Connection, parent: str, name: str, day: date) -> None:
    low = datetime(day.year, day.month, day.day, tzinfo=UTC)
    high = low + timedelta(days=1)
    bounds = f"ended_at >= '{low.isoformat()}' and ended_at < '{high.isoformat()}'"
    async with connection.transaction():
        await connection.execute("set local lock_timeout = 0")  # the other one makes what we want; a start waits for it
        await connection.execute("select pg_advisory_xact_lock(hashtext($1))", f"mainspring.{parent}")
        await connection.execute("set local lock_timeout = '2s'")
        if await connection.fetchval("select to_regclass($1)", f"mainspring.{name}") is not None:
            return
        await connection.execute(
            f"create table mainspring.{name} (like mainspring.{parent} including defaults including constraints)"
        )
        # The check proves the bounds to ATTACH, which otherwise would scan; it is dropped once it has served.
        await connection.execute(f"alter table mainspring.{name} add constraint bounds check ({bounds})")
        await connection.execute(
            f"alter table mainspring.{parent} attach partition mainspring.{name} "
            f"for values from ('{low.isoformat()}') to ('{high.isoformat()}')"
        )
        await connection.execute(f"alter table mainspring.{name} drop constraint bounds")


async def drop_older(connection: Connection, days: int) -> list[str]:
    """Detach (concurrently, so that reports go on) and drop the days that ended more than `days` days ago.

    What an earlier call could not finish is finished: a detach that waits for a long reader goes first, because
    PostgreSQL refuses another one beside it, and a day that was detached and not dropped is dropped.
    """
    today: date = await connection.fetchval("select (clock_timestamp() at time zone 'UTC')::date")
    oldest = today - timedelta(days=days)
    dropped = []
    for parent in PARTITIONED:
        for row in await connection.fetch(_DAYS, f"mainspring.{parent}", f"^{parent}_[0-9]{{8}}$"):
            name = row["relname"]
            day = datetime.strptime(name.removeprefix(f"{parent}_"), "%Y%m%d").replace(tzinfo=UTC).date()
            if day >= oldest:
                continue
            try:
                if row["attached"]:
                    await _detach(connection, parent, name, how="finalize" if row["pending"] else "concurrently")
                async with connection.transaction():
                    await connection.execute("set local lock_timeout = '2s'")
                    await connection.execute(f"drop table mainspring.{name}")
            except asyncpg.LockNotAvailableError:  # a kind of ObjectNotInPrerequisiteStateError, and a reader's doing
                raise
            except _ANOTHER_IS_AT_IT:
                continue
            dropped.append(name)
    return dropped


async def _detach(connection: Connection, parent: str, name: str, *, how: str) -> None:
    await connection.execute(f"alter table mainspring.{parent} detach partition mainspring.{name} {how}")
