"""Fixtures for tests of single statements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from mainspring.store import leases
from mainspring.store.pool import HOT_SETTINGS
from tests.conftest import TEMPLATE, Databases

from .fire_scene import Scene
from .rows import a_lane, now_of


@pytest.fixture(scope="session")
def kept_url(databases: Databases) -> Iterator[str]:
    """A migrated database that the tests with `undone` share. Nothing is ever committed in it."""
    with databases.a_shared_database(TEMPLATE) as url:
        yield url


@pytest.fixture
async def undone(kept_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection in a transaction that is rolled back after the test. It takes a tenth of the time of a database."""
    opened = await asyncpg.connect(kept_url)
    change = opened.transaction()
    await change.start()
    yield opened
    await change.rollback()
    await opened.close()


@pytest.fixture
async def scene(connection: asyncpg.Connection) -> Scene:
    made = Scene(connection, await a_lane(connection), await now_of(connection), {})
    made.held = await leases.take(connection, made.node, range(128), 600.0)
    return made


@pytest.fixture
async def others(database_url: str) -> AsyncIterator[list[asyncpg.Connection]]:
    opened = [await asyncpg.connect(database_url, server_settings=HOT_SETTINGS) for _ in range(2)]
    yield opened
    for connection in opened:
        await connection.close()
