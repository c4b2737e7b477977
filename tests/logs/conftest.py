from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from mainspring.store.log_files import LogFiles, open_log_files
from tests.operations.hand_worker import HandWorker
from tests.operations.tenants import Tenants, several_tenants


@pytest.fixture(params=["folder", "postgresql"])
async def log_files(request: pytest.FixtureRequest, tmp_path: Path) -> LogFiles | None:
    """Where servers store logs: in a real folder, or in PostgreSQL."""
    if request.param == "postgresql":
        return None
    files = open_log_files(tmp_path / "logs")
    await files.check()
    return files


@pytest.fixture
async def assembly(database_url: str, log_files: LogFiles | None) -> AsyncIterator[Assembly]:
    put_together = await assemble(database_url, SystemClock(), chance=lambda: 0.5, log_files=log_files)
    yield put_together
    await put_together.close()


@pytest.fixture
async def worker(api: httpx.AsyncClient) -> HandWorker:
    return HandWorker(api)


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made
