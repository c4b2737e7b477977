"""The payload schemas of tasks, as their workers declare them, and the tasks that workers offer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import PageRow, RowQuery, size_of

_SQL = load("signatures")


class Declared(msgspec.Struct, frozen=True):
    """A schema (JSON text) and its time, which differs from that of the schema before."""

    tenant_id: TenantId
    task: str
    registered_at: datetime
    schema_text: str


class OfferedTask(PageRow, frozen=True):
    """A task of live workers: their queues, their number, and the schema of its payload (JSON text), unless it is left
    out."""

    task: str
    queues: list[str]
    workers: int
    schema_text: str | None
    left_out: bool

    @property
    def weight(self) -> int:
        return size_of(self.task, *(self.queues or ()))


_schemas = RowQuery(Declared, _SQL["schemas"])
_offered = RowQuery(OfferedTask, _SQL["offered"])


async def differs(connection: Connection, tenant: TenantId, schemas: Mapping[str, str], untyped: Sequence[str]) -> bool:
    """Whether `declare` would change something."""
    return bool(
        await connection.fetchval(_SQL["differs"], tenant, list(schemas), list(schemas.values()), list(untyped))
    )


async def declare(connection: Connection, tenant: TenantId, schemas: Mapping[str, str], untyped: Sequence[str]) -> bool:
    """Store the schemas of a worker's tasks. `untyped` tasks take any payload. Return whether anything changed."""
    news = False
    if schemas:
        news |= bool(await connection.fetch(_SQL["declare"], tenant, list(schemas), list(schemas.values())))
    if untyped:
        news |= bool(await connection.fetch(_SQL["withdraw"], tenant, untyped))
    return news


async def drop_excess(connection: Connection, tenant: TenantId, most: int, most_bytes: int) -> list[str]:
    """Delete the oldest signatures of a tenant that has too many. Return their tasks."""
    return [row["task"] for row in await connection.fetch(_SQL["drop_excess"], tenant, most, most_bytes)]


async def versions(connection: Connection) -> dict[tuple[TenantId, str], datetime]:
    """The time of each declaration."""
    rows = await connection.fetch(_SQL["versions"])
    return {(TenantId(tenant), task): registered_at for tenant, task, registered_at in rows}


async def schemas(connection: Connection, wanted: Collection[tuple[TenantId, str]]) -> list[Declared]:
    return await _schemas.fetch(connection, [key[0] for key in wanted], [key[1] for key in wanted])


async def offered(connection: Connection, tenant: TenantId, most_bytes: int, limit: int) -> list[OfferedTask]:
    """The offered tasks by name, with at most `most_bytes` of schemas in all."""
    return await pages.read(connection, _offered, tenant, most_bytes, limit)
