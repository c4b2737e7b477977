"""Fixtures for the pains: a scheduler node that tests drive, a lane, and a rescuer that is ready to rescue."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from mainspring.store.pool import HOT_SETTINGS, Store
from tests.scheduler.a_node import Node, a_node
from tests.store.rows import a_lane
from tests.upkeep.test_run_rescuer import Watch


@pytest.fixture
async def node(store: Store, connection: asyncpg.Connection) -> Node:
    return await a_node(store, connection)


@pytest.fixture
async def lane_id(connection: asyncpg.Connection) -> int:
    return await a_lane(connection)


@pytest.fixture
async def watch(store: Store) -> Watch:
    made = Watch(store)
    await made.settle_in()
    return made


@pytest.fixture
async def hot(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection with the settings of the hot pool."""
    opened = await asyncpg.connect(database_url, server_settings=HOT_SETTINGS)
    yield opened
    await opened.close()
