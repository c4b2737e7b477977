"""Messages: those to send, those that were sent, and those that were given up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("notifications")


class NotificationRow(msgspec.Struct, frozen=True):
    """A message to one channel. state: of `MessageState`. attempts: also the fence of who sends it."""

    notification_id: UUID
    tenant_id: TenantId
    channel: str
    rule: str | None
    state: int
    attempts: int
    next_at: datetime
    created_at: datetime
    ended_at: datetime | None
    error: str | None
    title: str
    message_text: str
    acknowledged_at: datetime | None
    acknowledged_by: str | None


_renew = RowQuery(NotificationRow, _SQL["renew_notifications"])
_claim_due = RowQuery(NotificationRow, _SQL["claim_due"])
_get = RowQuery(NotificationRow, _SQL["get_notification"])
_list = RowQuery(NotificationRow, _SQL["list_notifications"])
_send_again = RowQuery(NotificationRow, _SQL["send_again"])
_acknowledge = RowQuery(NotificationRow, _SQL["acknowledge"])


async def insert(
    connection: Connection,
    notification_id: UUID,
    tenant: TenantId,
    channel: str,
    rule: str | None,
    title: str,
    message: str,
) -> None:
    await connection.execute(_SQL["insert_notification"], notification_id, tenant, channel, rule, title, message)


async def insert_ended(
    connection: Connection,
    notification_id: UUID,
    tenant: TenantId,
    channel: str,
    error: str | None,
    title: str,
    message: str,
) -> None:
    await connection.execute(_SQL["insert_ended"], notification_id, tenant, channel, error, title, message)


async def has_pending(connection: Connection) -> bool:
    found: bool = await connection.fetchval(_SQL["has_pending"])
    return found


async def claim_due(
    connection: Connection,
    busy: Collection[tuple[TenantId, str]],
    under_way: Mapping[TenantId, int],
    of_channel: int,
    of_tenant: int,
    lease: float,
) -> list[NotificationRow]:
    """Due messages: at most `of_channel` of a channel, none of the busy ones, and as many of a tenant as `of_tenant`
    leaves with those that are under way. They are the caller's for `lease` seconds."""
    return await _claim_due.fetch(
        connection,
        [tenant for tenant, _ in busy],
        [name for _, name in busy],
        of_channel,
        lease,
        of_tenant,
        list(under_way),
        list(under_way.values()),
    )


async def renew(connection: Connection, rows: Collection[NotificationRow], lease: float) -> list[NotificationRow]:
    """The caller still sends these. Returns those that are still as they were, with their new `next_at`."""
    ids, attempts = [row.notification_id for row in rows], [row.attempts for row in rows]
    return await _renew.fetch(connection, ids, attempts, [row.next_at for row in rows], lease)


async def end(connection: Connection, row: NotificationRow, error: str | None) -> bool:
    """It was sent, or is given up because of `error`. False if another process sends it now."""
    done: str = await connection.execute(
        _SQL["end_notification"], row.notification_id, row.attempts, error is None, error
    )
    return done == "UPDATE 1"


async def retry(connection: Connection, row: NotificationRow, delay: float, error: str) -> bool:
    done: str = await connection.execute(_SQL["retry_notification"], row.notification_id, row.attempts, delay, error)
    return done == "UPDATE 1"


async def give_up_channel(connection: Connection, tenant: TenantId, channel: str, error: str) -> None:
    await connection.execute(_SQL["give_up_channel"], tenant, channel, error)


async def get(connection: Connection, tenant: TenantId, notification_id: UUID) -> NotificationRow | None:
    return await _get.first(connection, tenant, notification_id)


async def page(
    connection: Connection,
    tenant: TenantId,
    before: UUID | None,
    state: int | None,
    channel: str | None,
    rule: str | None,
    limit: int,
) -> list[NotificationRow]:
    return await _list.fetch(connection, tenant, before, state, channel, rule, limit)


async def send_again(connection: Connection, tenant: TenantId, notification_id: UUID) -> NotificationRow | None:
    """None if it has not ended."""
    return await _send_again.first(connection, tenant, notification_id)


async def acknowledge(
    connection: Connection, tenant: TenantId, notification_id: UUID, by: str
) -> NotificationRow | None:
    """None if it was acknowledged before."""
    return await _acknowledge.first(connection, tenant, notification_id, by)


async def prune(connection: Connection, seconds: float) -> None:
    await connection.execute(_SQL["prune_notifications"], seconds)
