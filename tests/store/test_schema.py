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
LANDED = {
    "0001_foundation": "2e82d7f836cc4472bd3e207a3750ce63bb8a14f5cc7f968008227d80fe9060c4",
    "0002_execution": "d4ccdf8e75e430f8646ac9a9cf99afe46772428456b266c1cf7576043e1b3474",
    "0003_replays": "d093825841e149f6534929baa2ae00be2f5afdb8db91565c9ce59a5ad274bf3c",
    "0004_submit": "e522a65c24965582ccab38a6520271a189704f965c1d9a85368d71a9a18c242a",
    "0005_tenants": "905fc5c5f6fc2265eae973af78ee980317c0988017c6357908481fac6daa3cc5",
    "0006_upgrades": "dfe67ac166b1d0ca53f8e3d8ecf6ec3298ea92f21af3b875577b3c35b2d87246",
    "0007_follows": "4ecf5dd69d96a024248dbd64a2deed554f58e7a0dc44ab841dfeb1ba3ba146e9",
    "0008_expiry": "564eff477946d0c70f00f8196c12ded0e8e82b00cd7add07d5b6643aba9b2d11",
}


def all_names() -> list[str]:
    return [migration.label for migration in known_migrations()]


async def test_the_migrations_build_exactly_the_schema_of_the_snapshot(connection: asyncpg.Connection) -> None:
    assert await dump(connection) == SNAPSHOT.read_text(encoding="utf-8"), (
        f"the schema differs from the snapshot; if the change is intended, renew it with `{RENEWAL}`"
    )


async def test_versions_rise_by_one_from_one() -> None:
    assert [migration.version for migration in known_migrations()] == list(range(1, len(known_migrations()) + 1))


async def test_a_migration_that_has_landed_never_changes() -> None:
    texts = {migration.label: migration.sql for migration in known_migrations()}
    found = {name: hashlib.sha256(texts[name].encode()).hexdigest() for name in LANDED}
    assert found == LANDED


async def test_a_database_of_before_with_a_dead_letter_in_it_is_brought_up_to_date(empty_url: str) -> None:
    connection = await asyncpg.connect(empty_url)
    try:
        for migration in known_migrations()[:2]:
            await connection.execute(migration.sql)
            await connection.execute(
                "insert into mainspring.schema_migrations values ($1, $2)", migration.version, migration.name
            )
        await connection.execute(
            """insert into mainspring.dead_letters
                   (run_id, tenant_id, lane_id, attempts, scheduled_for, died_at, spec)
               select gen_random_uuid(), 1, 1, 2, clock_timestamp(), clock_timestamp(), spec
               from unnest(array[null, '{"retry": {"max_attempts": 2}}']::json[]) as spec"""
        )
        assert await migrate(empty_url) == [*all_names()[2:], "routines"]
        assert await dump(connection) == SNAPSHOT.read_text(encoding="utf-8")
        rows = await connection.fetch("select max_attempts from mainspring.dead_letters order by 1")
        assert [row["max_attempts"] for row in rows] == [2, 4]
    finally:
        await connection.close()


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
