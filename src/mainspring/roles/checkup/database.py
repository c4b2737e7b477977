"""The database: its version, the settings on which the guarantees depend, what a failover may lose, and how near it is
to its limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg

from mainspring.domain.errors import MainspringError
from mainspring.kernel.config import POSTGRES_FOLDER_NAME, POSTGRES_PASSWORD_FILE_NAME
from mainspring.roles.checkup.findings import Finding, error, ok, warning
from mainspring.store.database import Database
from mainspring.store.database_errors import database_in_words
from mainspring.store.embedded.access import DATABASE, ROLE
from mainspring.store.pool import connect
from mainspring.store.preflight import check_database
from mainspring.store.running_versions import newest_known

_SEEN = """
select current_setting('server_version') as version,
       current_setting('fsync') = 'on' as fsync,
       current_setting('full_page_writes') = 'on' as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('autovacuum') = 'on' as autovacuum,
       current_setting('archive_mode') <> 'off' as archived,
       current_setting('synchronous_standby_names') as synchronous_names,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as connections,
       (select count(*) from pg_stat_activity where backend_type = 'client backend')::int as used,
       (select count(*) from pg_stat_replication)::int as standbys,
       (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum'))::int as synchronous,
       (select max(age(datfrozenxid)) from pg_database)::bigint as oldest_transaction,
       (select extract(epoch from max(clock_timestamp() - xact_start)) from pg_stat_activity
        where backend_type = 'client backend')::float8 as longest_open,
       pg_size_pretty(pg_database_size(current_database())) as size,
       to_regclass('mainspring.schema_migrations') is not null as migrated
"""
_NEWEST = "select max(version) from mainspring.schema_migrations"
_NEAR = 0.8
_WRAPAROUND = 1_000_000_000
_LONG_OPEN = 3600.0


def database_of(folder: Path) -> Database | None:
    """The PostgreSQL of `mainspring up` in this data folder, if it runs."""
    try:
        lines = (folder / POSTGRES_FOLDER_NAME / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        sockets, password = lines[4].strip(), folder.resolve() / POSTGRES_PASSWORD_FILE_NAME
    except (OSError, IndexError):
        return None
    if not sockets.startswith("/"):
        return None
    if sockets.startswith("/proc/"):  # as the account of PostgreSQL sees its data
        sockets = str(folder.resolve() / POSTGRES_FOLDER_NAME)
    return Database(f"postgresql://{ROLE}@/{DATABASE}?host={quote(sockets)}&port=5432&passfile={quote(str(password))}")


async def check_postgres(database: Database) -> list[Finding]:
    try:
        await check_database(database)
        with database_in_words(database.direct):
            connection = await connect(database.direct, application="doctor")
            try:
                seen = await connection.fetchrow(_SEEN)
                newest = await connection.fetchval(_NEWEST) if seen["migrated"] else None
            finally:
                await connection.close()
    except MainspringError as failure:
        return [error("database", str(failure), failure.hint or "check the URL of the database")]
    return [
        ok("database", f"PostgreSQL {seen['version']}, {seen['size']}"),
        _schema(newest),
        *_durability(seen),
        _failover(seen),
        *_limits(seen),
    ]


def _schema(newest: int | None) -> Finding:
    known = newest_known()
    if newest is None:
        return warning("schema", "it is empty", "`mainspring migrate` or the first server creates the tables")
    if newest < known:
        return warning("schema", f"version {newest}, this version knows {known}", "run `mainspring migrate`")
    if newest > known:
        return warning(
            "schema", f"version {newest} is newer than {known}, which this version knows", "upgrade this one"
        )
    return ok("schema", f"version {newest}")


def _durability(seen: asyncpg.Record) -> Iterator[Finding]:
    """After a crash nothing that was acknowledged may be missing."""
    off = [name for name in ("fsync", "full_page_writes") if not seen[name]]
    if off:
        yield error(
            "durability", f"{' and '.join(off)} off: a crash can lose or destroy data",
            "; ".join(f"alter system set {name} = on" for name in off) + "; select pg_reload_conf()",
        )  # fmt: skip
    elif seen["synchronous_commit"] == "off":
        yield error(
            "durability", "synchronous_commit is off: a crash loses what was acknowledged in the last moments",
            "alter system set synchronous_commit = on; select pg_reload_conf()",
        )  # fmt: skip
    else:
        yield ok("durability", f"a crash loses nothing (synchronous_commit {seen['synchronous_commit']})")
    if not seen["autovacuum"]:
        yield error("autovacuum", "it is off: tables grow without end", "alter system set autovacuum = on")


def _failover(seen: asyncpg.Record) -> Finding:
    """What a loss of this machine costs."""
    local = seen["synchronous_commit"] == "local"
    if seen["synchronous_names"] and seen["synchronous"] and not local:
        return ok("failover", f"{seen['synchronous']} synchronous standby(s): a failover loses nothing acknowledged")
    if seen["synchronous_names"] and not seen["synchronous"]:
        return error(
            "failover", "synchronous_standby_names is set, and no such standby is connected: writes wait for it",
            "start the standby, or reset synchronous_standby_names",
        )  # fmt: skip
    if seen["standbys"]:
        return warning(
            "failover", f"{seen['standbys']} standby(s), none of which is waited for: a failover may lose the last "
            "acknowledged jobs and reports",
            "set synchronous_standby_names, and synchronous_commit = on",
        )  # fmt: skip
    if seen["archived"]:
        return ok("failover", "no standby; the write-ahead log is archived, so a backup can be restored to a moment")
    return warning(
        "failover", "no standby and no archive: if this machine is lost, everything since the last backup is",
        "back it up (pg_dump, pgBackRest), or add a synchronous standby",
    )  # fmt: skip


def _limits(seen: asyncpg.Record) -> Iterator[Finding]:
    used = f"{seen['used']} of {seen['connections']} connections are used"
    if seen["used"] > _NEAR * seen["connections"]:
        yield warning("connections", used, "raise max_connections, or put a PgBouncer in front")
    else:
        yield ok("connections", used)
    if seen["oldest_transaction"] > _WRAPAROUND:
        yield warning(
            "wraparound", f"the oldest transaction is {seen['oldest_transaction']:,} back, of 2 billion",
            "vacuum freeze; look for old replication slots and prepared transactions",
        )  # fmt: skip
    if (seen["longest_open"] or 0) > _LONG_OPEN:
        yield warning(
            "open transaction", f"one is open for {seen['longest_open'] / 3600:.1f} h: dead rows cannot be removed",
            "find it in pg_stat_activity by xact_start, and end it",
        )  # fmt: skip
