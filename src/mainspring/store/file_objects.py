"""What job files own: jobs, workflows, calendars, limits and other kinds, each with the name of its owner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("file_objects")


class FileObjectRow(msgspec.Struct, frozen=True):
    """version: that of the object after it was applied last."""

    tenant_id: TenantId
    kind: str
    object_id: str
    owner: str
    source: str | None
    version: int
    generation: int
    applied_at: datetime
    applied_by: str


_get = RowQuery(FileObjectRow, _SQL["file_object"])
_of_owner = RowQuery(FileObjectRow, _SQL["objects_of_owner"])
_of_kind = RowQuery(FileObjectRow, _SQL["objects_of_kind"])


async def take_turn(connection: Connection, tenant: TenantId) -> None:
    """Wait until no other transaction applies files of this tenant."""
    await connection.execute(_SQL["take_turn"], tenant)


async def get(connection: Connection, tenant: TenantId, kind: str, object_id: str) -> FileObjectRow | None:
    return await _get.first(connection, tenant, kind, object_id)


async def of_owner(connection: Connection, tenant: TenantId, owner: str) -> list[FileObjectRow]:
    """All that the owner has, by kind and id."""
    return await _of_owner.fetch(connection, tenant, owner)


async def of_kind(connection: Connection, tenant: TenantId, kind: str, ids: Sequence[str]) -> dict[str, FileObjectRow]:
    """Which of these objects have an owner."""
    return {row.object_id: row for row in await _of_kind.fetch(connection, tenant, kind, list(ids))}


async def put(
    connection: Connection,
    tenant: TenantId,
    kind: str,
    object_id: str,
    *,
    owner: str,
    source: str | None,
    version: int,
    generation: int,
    by: str,
) -> None:
    """Note who owns the object. Take the turn first."""
    await connection.execute(_SQL["put_file_object"], tenant, kind, object_id, owner, source, version, generation, by)


async def forget(connection: Connection, tenant: TenantId, kind: str, object_id: str, owner: str) -> None:
    """The object is gone. Take the turn first."""
    await connection.execute(_SQL["forget_file_object"], tenant, kind, object_id, owner)


async def live_runs(connection: Connection, tenant: TenantId, job_id: str, limit: int) -> list[str]:
    """The ids of live runs of a job."""
    return [run_id for (run_id,) in await connection.fetch(_SQL["live_runs_of_job"], tenant, job_id, limit)]
