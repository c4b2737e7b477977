"""Servers work with the grants of docs/operating.md, with a schema of somebody else, and name what is missing."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from mainspring.domain.errors import MainspringError
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.database import prepare_database
from mainspring.store import partitions, tokens
from mainspring.store.database import Database
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import ROLE
from mainspring.store.grants import require_grants, require_owner
from mainspring.store.migrate import Migration, Stage, known_migrations, migrate, migrate_at_start
from tests.conftest import TOKEN
from tests.life_of_jobs import live_through
from tests.operations.waiting import until
from tests.store.rows import now_of

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
MIGRATE, RUN, APP = ROLES = ("mainspring_migrate", "mainspring_run", "mainspring_app")


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```sql\n(.*?)```", PAGE, re.S)
    assert found is not None, f"the page has no block {name!r}"
    return found[1]


def statements(name: str) -> list[str]:
    return [each.strip() for each in re.sub(r"--[^\n]*", "", block(name)).split(";") if each.strip()]


@pytest.fixture
async def admin(
    postgres: EmbeddedPostgres, empty_url: str, superuser_of: Callable[[str], str]
) -> AsyncIterator[asyncpg.Connection]:
    """A superuser in an empty database, where the roles of the page may log in."""
    opened = await asyncpg.connect(superuser_of(empty_url))
    rules = postgres.access.hba_file
    before = rules.read_text()
    rules.write_text(f"local all {','.join(ROLES)} trust\n{before}")
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGHUP)
    await opened.execute("revoke create on schema public from public")
    await opened.execute(f"revoke all on database {await opened.fetchval('select current_database()')} from public")
    try:
        yield opened
    finally:
        rules.write_text(before)
        os.kill(postgres.pid, signal.SIGHUP)
        await opened.execute(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity where usename = any ($1::text[])", ROLES
        )
        for role in ROLES:
            if await opened.fetchval("select exists (select from pg_roles where rolname = $1)", role):
                await opened.execute(f"grant {role} to current_user; drop owned by {role} cascade; drop role {role}")
        await opened.close()


async def made(admin: asyncpg.Connection, blocks: str, url: str) -> None:
    """Run the statements of the page. The roles may connect, as they may in any database that nobody has closed."""
    await admin.execute(block(blocks))
    database = await admin.fetchval("select current_database()")
    known = [role for role in ROLES if f"role {role} " in block(blocks)]
    await admin.execute(f"grant connect on database {database} to {', '.join(known)}")

    async def may_log_in() -> bool:  # once PostgreSQL has read its rules again
        try:
            await (await asyncpg.connect(as_role(url, known[0]))).close()
        except asyncpg.InvalidAuthorizationSpecificationError:
            return False
        return True

    await until(may_log_in)


def as_role(url: str, role: str) -> str:
    return url.replace(f"//{ROLE}@", f"//{role}@")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def grant(url: str, *, without: str | None = None) -> None:
    """Run the grants of the page as the role that migrates."""
    async with connected(as_role(url, MIGRATE)) as owner:
        for each in statements("grants"):
            if each != without:
                await owner.execute(each)


async def migrated(admin: asyncpg.Connection, url: str) -> Database:
    """The database for the second role, after the first one has migrated it. It lacks the grants."""
    await made(admin, "two roles", url)
    await migrate(as_role(url, MIGRATE))
    async with connected(as_role(url, MIGRATE)) as owner:
        await tokens.insert(owner, DEFAULT_TENANT, TOKEN, "admin", "test")
    return Database(as_role(url, RUN))


async def test_one_role_owns_the_schema_and_needs_nothing_else(admin: asyncpg.Connection, empty_url: str) -> None:
    await made(admin, "one role", empty_url)
    where = Database(as_role(empty_url, APP))
    assert "routines" in await prepare_database(where)
    assert await prepare_database(where) == []
    rights = await admin.fetchrow("select rolsuper, rolcreatedb, rolcreaterole from pg_roles where rolname = $1", APP)
    assert tuple(rights) == (False, False, False)


@pytest.mark.slow
async def test_jobs_live_with_a_role_that_owns_nothing(admin: asyncpg.Connection, empty_url: str) -> None:
    where = await migrated(admin, empty_url)
    await grant(empty_url)
    assert await prepare_database(where) == []
    await live_through(where, admin)


async def test_that_role_creates_and_drops_partitions_and_cannot_change_tables(
    admin: asyncpg.Connection, empty_url: str
) -> None:
    where = await migrated(admin, empty_url)
    await grant(empty_url)
    today = (await now_of(admin)).date()
    last = f"run_history_{today + timedelta(days=7):%Y%m%d}"
    await admin.execute(f"drop table mainspring.{last}")
    async with connected(where.url) as connection:
        assert await partitions.ensure_ahead(connection) == [last]
        dropped = await partitions.drop_older(connection, 0)
        over = f"{today - timedelta(days=1):%Y%m%d}"
        assert sorted(dropped) == [f"{name}_{over}" for name in ("attempts", "log_blocks", "log_chunks", "run_history")]
        for forbidden in (
            "drop table mainspring.runs",
            "alter table mainspring.runs add column x int",
            "create table mainspring.mine ()",
            "insert into mainspring.schema_migrations (version, name) values (99, 'x')",
            "truncate mainspring.runs",
            "create schema mine",
            "create table public.mine ()",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(forbidden)
        for day, parent in ((today, "runs"), (today + timedelta(days=400), "attempts")):
            with pytest.raises(asyncpg.InvalidParameterValueError):
                await connection.fetchval("select mainspring.add_partition($1, $2)", parent, day)
        for day, parent in ((today, "attempts"), (today - timedelta(days=9), "jobs; drop table mainspring.jobs")):
            with pytest.raises(asyncpg.InvalidParameterValueError):
                await connection.fetchval("select mainspring.drop_partition($1, $2)", parent, day)


async def test_that_role_adds_entries_to_the_audit_and_changes_none(admin: asyncpg.Connection, empty_url: str) -> None:
    where = await migrated(admin, empty_url)
    await grant(empty_url)
    today = (await now_of(admin)).date()
    async with connected(where.url) as connection:
        last = f"{today + timedelta(days=7):%Y%m%d}"
        await admin.execute(f"drop table mainspring.audit_entries_{last}")
        await partitions.ensure_ahead(connection)  # the default privileges allow more than a partition should
        await connection.execute(
            "insert into mainspring.audit_entries (entry_id, tenant_id, source, actor, operation, kind, object_id)"
            " values (gen_random_uuid(), 1, 'api', 'a', 'b', 'c', 'd')"
        )
        kept = (
            "audit_entries",
            f"audit_entries_{today:%Y%m%d}",
            f"audit_entries_{last}",
            "audit_links",
            "audit_anchors",
        )
        for table in kept:
            for forbidden in (
                f"delete from mainspring.{table}",
                f"truncate mainspring.{table}",
                f"update mainspring.{table} set tenant_id = 2",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
                    await connection.execute(forbidden)


async def test_each_grant_of_the_page_is_needed_and_is_named_if_it_is_missing(
    admin: asyncpg.Connection, empty_url: str
) -> None:
    where = await migrated(admin, empty_url)
    needed = [each for each in statements("grants") if each.startswith("grant")]
    assert len(needed) == 4
    for missing in needed:
        await admin.execute(f"drop owned by {RUN}")
        await admin.execute(f"grant connect on database {where.address.database} to {RUN}")
        await grant(empty_url, without=missing)
        with pytest.raises(MainspringError) as caught:
            await prepare_database(where)
        assert caught.value.code == "permission_denied"
        assert f"'{RUN}'" in caught.value.detail and f"'{where.address.database}'" in caught.value.detail
        hint = caught.value.hint or ""
        for statement in hint.partition(": ")[2].split("; "):
            async with connected(as_role(empty_url, MIGRATE)) as owner:
                await owner.execute(statement)
        assert await prepare_database(where) == [], f"what the hint says is enough without {missing!r}: {hint}"


async def test_a_single_missing_grant_is_named_by_itself(admin: asyncpg.Connection, empty_url: str) -> None:
    where = await migrated(admin, empty_url)
    await grant(empty_url)
    await admin.execute(f"revoke delete on mainspring.runs from {RUN}")
    with pytest.raises(MainspringError) as caught:
        await prepare_database(where)
    assert caught.value.hint == f"as the owner of the schema and its tables: grant delete on mainspring.runs to {RUN}"


async def test_a_role_that_cannot_migrate_says_who_has_to(admin: asyncpg.Connection, empty_url: str) -> None:
    where = await migrated(admin, empty_url)
    await grant(empty_url)
    change = "alter table mainspring.runs add x int"
    later = Migration(known_migrations()[-1].version + 1, "tomorrow", change, Stage.PRE, False)
    with pytest.raises(MainspringError, match="the schema is older than this Mainspring") as caught:
        await migrate_at_start(where, known=[*known_migrations(), later])
    assert caught.value.code == "migration_needed"
    async with connected(where.url) as connection:
        with pytest.raises(MainspringError, match=f"belong to the role '{MIGRATE}'"):
            await require_owner(connection, where)
    async with connected(as_role(empty_url, MIGRATE)) as connection:
        await require_owner(connection, where)
        await require_grants(connection, where)


async def test_a_schema_of_somebody_else_works(admin: asyncpg.Connection, empty_url: str) -> None:
    await made(admin, "two roles", empty_url)
    await admin.execute("drop schema mainspring; create schema mainspring")
    where = Database(as_role(empty_url, MIGRATE))
    with pytest.raises(MainspringError) as caught:
        await prepare_database(where)
    needed = f"grant usage, create on schema mainspring to {MIGRATE}"
    assert caught.value.hint == f"as the owner of the schema and its tables: {needed}"
    await admin.execute(needed)
    assert "routines" in await prepare_database(where)


async def test_without_a_schema_and_without_the_right_to_create_it_the_statement_is_named(
    admin: asyncpg.Connection, empty_url: str
) -> None:
    await made(admin, "two roles", empty_url)
    await admin.execute("drop schema mainspring")
    with pytest.raises(MainspringError) as caught:
        await prepare_database(Database(as_role(empty_url, MIGRATE)))
    assert caught.value.code == "permission_denied"
    assert f"create schema mainspring authorization {MIGRATE}" in (caught.value.hint or "")
