"""Migrations: numbered SQL files, applied in order under an advisory lock, each in its own transaction."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from mainspring.domain.errors import Conflict
from mainspring.store import partitions
from mainspring.store.pool import connect

_FILE = re.compile(r"(\d{4})_(\w+)\.sql\Z")
_LOCK = 0x4D41494E  # "MAIN": only one process migrates at a time, the others wait and find nothing to do


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def known_migrations() -> list[Migration]:
    folder = files("mainspring.store") / "migrations"
    found = [
        Migration(int(match.group(1)), match.group(2), file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _FILE.match(file.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


async def migrate(database_url: str) -> list[str]:
    """Bring the database up to date; returns the names of what was applied (none: it was up to date)."""
    connection = await connect(database_url, application="migrate")
    try:
        return await migrate_on(connection)
    finally:
        await connection.close()


async def migrate_on(connection: asyncpg.Connection) -> list[str]:
    await connection.execute("select pg_advisory_lock($1)", _LOCK)
    try:
        applied = await _applied(connection)
        known = known_migrations()
        newest = known[-1].version
        if applied and max(applied) > newest:
            raise Conflict(
                f"the database has schema {max(applied)}, this Mainspring knows up to {newest}",
                code="schema_too_new",
                hint="start a newer Mainspring",
            )
        done = []
        for migration in known:
            if migration.version in applied:
                continue
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    "insert into mainspring.schema_migrations (version, name) values ($1, $2)",
                    migration.version,
                    migration.name,
                )
            done.append(f"{migration.version:04d}_{migration.name}")
        await partitions.ensure_ahead(connection)
        return done
    finally:
        await connection.execute("select pg_advisory_unlock($1)", _LOCK)


async def _applied(connection: asyncpg.Connection) -> set[int]:
    if await connection.fetchval("select to_regclass('mainspring.schema_migrations')") is None:
        return set()
    return {row["version"] for row in await connection.fetch("select version from mainspring.schema_migrations")}
