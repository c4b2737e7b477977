"""Everybody who may connect to the database can take any advisory lock there. Ours have keys that nobody can guess, so
that nobody else can hold them and stop the servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.roles.assembly import Assembly
from mainspring.store import declarations, partitions, rollups, tokens
from mainspring.store.migrate import known_migrations, migrate, migrate_at_start
from mainspring.store.queries import render
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
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
    async with asyncio.timeout(60):
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


@pytest.fixture
async def before(empty_url: str) -> str:
    """A database on which older servers may run: without the migrations that break them."""
    await migrate(empty_url, known=[each for each in known_migrations() if not each.breaking])
    return empty_url


async def test_until_the_migration_new_servers_take_the_locks_that_older_ones_take(before: str) -> None:
    connection, older = await asyncpg.connect(before), await asyncpg.connect(before)
    try:
        assert await connection.fetchval(render("select {{lock_key('lanes')}}")) == await connection.fetchval(
            "select hashtext('mainspring.lanes')"
        )
        taken: dict[str, Callable[[], Awaitable[object]]] = {
            "hashtext('mainspring.tokens')": lambda: tokens.take_turn(connection),
            "hashtext('mainspring.rollups')": lambda: rollups.lock(connection),
            "hashtext('mainspring.declarations'), hashtext('1/shop')": lambda: declarations.take_turn(
                connection, DEFAULT_TENANT, "shop"
            ),
        }
        for key, take in taken.items():
            async with connection.transaction():
                await take()
                assert not await older.fetchval(f"select pg_try_advisory_lock({key})"), key
    finally:
        await connection.close()
        await older.close()


async def test_the_migration_waits_until_no_lock_with_an_old_key_is_held(before: str) -> None:
    """Servers of this version run meanwhile. Nobody holds an old key while somebody else takes the new one."""
    first, second, observer = [await asyncpg.connect(before) for _ in range(3)]
    try:
        turn = first.transaction()
        await turn.start()
        await tokens.take_turn(first)
        migrating = asyncio.create_task(migrate(before))

        async def waiting(count: int) -> bool:
            return bool(await observer.fetchval(WAITING) >= count)

        await until(lambda: waiting(1))
        later = second.transaction()
        await later.start()
        taking = asyncio.create_task(tokens.take_turn(second))
        await until(lambda: waiting(2))
        await turn.commit()
        await taking
        assert not await observer.fetchval(render("select pg_try_advisory_lock({{lock_key('tokens')}})"))
        assert await observer.fetchval("select pg_try_advisory_lock(hashtext('mainspring.tokens'))")
        await later.commit()
        assert "0043_lock_number" in await migrating
    finally:
        for connection in (first, second, observer):
            await connection.close()


async def test_several_that_migrate_at_once_across_the_change_of_the_lock_do_not_collide(
    before: str,
) -> None:
    done = await asyncio.gather(*(migrate(before) for _ in range(6)))
    assert sorted(name for names in done for name in names) == ["0043_lock_number"]
