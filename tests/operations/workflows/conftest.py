from __future__ import annotations

import asyncpg
import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.operations.workflows.scene import Scene


@pytest.fixture
async def scene(assembly: Assembly, api: httpx.AsyncClient, connection: asyncpg.Connection) -> Scene:
    return Scene(assembly, api, connection)
