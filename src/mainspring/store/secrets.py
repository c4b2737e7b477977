"""Secrets as they are stored: encrypted, with the data key of their tenant, which is encrypted too."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.wire.secrets import REFERENCE

_SQL = load("secrets")


class WrappedKey(msgspec.Struct, frozen=True):
    """The data key of a tenant, encrypted with the master key that `key_id` names."""

    tenant_id: TenantId
    key_id: str
    wrapped: bytes
    version: int


class SecretRow(msgspec.Struct, frozen=True):
    """A secret without its value. Empty `queues` and `tasks`: all."""

    tenant_id: TenantId
    name: str
    version: int
    queues: list[str]
    tasks: list[str]
    created_at: datetime
    changed_at: datetime
    changed_by: str
    external_text: str | None


class SecretScopeRow(msgspec.Struct, frozen=True):
    name: str
    queues: list[str]
    tasks: list[str]


class SealedSecret(msgspec.Struct, frozen=True):
    """An encrypted value, with what is needed to decrypt it."""

    tenant_id: TenantId
    name: str
    version: int
    sealed: bytes
    queues: list[str]
    tasks: list[str]
    key_id: str
    wrapped: bytes
    external_text: str | None
    tenant: str


_data_key = RowQuery(WrappedKey, _SQL["data_key"])
_data_keys = RowQuery(WrappedKey, _SQL["data_keys"])
_lock = RowQuery(SecretRow, _SQL["lock_secret"])
_get = RowQuery(SecretRow, _SQL["get_secret"])
_list = RowQuery(SecretRow, _SQL["list_secrets"])
_scopes = RowQuery(SecretScopeRow, _SQL["scopes_of_secrets"])
_sealed = RowQuery(SealedSecret, _SQL["sealed_secrets"])


async def data_key(connection: Connection, tenant: TenantId) -> WrappedKey | None:
    return await _data_key.first(connection, tenant)


async def insert_data_key(connection: Connection, tenant: TenantId, key_id: str, wrapped: bytes) -> None:
    """Store it, unless the tenant has one already."""
    await connection.execute(_SQL["insert_data_key"], tenant, key_id, wrapped)


async def data_keys(
    connection: Connection, other_than: str, after: TenantId, only: TenantId | None, limit: int
) -> list[WrappedKey]:
    """Data keys that are encrypted with another master key."""
    return await _data_keys.fetch(connection, other_than, after, only, limit)


async def rewrap(connection: Connection, key: WrappedKey, key_id: str, wrapped: bytes) -> bool:
    """Return False if it was encrypted anew meanwhile."""
    found = await connection.fetchval(_SQL["rewrap_data_key"], key.tenant_id, key.version, key_id, wrapped)
    return found is not None


async def lock(connection: Connection, tenant: TenantId, name: str) -> SecretRow | None:
    return await _lock.first(connection, tenant, name)


async def get(connection: Connection, tenant: TenantId, name: str) -> SecretRow | None:
    return await _get.first(connection, tenant, name)


async def page(connection: Connection, tenant: TenantId, after: str | None, limit: int) -> list[SecretRow]:
    return await _list.fetch(connection, tenant, after, limit)


async def count(connection: Connection, tenant: TenantId) -> int:
    found: int = await connection.fetchval(_SQL["count_secrets"], tenant)
    return found


async def names(connection: Connection, tenant: TenantId, limit: int) -> list[str]:
    return [row["name"] for row in await connection.fetch(_SQL["secret_names"], tenant, limit)]


async def insert(
    connection: Connection,
    tenant: TenantId,
    name: str,
    version: int,
    sealed: bytes,
    queues: Sequence[str],
    tasks: Sequence[str],
    changed_by: str,
    external: str | None,
) -> bool:
    """Return False if it exists by now."""
    found = await connection.fetchval(
        _SQL["insert_secret"], tenant, name, version, sealed, queues, tasks, changed_by, external
    )
    return found is not None


async def change(
    connection: Connection,
    row: SecretRow,
    version: int,
    sealed: bytes | None,
    queues: Sequence[str],
    tasks: Sequence[str],
    changed_by: str,
    external: str | None,
) -> bool:
    """Without `sealed` the value stays where it is. Return False if it has changed meanwhile."""
    found = await connection.fetchval(
        _SQL["change_secret"],
        row.tenant_id,
        row.name,
        row.version,
        version,
        sealed,
        queues,
        tasks,
        changed_by,
        external,
    )
    return found is not None


async def delete(connection: Connection, row: SecretRow) -> bool:
    return await connection.fetchval(_SQL["delete_secret"], row.tenant_id, row.name, row.version) is not None


async def scopes(connection: Connection, tenant: TenantId, wanted: Collection[str]) -> list[SecretScopeRow]:
    """Those of these secrets that exist."""
    return await _scopes.fetch(connection, tenant, list(wanted))


async def sealed(connection: Connection, wanted: Iterable[tuple[TenantId, str]]) -> list[SealedSecret]:
    """Those of these secrets that exist, encrypted."""
    pairs = list(wanted)
    return await _sealed.fetch(connection, [tenant for tenant, _ in pairs], [name for _, name in pairs])


async def users(connection: Connection, tenant: TenantId, name: str, limit: int) -> list[str]:
    """Jobs and workflows that name it."""
    quoted = f'"{re.escape(name)}"'
    pattern = rf'"\{REFERENCE}": ?{quoted}|"secrets": ?\[[^]]*{quoted}'
    return [row["job_id"] for row in await connection.fetch(_SQL["users_of_secret"], tenant, pattern, limit)]
