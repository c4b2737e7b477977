"""Migrations build exactly the reviewed schema, once, even if several processes start them."""

from __future__ import annotations

import asyncio
import hashlib

import asyncpg
import pytest

from mainspring.domain.errors import Conflict
from mainspring.store.migrate import known_migrations, migrate

from .schema_snapshot import RENEWAL, SNAPSHOT, dump

pytestmark = pytest.mark.anyio

# These have been applied to databases in use. A change is a new file, with a new line here.
LANDED = {"0044_first_release": "914e7329e49ee0124a8f151fae63f1fad1b34915d0a280a48f32194c684087f7"}


def all_names() -> list[str]:
    return [migration.label for migration in known_migrations()]


async def test_the_migrations_build_exactly_the_schema_of_the_snapshot(connection: asyncpg.Connection) -> None:
    assert await dump(connection) == SNAPSHOT.read_text(encoding="utf-8"), (
        f"the schema differs from the snapshot; if the change is intended, renew it with `{RENEWAL}`"
    )


async def test_versions_rise_by_one_from_the_first_release() -> None:
    assert [migration.version for migration in known_migrations()] == list(range(44, len(known_migrations()) + 44))


async def test_a_migration_that_has_landed_never_changes() -> None:
    texts = {migration.label: migration.sql for migration in known_migrations()}
    found = {name: hashlib.sha256(texts[name].encode()).hexdigest() for name in LANDED}
    assert found == LANDED


async def test_the_second_migration_applies_nothing(empty_url: str) -> None:
    assert await migrate(empty_url) == [*all_names(), "routines"]
    assert await migrate(empty_url) == []


async def test_of_many_concurrent_migrations_one_does_the_work_and_all_succeed(empty_url: str) -> None:
    done = await asyncio.gather(*(migrate(empty_url) for _ in range(4)))
    assert sorted(done) == [[], [], [], [*all_names(), "routines"]]


async def test_a_newer_schema_is_refused_and_left_as_it_is(database_url: str, connection: asyncpg.Connection) -> None:
    await connection.execute("insert into mainspring.schema_migrations (version, name) values (9999, 'of_tomorrow')")
    with pytest.raises(Conflict) as refused:
        await migrate(database_url)
    assert refused.value.code == "schema_too_new"
    assert "9999" in refused.value.detail
    assert refused.value.hint == "start a newer Mainspring"
    assert await dump(connection) == SNAPSHOT.read_text(encoding="utf-8")


async def test_a_refused_migration_lets_go_of_the_lock(database_url: str, connection: asyncpg.Connection) -> None:
    await connection.execute("insert into mainspring.schema_migrations (version, name) values (9999, 'of_tomorrow')")
    with pytest.raises(Conflict):
        await migrate(database_url)
    await connection.execute("delete from mainspring.schema_migrations where version = 9999")
    assert await migrate(database_url) == []
