"""Figures that rules compare with a bound."""

from __future__ import annotations

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("conditions")


class Rates(msgspec.Struct, frozen=True):
    """How many runs succeeded and failed, and how many attempts were retried."""

    succeeded: int
    failed: int
    retried: int


class OldestReady(msgspec.Struct, frozen=True):
    seconds: float
    queue: str
    task: str


_rates = RowQuery(Rates, _SQL["rates"])
_oldest_ready = RowQuery(OldestReady, _SQL["oldest_ready"])


async def rates(connection: Connection, tenant: TenantId, task: str | None, queue: str | None, over: float) -> Rates:
    [found] = await _rates.fetch(connection, tenant, task, queue, over)
    return found


async def dead_letters(connection: Connection, tenant: TenantId, task: str | None, queue: str | None, most: int) -> int:
    """How many there are, at most `most`."""
    return int(await connection.fetchval(_SQL["dead_letters"], tenant, task, queue, most))


async def oldest_ready(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, *, without_worker: bool
) -> OldestReady | None:
    """The run that has been ready for longest. without_worker: of those that no worker takes."""
    return await _oldest_ready.first(connection, tenant, task, queue, without_worker)
