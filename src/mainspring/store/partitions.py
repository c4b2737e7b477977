"""Day partitions of run_history, attempts, log_chunks, log_blocks and the audit. They are created a week ahead, so that
no report has to wait for one.

A partition is created as a separate table and then attached (routines/partitions.sql). `CREATE TABLE ... PARTITION OF`
takes a lock that waits for long readers and blocks every report meanwhile. The lock of ATTACH does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta

import asyncpg

from mainspring.store.pool import Connection

HISTORY = ("run_history", "attempts")
LOGS = ("log_chunks", "log_blocks")
PARTITIONED = (*HISTORY, *LOGS)
AUDIT_ENTRIES = ("audit_entries",)
AUDIT_LINKS = ("audit_links",)
_ALL = (*PARTITIONED, *AUDIT_ENTRIES, *AUDIT_LINKS)
DAYS_AHEAD = 7

# Every server prunes, and two can do so at the same time. These errors mean that another one is dropping the partition.
_CONCURRENT_PRUNE_ERRORS = (
    asyncpg.UndefinedTableError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.DeadlockDetectedError,
)

BeforeDrop = Callable[[datetime, datetime], Awaitable[None]]

_ADD = "select mainspring.add_partition($1, $2)"
_DROP = "select mainspring.drop_partition($1, $2)"
_DAYS = """
select c.relname, i.inhparent is not null as attached, coalesce(i.inhdetachpending, false) as pending,
       pg_has_role(c.relowner, 'usage') as ours
from pg_class c
left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = $1::text::regclass
where c.relnamespace = 'mainspring'::regnamespace and c.relkind = 'r' and c.relname ~ $2
order by pending desc, c.relname
"""


async def ensure_ahead(connection: Connection) -> list[str]:
    """Create and attach the partitions of today and the week ahead. Returns the names of those that were missing."""
    today: date = await connection.fetchval("select (clock_timestamp() at time zone 'UTC')::date")
    existing = {
        row["relname"]
        for row in await connection.fetch(
            """select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
               join pg_class p on p.oid = i.inhparent join pg_namespace n on n.oid = p.relnamespace
               where n.nspname = 'mainspring' and p.relname = any($1::text[])""",
            list(_ALL),
        )
    }
    made = []
    for parent in _ALL:
        # From yesterday on, because the clock can be set back over midnight.
        for offset in range(-1, DAYS_AHEAD + 1):
            day = today + timedelta(days=offset)
            name = f"{parent}_{day:%Y%m%d}"
            if name not in existing and await connection.fetchval(_ADD, parent, day):
                made.append(name)
    return made


async def drop_older(
    connection: Connection, days: int, before_drop: BeforeDrop | None = None, tables: Sequence[str] = PARTITIONED
) -> list[str]:
    """Detach and drop the partitions that ended more than `days` days ago. Concurrent detaching does not block reports.
    A role that does not own them cannot do that: reports wait for its drop, for two seconds at most. `before_drop` is
    called with the bounds of each day of the first table while it is still attached.

    The work of an interrupted call is completed. A pending detach is finalized first, because PostgreSQL allows only
    one. A partition that was detached but not dropped is dropped.
    """
    today: date = await connection.fetchval("select (clock_timestamp() at time zone 'UTC')::date")
    oldest = today - timedelta(days=days)
    dropped = []
    for parent in tables:
        for row in await connection.fetch(_DAYS, f"mainspring.{parent}", f"^{parent}_[0-9]{{8}}$"):
            name = row["relname"]
            day = datetime.strptime(name.removeprefix(f"{parent}_"), "%Y%m%d").replace(tzinfo=UTC).date()
            if day >= oldest:
                continue
            try:
                if before_drop is not None and row["attached"] and not row["pending"] and parent == tables[0]:
                    low = datetime(day.year, day.month, day.day, tzinfo=UTC)
                    await before_drop(low, low + timedelta(days=1))
                # What is dropped of the audit leaves an anchor in the same transaction, so it is not detached before.
                if row["attached"] and row["ours"] and (row["pending"] or not name.startswith("audit")):
                    await _detach(connection, parent, name, how="finalize" if row["pending"] else "concurrently")
                await connection.execute(_DROP, parent, day)
            except asyncpg.LockNotAvailableError:  # a subclass of ObjectNotInPrerequisiteStateError, caused by a reader
                raise
            except _CONCURRENT_PRUNE_ERRORS:
                continue
            dropped.append(name)
    return dropped


async def _detach(connection: Connection, parent: str, name: str, *, how: str) -> None:
    await connection.execute(f"alter table mainspring.{parent} detach partition mainspring.{name} {how}")
