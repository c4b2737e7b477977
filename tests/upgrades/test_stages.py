"""Migrations have stages. Older code runs on a newer schema, unless a migration is breaking."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from mainspring.cli.main import main
from mainspring.domain.errors import Conflict, Unavailable
from mainspring.store import running_versions
from mainspring.store.ddl_transaction import LockPatience
from mainspring.store.migrate import (
    Migration,
    Stage,
    known_migrations,
    migrate,
    migrate_at_start,
    read_migration,
)
from mainspring.store.pulse import Pulse
from tests.operations.waiting import until
from tests.store.schema_snapshot import dump
from tests.store.test_schema import all_names

pytestmark = pytest.mark.anyio

NEXT = known_migrations()[-1].version + 1
ONE_SHORT_ATTEMPT = LockPatience(wait=0.001, attempts=1, pause=0.0)


def coming(*headers: str) -> list[Migration]:
    """The migrations of a later version: the current ones, and one more for each header."""
    added = [
        read_migration(version, f"tomorrow_{version}", f"{header}create table mainspring.tomorrow_{version} (x int);")
        for version, header in enumerate(headers, start=NEXT)
    ]
    return [*known_migrations(), *added]


PRE, POST = "-- stage: pre\n", "-- stage: post\n"
BREAKING = "-- breaking\n"
CHANGE = "alter table mainspring.runs add column tomorrow int;"
WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    " and application_name = 'mainspring migrate'"
)


def label(version: int) -> str:
    return f"{version:04d}_tomorrow_{version}"


async def recorded(connection: asyncpg.Connection) -> list[tuple[Any, ...]]:
    rows = await connection.fetch(
        "select version, stage, breaking from mainspring.schema_migrations where version >= $1 order by 1", NEXT
    )
    return [tuple(row) for row in rows]


def test_the_header_says_the_stage_and_whether_old_code_must_stop() -> None:
    assert [(m.stage, m.breaking) for m in coming(PRE, POST + BREAKING)[-2:]] == [("pre", False), ("post", True)]
    with pytest.raises(ValueError, match="0007_x does not begin with"):
        read_migration(7, "x", "create table t ();")


async def test_a_start_applies_pre_and_leaves_post_to_the_operator(
    database_url: str, connection: asyncpg.Connection
) -> None:
    later = coming(POST, PRE)
    assert await migrate_at_start(database_url, known=later) == [label(NEXT + 1)]
    assert await migrate_at_start(database_url, known=later) == []
    assert await migrate(database_url, known=later) == [label(NEXT)]
    assert await recorded(connection) == [(NEXT, "post", False), (NEXT + 1, "pre", False)]


async def test_a_start_applies_everything_to_a_new_database(empty_url: str) -> None:
    later = coming(POST, PRE + BREAKING)
    assert await migrate_at_start(empty_url, known=later) == [*all_names(), label(NEXT), label(NEXT + 1), "routines"]


async def test_a_start_does_not_apply_what_older_processes_cannot_live_with(
    database_url: str, connection: asyncpg.Connection
) -> None:
    later = coming(PRE, PRE + BREAKING)
    with pytest.raises(Conflict, match=label(NEXT + 1)) as refused:
        await migrate_at_start(database_url, known=later)
    assert refused.value.code == "migration_needed"
    assert "mainspring migrate" in str(refused.value.hint)
    assert await recorded(connection) == []
    assert await migrate(database_url, known=later) == [label(NEXT), label(NEXT + 1)]
    assert await migrate_at_start(database_url, known=later) == []


async def test_stages_can_be_applied_one_by_one_and_post_comes_last(database_url: str) -> None:
    later = coming(POST, PRE)
    with pytest.raises(Conflict, match=label(NEXT + 1)) as refused:
        await migrate(database_url, [Stage.POST], known=later)
    assert refused.value.code == "migration_needed"
    assert await migrate(database_url, [Stage.PRE], known=later) == [label(NEXT + 1)]
    assert await migrate(database_url, [Stage.POST], known=later) == [label(NEXT)]


async def test_what_must_wait_for_older_processes_waits_for_them(
    database_url: str, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulse = Pulse(database_url)
    assert await pulse.run_once()
    later = coming(POST, PRE)
    with pytest.raises(Conflict, match=r"1 server\(s\)") as refused:
        await migrate(database_url, known=later)
    assert refused.value.code == "older_processes"
    assert await recorded(connection) == []
    assert await migrate(database_url, [Stage.PRE], known=later) == [label(NEXT + 1)]
    assert await migrate(database_url, known=later, force=True) == [label(NEXT)]
    await pulse.close()
    monkeypatch.setattr(running_versions, "newest_known", lambda: NEXT + 2)
    pulse = Pulse(database_url)
    assert await pulse.run_once()
    assert await migrate(database_url, known=coming(POST, PRE, POST)) == [label(NEXT + 2)]  # the process knows it
    await pulse.close()


async def test_all_of_pre_and_then_all_of_post_builds_the_same_schema(
    empty_url: str, connection: asyncpg.Connection
) -> None:
    """So a start may apply a `pre` migration before an earlier `post` migration."""
    await migrate(empty_url, [Stage.PRE])
    await migrate(empty_url, [Stage.POST])
    other = await asyncpg.connect(empty_url)
    assert await dump(other) == await dump(connection)
    await other.close()


@pytest.mark.parametrize("start", [migrate, migrate_at_start])
async def test_old_code_goes_on_with_a_newer_schema_that_does_not_break_it(
    database_url: str, connection: asyncpg.Connection, start: Any
) -> None:
    await migrate(database_url, known=coming(PRE, POST))
    before = await dump(connection)
    assert await start(database_url) == []
    assert await dump(connection) == before


@pytest.mark.parametrize("start", [migrate, migrate_at_start])
async def test_old_code_refuses_a_newer_schema_that_breaks_it(database_url: str, start: Any) -> None:
    await migrate(database_url, known=coming(PRE, POST + BREAKING, PRE))
    with pytest.raises(
        Conflict, match=rf"schema {NEXT + 2}, .* knows up to {NEXT - 1} .* migration {NEXT + 1}\b"
    ) as no:
        await start(database_url)
    assert no.value.code == "schema_too_new"


async def test_a_migration_that_does_not_get_its_lock_names_who_holds_it(
    database_url: str, connection: asyncpg.Connection
) -> None:
    later = [*known_migrations(), read_migration(NEXT, "blocked", PRE + CHANGE)]
    reader = await asyncpg.connect(database_url, server_settings={"application_name": "nightly report"})
    transaction = reader.transaction()
    await transaction.start()
    await reader.fetch("select from mainspring.runs")
    with pytest.raises(
        Unavailable, match=f"migration {NEXT:04d}_blocked did not get its locks in 1 attempt"
    ) as blocked:
        await migrate(database_url, known=later, patience=ONE_SHORT_ATTEMPT)
    assert blocked.value.code == "migration_blocked"
    assert f"backend {reader.get_server_pid()} " in blocked.value.detail
    assert "'nightly report', idle in transaction" in blocked.value.detail
    assert await recorded(connection) == []
    await transaction.rollback()
    assert await migrate(database_url, known=later) == [f"{NEXT:04d}_blocked"]
    await reader.close()


async def test_a_migration_tries_again_and_lets_others_pass_in_between(
    database_url: str, connection: asyncpg.Connection
) -> None:
    later = [*known_migrations(), read_migration(NEXT, "patient", PRE + CHANGE)]
    reader = await asyncpg.connect(database_url)
    transaction = reader.transaction()
    await transaction.start()
    await reader.fetch("select from mainspring.runs")
    patience = LockPatience(wait=0.5, attempts=1000, pause=0.0)
    migrating = asyncio.create_task(migrate(database_url, known=later, patience=patience))

    async def it_waits_for_the_lock() -> bool:
        return bool(await connection.fetchval(WAITING))

    await until(it_waits_for_the_lock)
    await connection.fetch("select from mainspring.runs")  # waits behind the migration until its lock timeout
    assert not migrating.done()
    await transaction.rollback()
    assert await migrating == [f"{NEXT:04d}_patient"]
    await reader.close()


async def test_the_command_takes_a_stage(empty_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def said(*arguments: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, ["migrate", "--database-url", empty_url, *arguments])
        return code, *capsys.readouterr()

    code, _, err = await said("--stage", "post")
    assert code != 0 and "--stage pre" in err
    code, out, _ = await said("--stage", "pre")
    assert (code, out.splitlines()[0]) == (0, "applied 0044_first_release")
    code, out, _ = await said("--stage", "post", "--json")
    assert (code, out) == (0, '{"applied":[]}\n')
    assert await said("--json") == (0, '{"applied":[]}\n', "")
