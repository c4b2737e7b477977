from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import TOKEN
from tests.processes.cluster import Cluster


@pytest.fixture
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="ms-cluster-", dir="/tmp"))
    started = Cluster(database_url, TOKEN, folder)
    try:
        yield started
    finally:
        await started.close()
        shutil.rmtree(folder, ignore_errors=True)
