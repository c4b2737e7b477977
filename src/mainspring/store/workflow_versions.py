"""The definitions of workflows, one for each version."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("workflow_versions")

VersionKey = tuple[str, int, int]  # workflow, generation, version


class SourceRow(msgspec.Struct, frozen=True):
    """The source of a definition. `steps` is the number of its steps. The texts are JSON, or None if they were not
    given."""

    steps: int
    steps_text: str
    queue_text: str | None
    priority_text: str | None


class SourceSize(msgspec.Struct, frozen=True):
    """How many steps a definition has, and how many bytes they have as they were given."""

    steps: int
    size: int


_size = RowQuery(SourceSize, _SQL["size_of_workflow_source"])
_source = RowQuery(SourceRow, _SQL["workflow_source"])


async def insert(
    connection: Connection,
    tenant: TenantId,
    key: VersionKey,
    *,
    steps: int,
    definition: str,
    source: str,
    created_by: str | None,
    calls: Sequence[str] = (),
    calls_of: UUID | None = None,
) -> None:
    """Store a version, in the transaction that stores the job. calls: the workflows that its steps run. calls_of: whose
    they may be."""
    await connection.execute(
        _SQL["insert_workflow_version"], tenant, *key, steps, definition, source, created_by, calls or None, calls_of
    )  # fmt: skip


async def definition(connection: Connection, tenant: TenantId, key: VersionKey) -> str | None:
    """The JSON of a definition."""
    text: str | None = await connection.fetchval(_SQL["workflow_definition"], tenant, *key)
    return text


async def source(connection: Connection, tenant: TenantId, key: VersionKey) -> SourceRow | None:
    """The source of a definition."""
    return await _source.first(connection, tenant, *key)


async def size_of_source(connection: Connection, tenant: TenantId, key: VersionKey) -> SourceSize | None:
    """The size of the source of a definition."""
    return await _size.first(connection, tenant, *key)


async def newest(connection: Connection, tenant: TenantId, workflow_id: str, generation: int) -> int:
    """The highest version of a workflow. 0 if it has none."""
    return await connection.fetchval(_SQL["newest_workflow_version"], tenant, workflow_id, generation) or 0


async def counts_of_steps(
    connection: Connection, tenant: TenantId, keys: Collection[VersionKey]
) -> dict[VersionKey, int]:
    """How many steps these definitions have."""
    if not keys:
        return {}
    ids, generations, versions = map(list, zip(*keys, strict=True))
    rows = await connection.fetch(_SQL["counts_of_steps"], tenant, ids, generations, versions)
    return {(row["workflow_id"], row["generation"], row["version"]): row["steps"] for row in rows}


async def prune(connection: Connection, days: float, batch: int = 1000) -> int:
    """Forget old versions that no run needs. Returns how many."""
    deleted = 0
    while True:
        done = int((await connection.execute(_SQL["prune_workflow_versions"], days, batch)).rpartition(" ")[2])
        deleted += done
        if done < batch:
            return deleted
