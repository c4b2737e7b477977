"""A database from before migrations had stages becomes the same as a new one."""

from __future__ import annotations

from pathlib import PurePosixPath

import asyncpg
import pytest

from mainspring.store.migrate import Stage, known_migrations, migrate, migrate_at_start
from tests.store.schema_snapshot import SNAPSHOT, dump
from tests.upgrades.trees import BEFORE_STAGES, git

pytestmark = pytest.mark.anyio

FOLDER = "src/mainspring/store/migrations/"
FUNCTIONS = """
select p.oid::regprocedure::text as name, pg_get_functiondef(p.oid) as definition, p.proacl::text as grants
from pg_proc p where p.pronamespace = 'mainspring'::regnamespace order by 1
"""
VERSIONS = "select version, name, stage, breaking from mainspring.schema_migrations order by version"


async def as_it_was(url: str) -> None:
    """Apply the five migrations of that commit."""
    connection = await asyncpg.connect(url)
    names = git("ls-tree", "--name-only", BEFORE_STAGES, FOLDER).decode().split()
    assert len(names) == 5
    for name in names:
        version, _, title = PurePosixPath(name).stem.partition("_")
        async with connection.transaction():
            await connection.execute(git("show", f"{BEFORE_STAGES}:{name}").decode())
            await connection.execute(
                "insert into mainspring.schema_migrations (version, name) values ($1, $2)", int(version), title
            )
    await connection.close()


def names(stage: Stage) -> list[str]:
    return [migration.label for migration in known_migrations() if migration.stage is stage]


async def test_it_is_brought_up_to_date(empty_url: str, connection: asyncpg.Connection) -> None:
    await as_it_was(empty_url)
    old = await asyncpg.connect(empty_url)
    user = await asyncpg.connect(empty_url)
    async with user.transaction():  # submitted with the old routines, stored by the current ones
        # Without a chosen id, because its check would lock tables that a migration changes.
        await user.fetchval("""select mainspring.submit('{"task": "noop", "name": "before"}')""")
        assert await migrate_at_start(empty_url) == [*names(Stage.PRE)[5:], "routines"]
        await user.fetchval("""select mainspring.submit('{"task": "noop", "name": "after"}')""")
    rows = await old.fetch("select name, tenant_id from mainspring.runs order by name")
    assert [tuple(row) for row in rows] == [("after", 1), ("before", 1)]
    assert await migrate(empty_url) == names(Stage.POST)
    assert await migrate(empty_url) == []
    assert await dump(old) == SNAPSHOT.read_text(encoding="utf-8")
    for what in (FUNCTIONS, VERSIONS):
        assert await old.fetch(what) == await connection.fetch(what)
    await old.close()
    await user.close()
