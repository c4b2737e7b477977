"""How much output each tenant has stored in PostgreSQL today."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load

_SQL = load("log_usage")


async def add(connection: Connection, new: Mapping[TenantId, int]) -> None:
    """Count these bytes of today."""
    status = await connection.execute(_SQL["add_usage"], list(new), list(new.values()))
    assert status == f"INSERT 0 {len(new)}", status


async def today(connection: Connection) -> tuple[date, dict[TenantId, int]]:
    """The day, and the bytes of each tenant."""
    rows = await connection.fetch(_SQL["usage_today"])
    return rows[0]["day"], {row["tenant_id"]: row["bytes"] for row in rows if row["tenant_id"] is not None}


async def prune(connection: Connection) -> None:
    await connection.execute(_SQL["prune_usage"])
