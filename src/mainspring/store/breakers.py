"""Circuit breakers of jobs and tasks, as they are shown."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("breakers")


class BreakerRow(msgspec.Struct, frozen=True):
    limit_id: int
    key_id: int
    name: str
    failures: int
    open_for: float
    failed: int
    opened_at: datetime | None
    next_at: datetime | None
    probe: UUID | None
    held: int


_list = RowQuery(BreakerRow, _SQL["list_breakers"])
_get = RowQuery(BreakerRow, _SQL["get_breaker"])


async def listed(connection: Connection, tenant: TenantId, limit: int) -> list[BreakerRow]:
    """Open ones first."""
    return await _list.fetch(connection, tenant, limit)


async def get(connection: Connection, tenant: TenantId, limit_id: int) -> BreakerRow | None:
    return await _get.first(connection, tenant, limit_id)
