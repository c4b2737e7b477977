"""Routines are replaced when their text changes. Grants stay, the public has none, and old code restores nothing."""

from __future__ import annotations

import asyncpg
import pytest

from mainspring.kernel.version import VERSION
from mainspring.store.ddl_transaction import DEFAULT_PATIENCE
from mainspring.store.migrate import migrate
from mainspring.store.routine_loader import load_routines, read_routines

pytestmark = pytest.mark.anyio

GREET = """
create or replace function mainspring.greet() returns text language sql as $$ select 'one' $$;
create or replace function mainspring.helper(a int) returns int language sql as $$ select a $$;
"""
GREET_BETTER = """
create or replace function mainspring.greet() returns text language sql as $$ select 'two' $$;
create or replace function mainspring.helper(a text) returns text language sql as $$ select a $$;
"""
PUBLIC = """
select p.oid::regprocedure::text from pg_proc p
where p.pronamespace = 'mainspring'::regnamespace and has_function_privilege('public', p.oid, 'execute')
"""


async def load(connection: asyncpg.Connection, text: str, version: str = VERSION) -> bool:
    return await load_routines(connection, DEFAULT_PATIENCE, text=text, version=version)


async def functions(connection: asyncpg.Connection) -> set[str]:
    rows = await connection.fetch(
        "select oid::regprocedure::text as f from pg_proc where pronamespace = 'mainspring'::regnamespace"
    )
    return {row["f"] for row in rows}


async def test_they_are_loaded_once_and_again_when_their_text_changes(
    database_url: str, connection: asyncpg.Connection
) -> None:
    assert await migrate(database_url) == []
    before = await connection.fetchrow("select version, hash from mainspring.routines")
    assert before["version"] == VERSION
    assert await load(connection, read_routines() + GREET)
    assert not await load(connection, read_routines() + GREET)
    assert await connection.fetchval("select mainspring.greet()") == "one"
    assert await load(connection, read_routines() + GREET_BETTER)
    assert await connection.fetchval("select mainspring.greet()") == "two"
    assert await migrate(database_url) == ["routines"]
    assert await connection.fetchrow("select version, hash from mainspring.routines") == before


async def test_what_is_no_longer_there_is_dropped_and_what_is_not_ours_is_left(
    database_url: str, connection: asyncpg.Connection
) -> None:
    ours = await functions(connection)
    await connection.execute("create function mainspring.of_the_operator() returns int language sql as 'select 1'")
    await load(connection, read_routines() + GREET)
    await load(connection, read_routines() + GREET_BETTER)
    assert await functions(connection) - ours == {
        "mainspring.greet()", "mainspring.helper(text)", "mainspring.of_the_operator()",
    }  # fmt: skip
    await migrate(database_url)
    assert await functions(connection) - ours == {"mainspring.of_the_operator()"}
    assert ours <= await functions(connection)


async def test_a_routine_that_something_of_the_users_needs_is_left(
    database_url: str, connection: asyncpg.Connection
) -> None:
    await load(connection, read_routines() + GREET)
    await connection.execute("create view greetings as select mainspring.greet() as greeting")
    assert await migrate(database_url) == ["routines"]
    assert await connection.fetchval("select greeting from greetings") == "one"


async def test_grants_of_the_operator_stay_and_the_public_is_kept_out(
    connection: asyncpg.Connection, superuser: asyncpg.Connection
) -> None:
    assert await connection.fetch(PUBLIC) == []
    await superuser.execute("create role granted_clerk")
    try:
        await connection.execute("grant execute on function mainspring.submit(jsonb) to granted_clerk")
        await load(connection, read_routines() + GREET)
        may = "select has_function_privilege('granted_clerk', $1, 'execute')"
        assert await connection.fetchval(may, "mainspring.submit(jsonb)")
        assert not await connection.fetchval(may, "mainspring.new_id()")
        assert not await connection.fetchval(may, "mainspring.greet()")
        assert await connection.fetch(PUBLIC) == []
    finally:
        await superuser.execute("drop owned by granted_clerk; drop role granted_clerk")


@pytest.mark.parametrize(("earlier", "later"), [("0.2.0", "0.3.0"), ("0.9.1", "0.10.0"), ("1.0.0", "1.0.1")])
async def test_an_older_version_does_not_put_its_own_back(
    connection: asyncpg.Connection, earlier: str, later: str
) -> None:
    await load(connection, GREET_BETTER, later)
    assert not await load(connection, GREET, earlier)
    assert await connection.fetchval("select mainspring.greet()") == "two"
    assert await load(connection, GREET, later)
    assert await connection.fetchval("select mainspring.greet()") == "one"


async def test_a_failure_leaves_the_routines_as_they_were(connection: asyncpg.Connection) -> None:
    before = await functions(connection)
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await load(connection, f"{GREET} create or replace nonsense;")
    assert await functions(connection) == before


async def test_they_can_be_replaced_while_a_transaction_that_submits_is_open(
    database_url: str, connection: asyncpg.Connection
) -> None:
    user = await asyncpg.connect(database_url)
    async with user.transaction():
        await user.fetchval("""select mainspring.submit('{"task": "noop"}')""")
        assert await load(connection, read_routines() + GREET)
        await user.fetchval("""select mainspring.submit('{"task": "noop"}')""")
    assert await connection.fetchval("select count(*) from mainspring.runs") == 2
    await user.close()
