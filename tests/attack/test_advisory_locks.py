"""Everybody who may connect to the database can take any advisory lock there. Ours have keys that nobody can guess, so
that nobody else can hold them and stop the servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import Assembly
from mainspring.store import declarations, partitions, rollups
from mainspring.store.migrate import migrate, migrate_at_start
from mainspring.store.queries import render
from tests.eventually import PATIENCE

pytestmark = pytest.mark.anyio

# What can be read in the source, of this version and of earlier ones.
GUESSED = (
    *(f"hashtext('mainspring.{name}')" for name in ("lanes", "tokens", "rollups", "run_history", "attempts")),
    *(f"hashtextextended('mainspring.{name}', 0)" for name in ("job_edges/1", "job/1/fired", "job/1/again")),
    "hashtext('mainspring.declarations'), hashtext('1/shop')",
    f"{0x4D41494E}",
)  # fmt: skip


@pytest.fixture
async def holder(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else in the same database, who holds all locks that have a known key."""
    connection = await asyncpg.connect(database_url)
    for key in GUESSED:
        await connection.execute(f"select pg_advisory_lock({key})")
    yield connection
    await connection.close()


async def test_whoever_holds_the_keys_that_can_be_guessed_stops_nothing(
    api: httpx.AsyncClient,
    assembly: Assembly,
    connection: asyncpg.Connection,
    database_url: str,
    holder: asyncpg.Connection,
) -> None:
    async with asyncio.timeout(PATIENCE):
        for body in (
            {"job_id": "fired", "task": "noop", "queue": "new-lane"},
            {"job_id": "parent", "task": "noop", "schedule": {"every": "1h"}},
            {"job_id": "child", "task": "noop", "schedule": {"after": ["parent"]}},
        ):
            answer = await api.post("/v1/jobs", json=body)
            assert answer.status_code == 201, answer.text
        await connection.execute("""select mainspring.submit('{"task": "noop", "queue": "another-new-lane"}')""")
        assert (await api.post("/v1/jobs/fired:run")).status_code != 503
        made = await api.post("/v1/tokens", json={"name": "x", "role": "viewer"})
        assert (await api.post(f"/v1/tokens/{made.json()['token_id']}:revoke")).status_code == 200
        assert (await api.post("/v1/tenants", json={"name": "acme"})).status_code == 201
        async with connection.transaction():
            await declarations.take_turn(connection, DEFAULT_TENANT, "shop")
        async with connection.transaction():
            assert await rollups.lock(connection)
        ahead = datetime.now(UTC).date() + timedelta(days=20)
        for parent in ("run_history", "attempts"):
            assert await connection.fetchval("select mainspring.add_partition($1, $2)", parent, ahead)
        await partitions.ensure_ahead(connection)
        assert await migrate(database_url) == [] == await migrate_at_start(database_url)


async def test_who_may_only_submit_cannot_read_the_number(
    connection: asyncpg.Connection, superuser: asyncpg.Connection
) -> None:
    role = f"shop_{await connection.fetchval('select current_database()')}"
    await superuser.execute(f"create role {role}")
    try:
        await superuser.execute(
            f"grant usage on schema mainspring to {role}; grant execute on function mainspring.submit(jsonb) to {role}"
        )
        await superuser.execute(f"set role {role}")
        await superuser.execute("""select mainspring.submit('{"task": "noop"}')""")
        for statement in (
            "select lock_number from mainspring.routines",
            "select to_jsonb(r) from mainspring.routines r",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await superuser.fetch(statement)
    finally:
        await superuser.execute(f"reset role; drop owned by {role}; drop role {role}")


async def test_every_installation_has_a_number_of_its_own(empty_url: str, connection: asyncpg.Connection) -> None:
    await migrate(empty_url)
    other = await asyncpg.connect(empty_url)
    key = render("select {{lock_key('lanes')}}")
    assert await other.fetchval(key) != await connection.fetchval(key)
    names = ("lanes", "tokens", "rollups")
    assert len({await connection.fetchval(render(f"select {{{{lock_key('{name}')}}}}")) for name in names}) == len(
        names
    )
    await other.close()
