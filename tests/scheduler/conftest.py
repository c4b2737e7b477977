"""A node that holds every shard, and a lane."""

from __future__ import annotations

import asyncpg
import pytest

from mainspring.store.pool import Store
from tests.store.rows import a_lane

from .a_node import Node, a_node


@pytest.fixture
async def node(store: Store, connection: asyncpg.Connection) -> Node:
    return await a_node(store, connection)


@pytest.fixture
async def lane_id(connection: asyncpg.Connection) -> int:
    return await a_lane(connection)
