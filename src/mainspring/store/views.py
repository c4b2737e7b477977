"""Saved views of lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("views")


class ViewRow(msgspec.Struct, frozen=True):
    """A view. filter_text: an object of JSON."""

    tenant_id: TenantId
    name: str
    of_list: str
    version: int
    filter_text: str
    columns: list[str]
    created_at: datetime
    changed_at: datetime
    changed_by: str


_get = RowQuery(ViewRow, _SQL["get_view"])
_lock = RowQuery(ViewRow, _SQL["lock_view"])
_list = RowQuery(ViewRow, _SQL["list_views"])


async def get(connection: Connection, tenant: TenantId, name: str) -> ViewRow | None:
    return await _get.first(connection, tenant, name)


async def lock(connection: Connection, tenant: TenantId, name: str) -> ViewRow | None:
    return await _lock.first(connection, tenant, name)


async def page(
    connection: Connection, tenant: TenantId, after: str | None, of_list: str | None, limit: int
) -> list[ViewRow]:
    return await _list.fetch(connection, tenant, after, of_list, limit)


async def count(connection: Connection, tenant: TenantId) -> int:
    found: int = await connection.fetchval(_SQL["count_views"], tenant)
    return found


async def insert(
    connection: Connection, tenant: TenantId, name: str, of_list: str, given: str, columns: Sequence[str], by: str
) -> bool:
    """`given`: the filter as JSON. Return False if the view exists by now."""
    found = await connection.fetchval(_SQL["insert_view"], tenant, name, of_list, given, columns, by)
    return found is not None


async def change(
    connection: Connection, row: ViewRow, of_list: str, given: str, columns: Sequence[str], by: str
) -> bool:
    """Return False if the view has changed meanwhile."""
    found = await connection.fetchval(
        _SQL["change_view"], row.tenant_id, row.name, row.version, of_list, given, columns, by
    )
    return found is not None


async def delete(connection: Connection, row: ViewRow) -> bool:
    return await connection.fetchval(_SQL["delete_view"], row.tenant_id, row.name, row.version) is not None
