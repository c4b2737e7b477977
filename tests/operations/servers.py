"""A second server on the same database: its own pools, lanes, long polls and memory, like another process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from mainspring.kernel.clock import Clock, SystemClock
from mainspring.roles.assembly import assemble
from tests.conftest import TOKEN


@asynccontextmanager
async def another_server(
    database_url: str, *, clock: Clock | None = None, token: str = TOKEN
) -> AsyncIterator[httpx.AsyncClient]:
    assembly = await assemble(database_url, clock or SystemClock(), scheduler=False, chance=lambda: 0.5)
    transport = httpx.ASGITransport(app=assembly.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8701", headers=headers) as client:
            yield client
    finally:
        await assembly.close()
