"""How long the output of runs with certain labels is kept."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("log_retention")


class RetentionRow(msgspec.Struct, frozen=True):
    """Version 0: nothing was ever set."""

    version: int = 0
    rules_text: str = "[]"
    updated_at: datetime | None = None
    updated_by: str | None = None


_get = RowQuery(RetentionRow, _SQL["get"])
_lock = RowQuery(RetentionRow, _SQL["lock"])


async def get(connection: Connection, tenant: TenantId) -> RetentionRow:
    return await _get.first(connection, tenant) or RetentionRow()


async def lock(connection: Connection, tenant: TenantId) -> RetentionRow:
    return await _lock.first(connection, tenant) or RetentionRow()


async def put(connection: Connection, tenant: TenantId, row: RetentionRow, rules: str, by: str) -> bool:
    """Store rules in the place of `row`. False if it has changed meanwhile."""
    if row.version == 0:
        return await connection.fetchval(_SQL["insert"], tenant, rules, by) is not None
    return await connection.fetchval(_SQL["change"], tenant, row.version, rules, by) is not None
