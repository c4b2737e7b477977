"""Channels. Their secrets are in a table of their own, which only `secrets` reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("channels")
_secrets = msgspec.json.Decoder(dict[str, str]).decode


class ChannelRow(msgspec.Struct, frozen=True):
    """A channel. secret_names: the secret fields that have a value."""

    tenant_id: TenantId
    name: str
    kind: str
    version: int
    settings_text: str
    created_at: datetime
    updated_at: datetime
    updated_by: str
    secret_names: list[str]


_get = RowQuery(ChannelRow, _SQL["get_channel"])
_list = RowQuery(ChannelRow, _SQL["list_channels"])
_lock = RowQuery(ChannelRow, _SQL["lock_channel"])


async def get(connection: Connection, tenant: TenantId, name: str) -> ChannelRow | None:
    return await _get.first(connection, tenant, name)


async def page(connection: Connection, tenant: TenantId, after: str | None, limit: int) -> list[ChannelRow]:
    return await _list.fetch(connection, tenant, after, limit)


async def lock(connection: Connection, tenant: TenantId, name: str) -> ChannelRow | None:
    return await _lock.first(connection, tenant, name)


async def names(connection: Connection, tenant: TenantId) -> list[str]:
    return [name for (name,) in await connection.fetch(_SQL["channel_names"], tenant)]


async def share(connection: Connection, tenant: TenantId, wanted: Iterable[str]) -> set[str]:
    """Those of the channels that exist. They are not deleted until the transaction ends."""
    return {name for (name,) in await connection.fetch(_SQL["share_channels"], tenant, sorted(set(wanted)))}


async def insert(
    connection: Connection, tenant: TenantId, name: str, kind: str, settings: str, secrets: str, by: str
) -> bool:
    """Create a channel. False if it exists."""
    version = await connection.fetchval(_SQL["insert_channel"], tenant, name, kind, settings, by)
    if version is None:
        return False
    await connection.execute(_SQL["put_secrets"], tenant, name, secrets)
    await connection.execute(_SQL["begin_watching"])
    return True


async def change(connection: Connection, row: ChannelRow, kind: str, settings: str, secrets: str, by: str) -> bool:
    """Change a channel that the caller has locked. False if it is gone."""
    version = await connection.fetchval(
        _SQL["change_channel"], row.tenant_id, row.name, row.version, kind, settings, by
    )
    if version is None:
        return False
    await connection.execute(_SQL["put_secrets"], row.tenant_id, row.name, secrets)
    return True


async def delete(connection: Connection, row: ChannelRow) -> bool:
    return await connection.fetchval(_SQL["delete_channel"], row.tenant_id, row.name, row.version) is not None


async def secrets(connection: Connection, tenant: TenantId, name: str) -> dict[str, str]:
    """The secret fields. Only what sends messages, and what stores a channel again, reads them."""
    text: str | None = await connection.fetchval(_SQL["secrets_of"], tenant, name)
    return {} if text is None else _secrets(text)


async def rules_of(connection: Connection, tenant: TenantId, name: str, limit: int) -> list[str]:
    """The rules that use a channel."""
    return [rule for (rule,) in await connection.fetch(_SQL["rules_of_channel"], tenant, name, limit)]
