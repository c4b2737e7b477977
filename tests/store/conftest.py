"""Fixtures for the tests of the fire."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from mainspring.store import leases
from mainspring.store.pool import HOT_SETTINGS

from .fire_scene import Scene
from .rows import a_lane, now_of


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
