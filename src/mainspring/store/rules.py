"""Rules: who is told of what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("rules")


class RuleRow(msgspec.Struct, frozen=True):
    tenant_id: TenantId
    name: str
    version: int
    rule_text: str
    muted_until: datetime | None
    created_at: datetime
    updated_at: datetime
    updated_by: str


_get = RowQuery(RuleRow, _SQL["get_rule"])
_list = RowQuery(RuleRow, _SQL["list_rules"])
_all = RowQuery(RuleRow, _SQL["all_rules"])
_lock = RowQuery(RuleRow, _SQL["lock_rule"])


async def get(connection: Connection, tenant: TenantId, name: str) -> RuleRow | None:
    return await _get.first(connection, tenant, name)


async def page(connection: Connection, tenant: TenantId, after: str | None, limit: int) -> list[RuleRow]:
    return await _list.fetch(connection, tenant, after, limit)


async def all_rules(connection: Connection) -> list[RuleRow]:
    """Of all tenants, in no order."""
    return await _all.fetch(connection)


async def lock(connection: Connection, tenant: TenantId, name: str) -> RuleRow | None:
    return await _lock.first(connection, tenant, name)


async def count(connection: Connection, tenant: TenantId) -> int:
    return int(await connection.fetchval(_SQL["count_rules"], tenant))


async def insert(
    connection: Connection,
    tenant: TenantId,
    name: str,
    events: Sequence[str],
    channels: Sequence[str],
    rule: str,
    by: str,
) -> bool:
    """Create a rule. False if it exists."""
    return await connection.fetchval(_SQL["insert_rule"], tenant, name, events, channels, rule, by) is not None


async def change(
    connection: Connection, row: RuleRow, events: Sequence[str], channels: Sequence[str], rule: str, by: str
) -> bool:
    """Change a rule that the caller has locked. False if it is gone."""
    return (
        await connection.fetchval(_SQL["change_rule"], row.tenant_id, row.name, row.version, events, channels, rule, by)
        is not None
    )


async def mute(connection: Connection, row: RuleRow, seconds: float | None, by: str) -> bool:
    return await connection.fetchval(_SQL["mute_rule"], row.tenant_id, row.name, row.version, seconds, by) is not None


async def delete(connection: Connection, row: RuleRow) -> bool:
    return await connection.fetchval(_SQL["delete_rule"], row.tenant_id, row.name, row.version) is not None
