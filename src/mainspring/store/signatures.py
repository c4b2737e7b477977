"""What tasks take, as their workers declare it, and which tasks are on offer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection, Record
from mainspring.store.queries import load

_SQL = load("signatures")


class Declared(msgspec.Struct, frozen=True):
    """A schema (JSON text) and the moment that tells it from the one before."""

    tenant: TenantId
    task: str
    registered_at: datetime
    schema: str


async def declare(connection: Connection, tenant: TenantId, schemas: Mapping[str, str], untyped: Sequence[str]) -> bool:
    """Note what a worker's tasks take, and that `untyped` take anything; answers whether that is news."""
    news: list[Record] = []
    if schemas:
        news += await connection.fetch(_SQL["declare"], tenant, list(schemas), list(schemas.values()))
    if untyped:
        news += await connection.fetch(_SQL["withdraw"], tenant, untyped)
    return bool(news)


async def versions(connection: Connection) -> dict[tuple[TenantId, str], datetime]:
    """The moment of each declaration."""
    rows = await connection.fetch(_SQL["versions"])
    return {(TenantId(row["tenant_id"]), row["task"]): row["registered_at"] for row in rows}


async def schemas(connection: Connection, wanted: Collection[tuple[TenantId, str]]) -> list[Declared]:
    rows = await connection.fetch(_SQL["schemas"], [key[0] for key in wanted], [key[1] for key in wanted])
    return [Declared(*row) for row in rows]


async def offered(connection: Connection, tenant: TenantId) -> list[Record]:
    """The tasks of live workers: task, queues, workers, schema."""
    rows: list[Record] = await connection.fetch(_SQL["offered"], tenant)
    return rows
