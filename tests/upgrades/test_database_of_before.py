"""A database from before the first release is refused, and nothing in it changes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import asyncpg
import pytest

from mainspring.cli.exit_codes import CONFLICT
from mainspring.domain.errors import Conflict
from mainspring.roles.up import MAINSPRING
from mainspring.store.migrate import migrate, migrate_at_start
from tests.processes.cluster import free_port
from tests.store.schema_snapshot import dump

pytestmark = pytest.mark.anyio

# What the migrations of before had in common, and what changed in between: stages came with 6, the lock number with 43.
FIRST = """
create schema if not exists mainspring;
create table mainspring.schema_migrations (
    version     int primary key,
    name        text not null,
    applied_at  timestamptz not null default clock_timestamp()
);
create table mainspring.jobs (tenant_id int not null, job_id text not null, schedule json not null);
insert into mainspring.jobs values (1, 'nightly', '{"cron": "0 3 * * *"}');
"""
STAGES = """
alter table mainspring.schema_migrations
    add column stage    text not null default 'pre' check (stage in ('pre', 'post')),
    add column breaking boolean not null default true;
create table mainspring.routines (
    only_row    boolean primary key default true check (only_row),
    version     text not null,
    hash        text not null,
    functions   text[] not null,
    applied_at  timestamptz not null default clock_timestamp()
);
insert into mainspring.routines (version, hash, functions) values ('0.2.0', 'x', '{}');
"""
LOCK_NUMBER = "alter table mainspring.routines add column lock_number uuid not null default gen_random_uuid();"
BEFORE = {5: FIRST, 39: FIRST + STAGES, 43: FIRST + STAGES + LOCK_NUMBER}


async def of_before(url: str, version: int) -> asyncpg.Connection:
    connection = await asyncpg.connect(url)
    await connection.execute(BEFORE[version])
    await connection.execute(
        "insert into mainspring.schema_migrations (version, name) select n, 'm' || n from generate_series(1, $1) as n",
        version,
    )
    return connection


@pytest.mark.parametrize("version", BEFORE)
@pytest.mark.parametrize("start", [migrate, migrate_at_start])
async def test_it_is_refused_and_left_as_it_is(empty_url: str, version: int, start: object) -> None:
    connection = await of_before(empty_url, version)
    before = await dump(connection), await connection.fetch("select * from mainspring.schema_migrations")
    with pytest.raises(Conflict) as refused:
        await start(empty_url)  # type: ignore[operator]
    assert refused.value.code == "schema_too_old"
    assert f"schema {version}, from before the first release" in refused.value.detail
    assert "new database or data folder" in str(refused.value.hint)
    assert (await dump(connection), await connection.fetch("select * from mainspring.schema_migrations")) == before
    await connection.close()


@pytest.mark.parametrize("verb", ["migrate", "server", "scheduler"])
async def test_the_commands_say_it_in_a_sentence(empty_url: str, tmp_path: Path, verb: str) -> None:
    await (await of_before(empty_url, 43)).close()
    options = ["--port", str(free_port()), "--data", str(tmp_path)] if verb == "server" else []
    environment = {**os.environ, "MAINSPRING_DATABASE_URL": empty_url}
    child = await asyncio.create_subprocess_exec(
        *MAINSPRING, verb, *options, env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, said = await child.communicate()
    assert child.returncode == CONFLICT
    assert b"from before the first release" in said and b"Traceback" not in said
