"""A stream tells of what happens at other servers, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from tests.conftest import TOKEN
from tests.live.scene import watching
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.waiting import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def listening(*servers: Assembly) -> AsyncIterator[None]:
    """The servers hear each other."""
    tasks = [
        asyncio.create_task(part())
        for one in servers
        for part in (one.signals.listen_forever, one.signals.send_forever)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def there(database_url: str) -> AsyncIterator[Assembly]:
    put_together = await assemble(database_url, SystemClock(), scheduler=False, chance=lambda: 0.5)
    yield put_together
    await put_together.close()


async def test_changes_at_another_server_are_told(
    assembly: Assembly, there: Assembly, served: httpx.AsyncClient
) -> None:
    transport = httpx.ASGITransport(app=there.app)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    elsewhere = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers)
    changes = there.services.streams.changes

    async def is_asked() -> bool:
        assembly.services.streams.changes._ask_at = float("-inf")  # it has asked before anybody listened
        await assembly.services.streams.run_once()
        return changes.wanted

    async with elsewhere, listening(assembly, there), watching(assembly, served, "jobs", "runs") as watcher:
        await until(is_asked)
        await elsewhere.post("/v1/jobs", json={"job_id": "nightly", "task": "noop", "schedule": "@daily"})
        await watcher.told("jobs", there.services.streams.run_once)
        worker = HandWorker(elsewhere)
        await elsewhere.post("/v1/jobs", json={"task": "noop"})
        await watcher.told("runs", there.services.streams.run_once)
        [order] = await worker.claim()
        await watcher.told("runs", there.services.streams.run_once)
        await worker.report(outcome(order))
        await watcher.told("runs", there.services.streams.run_once)
