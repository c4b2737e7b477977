"""A migration that adds a column changes the result of no statement of an older server.

PostgreSQL refuses a cached plan whose result changes, and within a transaction the statement fails once. So statements
name the columns that they return.
"""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from mainspring.store.queries import load
from tests.store.test_sql_files import QUERIES

pytestmark = pytest.mark.anyio

TABLES = """
select c.relname from pg_class c
where c.relnamespace = 'mainspring'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
"""


async def results(connection: asyncpg.Connection) -> dict[str, list[str]]:
    """The columns that each statement returns."""
    found = {}
    for query in QUERIES:
        statement = await connection.prepare(load(query.file)[query.name])
        found[query.label] = [attribute.name for attribute in statement.get_attributes()]
    return found


async def test_no_statement_returns_a_column_that_it_does_not_name(connection: asyncpg.Connection) -> None:
    before = await results(connection)
    for row in await connection.fetch(TABLES):
        await connection.execute(f"alter table mainspring.{row['relname']} add column of_tomorrow int")
    await connection.reload_schema_state()
    after = await results(connection)
    assert {label for label in before if before[label] != after[label]} == set()


async def test_a_request_right_after_a_migration_is_answered_or_asked_to_come_again(
    api: httpx.AsyncClient, connection: asyncpg.Connection
) -> None:
    await api.post("/v1/jobs", json={"job_id": "j", "task": "noop", "schedule": "manual"})
    assert (await api.patch("/v1/jobs/j", json={"name": "one"})).status_code == 200
    await connection.execute("alter table mainspring.jobs add column of_tomorrow int")
    answer = await api.patch("/v1/jobs/j", json={"name": "two"})
    assert answer.status_code == 200 or answer.json()["code"] == "busy"
    assert (await api.patch("/v1/jobs/j", json={"name": "two"})).status_code == 200
