"""Tenants: who owns jobs, runs, workers and tokens."""

from __future__ import annotations

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load

_SQL = load("tenants")


async def insert(connection: Connection, name: str) -> Record | None:
    """A new tenant, or None when the name is taken. One at a time: see `tokens.take_turn`."""
    row: Record | None = await connection.fetchrow(_SQL["insert_tenant"], name)
    return row


async def get(connection: Connection, tenant: TenantId) -> Record | None:
    row: Record | None = await connection.fetchrow(_SQL["get_tenant"], tenant)
    return row


async def find(connection: Connection, name: str) -> TenantId | None:
    """The tenant of this name."""
    tenant: int | None = await connection.fetchval(_SQL["find_tenant"], name)
    return None if tenant is None else TenantId(tenant)


async def list_tenants(connection: Connection) -> list[Record]:
    rows: list[Record] = await connection.fetch(_SQL["list_tenants"])
    return rows
