"""Tenants, which own jobs, runs, workers and tokens."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("tenants")


class TenantRow(msgspec.Struct, frozen=True):
    tenant_id: TenantId
    name: str
    created_at: datetime


_insert_tenant = RowQuery(TenantRow, _SQL["insert_tenant"])
_get_tenant = RowQuery(TenantRow, _SQL["get_tenant"])
_list_tenants = RowQuery(TenantRow, _SQL["list_tenants"])


async def insert(connection: Connection, name: str) -> TenantRow | None:
    """Create a tenant. Return None if the name is taken. Only one caller at a time: see `tokens.take_turn`."""
    return await _insert_tenant.first(connection, name)


async def get(connection: Connection, tenant: TenantId) -> TenantRow | None:
    return await _get_tenant.first(connection, tenant)


async def find(connection: Connection, name: str) -> TenantId | None:
    """The tenant of this name."""
    tenant: int | None = await connection.fetchval(_SQL["find_tenant"], name)
    return None if tenant is None else TenantId(tenant)


async def list_tenants(connection: Connection) -> list[TenantRow]:
    return await _list_tenants.fetch(connection)
