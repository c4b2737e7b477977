from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from mainspring.roles.assembly import Assembly
from tests.logs.sockets import on_a_socket
from tests.operations.hand_worker import HandWorker
from tests.operations.tenants import Tenants, several_tenants


@pytest.fixture
async def served(assembly: Assembly) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the server on a real socket."""
    async with on_a_socket(assembly, watching=False) as client:
        yield client


@pytest.fixture
async def worker(api: httpx.AsyncClient) -> HandWorker:
    return HandWorker(api)


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made
