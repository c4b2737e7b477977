"""Migrations: numbered SQL files, applied in order under an advisory lock, each in its own transaction.

The first line of a file names its stage. `pre` may be applied while processes of older versions run; `post` must wait
until they are gone. A second line `-- breaking` says that code which does not know the migration must not start. See
docs/upgrading.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.resources import files

import asyncpg

from mainspring.domain.errors import Conflict, Forbidden
from mainspring.kernel.logs import get_logger
from mainspring.store import partitions
from mainspring.store.database import Database, database_at
from mainspring.store.ddl_transaction import DEFAULT_PATIENCE, LockPatience, in_ddl_transaction, migration_lock
from mainspring.store.pool import connect
from mainspring.store.routine_loader import load_routines
from mainspring.store.running_versions import older_than

_FILE = re.compile(r"(\d{4})_(\w+)\.sql\Z")
_HEADER = re.compile(r"-- stage: (pre|post)\n(-- breaking\n)?")
# A process that is stopped while it migrates holds the lock above and those of the tables. PostgreSQL ends its session.
_SETTINGS = {"idle_in_transaction_session_timeout": "10s", "idle_session_timeout": "30s"}
# PostgreSQL asks for the right to create schemas even if the schema exists.
_CREATE_SCHEMA = "create schema if not exists mainspring;"

log = get_logger("migrate")


class Stage(StrEnum):
    PRE = "pre"
    POST = "post"


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str
    stage: Stage
    breaking: bool

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"


def read_migration(version: int, name: str, sql: str) -> Migration:
    header = _HEADER.match(sql)
    if header is None:
        raise ValueError(f"migration {version:04d}_{name} does not begin with `-- stage: pre` or `-- stage: post`")
    return Migration(version, name, sql, Stage(header.group(1)), header.group(2) is not None)


def known_migrations() -> list[Migration]:
    folder = files("mainspring.store") / "migrations"
    found = [
        read_migration(int(match.group(1)), match.group(2), file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _FILE.match(file.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


async def migrate(
    database: str | Database,
    stages: Collection[Stage] = tuple(Stage),
    *,
    known: Sequence[Migration] | None = None,
    patience: LockPatience = DEFAULT_PATIENCE,
    force: bool = False,
) -> list[str]:
    """Apply the migrations of these stages and the routines. Return what was applied; nothing if it was up to date.
    `known` are the migrations of this version. Raises Conflict if older processes run that a migration must wait for,
    unless `force`."""

    def choose(pending: list[Migration], _new: bool) -> list[Migration]:
        missing = [migration.label for migration in pending if migration.stage is Stage.PRE]
        if missing and Stage.PRE not in stages:
            raise Conflict(
                f"migration {missing[0]} of stage pre has not been applied",
                code="migration_needed",
                hint="run `mainspring migrate --stage pre` first, and replace all older processes",
            )
        return [migration for migration in pending if migration.stage in stages]

    return await _migrate(database, known or known_migrations(), choose, patience, checked=not force)


async def migrate_at_start(
    database: str | Database, *, known: Sequence[Migration] | None = None, patience: LockPatience = DEFAULT_PATIENCE
) -> list[str]:
    """Apply the migrations when a server or a scheduler starts: all of them to a new database, otherwise those of stage
    `pre`. Raises Conflict if one of these is breaking, because only the operator knows whether older processes still
    run."""

    def choose(pending: list[Migration], new: bool) -> list[Migration]:
        if new:
            return pending
        chosen = [migration for migration in pending if migration.stage is Stage.PRE]
        if breaking := [migration for migration in chosen if migration.breaking]:
            raise Conflict(
                f"the database needs migration {breaking[0].label}, which older processes cannot work with",
                code="migration_needed",
                hint="stop all servers and schedulers of older versions, then run `mainspring migrate`",
            )
        if later := [migration.label for migration in pending if migration.stage is Stage.POST]:
            log.info(
                "run `mainspring migrate` when no older process is left, to apply the waiting migrations", waiting=later
            )
        return chosen

    return await _migrate(database, known or known_migrations(), choose, patience)


async def _migrate(
    database: str | Database,
    known: Sequence[Migration],
    choose: Callable[[list[Migration], bool], list[Migration]],
    patience: LockPatience,
    *,
    checked: bool = False,
) -> list[str]:
    direct = database_at(database).direct
    connection = await connect(direct, application="migrate", settings=_SETTINGS)
    try:
        if direct.has_sessions:  # otherwise only each transaction has the lock, and looks again
            await connection.execute("select pg_advisory_lock($1)", await migration_lock(connection))
        applied = await _applied(connection)
        _refuse_an_unreleased_schema(known, applied)
        _refuse_a_breaking_schema(known, applied)
        done: list[str] = []
        chosen = choose([each for each in known if each.version not in applied], not applied)
        if checked and applied:
            await _refuse_while_older_run(connection, chosen)
        for migration in chosen:
            apply = partial(_apply, connection, migration)
            with _denied_in_words(f"migration {migration.label}"):
                if await in_ddl_transaction(connection, f"migration {migration.label}", apply, patience):
                    done.append(migration.label)
        with _denied_in_words("the routines of this version"):
            if await load_routines(connection, patience):
                done.append("routines")
        await partitions.ensure_ahead(connection)
        return done
    finally:
        await connection.close()  # this also releases the lock


async def _refuse_while_older_run(connection: asyncpg.Connection, chosen: Sequence[Migration]) -> None:
    waiting = [migration for migration in chosen if migration.stage is Stage.POST or migration.breaking]
    if not waiting:
        return
    if older := await older_than(connection, waiting[-1].version):
        raise Conflict(
            f"{len(older)} server(s) or scheduler(s) of an older version run on this database"
            f" ({', '.join(dict.fromkeys(older))}), and migration {waiting[0].label} must wait for their end",
            code="older_processes",
            hint="stop them first; --stage pre applies what they tolerate; --force does not wait",
        )  # fmt: skip


@contextmanager
def _denied_in_words(what: str) -> Iterator[None]:
    """A server whose role does not own the schema finds it as the owner's `mainspring migrate` has left it."""
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        if "for database" in str(error) or "for schema" in str(error):  # a first migration, which needs a grant
            raise
        raise Forbidden(
            f"the schema is older than this Mainspring: it lacks {what}, and this role cannot add it ({error})",
            code="migration_needed",
            hint="run `mainspring migrate --stage pre` with the role that owns the schema mainspring",
        ) from error


async def _apply(connection: asyncpg.Connection, migration: Migration) -> bool:
    """Returns False if another process was faster."""
    if migration.version in await _applied(connection):
        return False
    sql = migration.sql
    if await connection.fetchval("select to_regnamespace('mainspring') is not null"):
        sql = sql.replace(_CREATE_SCHEMA, "")
    await connection.execute(sql)
    await connection.execute(
        "insert into mainspring.schema_migrations (version, name, stage, breaking) values ($1, $2, $3, $4)",
        migration.version,
        migration.name,
        migration.stage,
        migration.breaking,
    )
    return True


async def _applied(connection: asyncpg.Connection) -> dict[int, bool]:
    """The applied versions, each with whether it is breaking."""
    if await connection.fetchval("select to_regclass('mainspring.schema_migrations')") is None:
        return {}
    # As JSON, because a database from before the first release may have no column `breaking`. It is refused.
    rows = await connection.fetch(
        "select version, coalesce((to_jsonb(m) ->> 'breaking')::boolean, true) as breaking"
        " from mainspring.schema_migrations m"
    )
    return {row["version"]: row["breaking"] for row in rows}


def _refuse_an_unreleased_schema(known: Sequence[Migration], applied: dict[int, bool]) -> None:
    """The first migration is that of the first release. What was before it cannot be migrated."""
    if applied and known[0].version not in applied:
        raise Conflict(
            f"the database has schema {max(applied)}, from before the first release, and cannot be migrated",
            code="schema_too_old",
            hint="use a new database or data folder; the version that wrote this one can still read it",
        )


def _refuse_a_breaking_schema(known: Sequence[Migration], applied: dict[int, bool]) -> None:
    """Newer migrations are accepted, unless one of them is breaking."""
    newest = known[-1].version
    newer = [version for version, breaking in applied.items() if version > newest and breaking]
    if newer:
        raise Conflict(
            f"the database has schema {max(applied)}, this Mainspring knows up to {newest}"
            f" and cannot work with migration {min(newer)}",
            code="schema_too_new",
            hint="start a newer Mainspring",
        )
