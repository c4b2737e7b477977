"""A server whose channels may call this machine."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.notify_transport import NetworkTransport
from mainspring.store.database import Database
from tests.certificates import NOBODY, Authority
from tests.conftest import LONG_LEASES


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("notify-certificates"))


@pytest.fixture
async def assembly(where: Database) -> AsyncIterator[Assembly]:
    """As in tests/conftest.py, and its channels may call loopback."""
    transport = NetworkTransport(notify_guard("127.0.0.1"), seconds=60.0, tls=lambda: NOBODY)
    assembled = await assemble(
        where, SystemClock(), chance=lambda: 0.5, timing=LONG_LEASES, transport=transport,
        page_url="https://jobs.example.com/",
    )  # fmt: skip
    yield assembled
    await assembled.close()


def trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)
