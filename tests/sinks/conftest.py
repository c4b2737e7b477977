"""A server whose sinks may call this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.kernel.clock import SystemClock
from mainspring.roles.assembly import Assembly, assemble
from mainspring.roles.notify_guard import notify_guard
from mainspring.roles.notify_transport import NetworkTransport
from mainspring.roles.sink_producers import NetworkProducers
from mainspring.store.database import Database
from tests.conftest import LONG_LEASES


@pytest.fixture
async def assembly(where: Database) -> AsyncIterator[Assembly]:
    """As in tests/conftest.py, and its sinks may call loopback."""
    guard = notify_guard("127.0.0.1")
    transport = NetworkTransport(guard)
    assembled = await assemble(
        where, SystemClock(), chance=lambda: 0.5, timing=LONG_LEASES, transport=transport,
        producers=NetworkProducers(guard, transport),
    )  # fmt: skip
    yield assembled
    await assembled.close()
