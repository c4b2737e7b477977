"""The history of messages: read, send again, acknowledge."""

from __future__ import annotations

from uuid import UUID

from mainspring.domain.errors import Conflict, NotFound
from mainspring.domain.notify.channel_kinds import no_channel
from mainspring.domain.notify.states import MessageState
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.lookup import states_in
from mainspring.operations.notify.views import decode_message, notification_view
from mainspring.operations.paging.cursors import bad_cursor, decode_cursor, encode_cursor
from mainspring.store import alerts, channels, notifications
from mainspring.store.notifications import NotificationRow
from mainspring.store.pool import Store
from mainspring.wire.notifications import NotificationList, NotificationView


class NotificationHistory:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def notifications(
        self, caller: Caller, cursor: str | None, limit: int, status: str | None, channel: str | None, rule: str | None
    ) -> NotificationList:
        """The newest messages first."""
        before = None
        if cursor is not None:
            try:
                before = UUID(decode_cursor(cursor))
            except ValueError:
                raise bad_cursor() from None
        states = (
            None
            if status is None
            else states_in([status], MessageState, "a notification", list(MessageState.__members__))
        )
        state = None if states is None else states[0]
        async with self._store.read() as connection:
            rows = await notifications.page(connection, caller.tenant, before, state, channel, rule, limit + 1)
        following = encode_cursor(str(rows[limit - 1].notification_id)) if len(rows) > limit else None
        return NotificationList([notification_view(row) for row in rows[:limit]], following)

    async def notification(self, caller: Caller, notification_id: str) -> NotificationView:
        return notification_view(await self._row(caller, notification_id))

    async def send_again(self, caller: Caller, notification_id: str) -> NotificationView:
        """Send a message again that was sent or given up. It keeps its id."""
        row = await self._row(caller, notification_id)
        async with self._store.change() as connection:
            if not await channels.share(connection, caller.tenant, [row.channel]):
                raise no_channel(row.channel)
            changed = await notifications.send_again(connection, caller.tenant, row.notification_id)
            if changed is not None:
                await record(connection, caller, "notification", notification_id, None, {"channel": row.channel})
        if changed is None:
            raise Conflict(
                f"the notification {notification_id} is still being sent", code="not_ended", hint="wait until it ends"
            )
        return notification_view(changed)

    async def acknowledge(self, caller: Caller, notification_id: str) -> NotificationView:
        """The caller takes care of it: no reminder and no escalation, until it has recovered and happens again."""
        row = await self._row(caller, notification_id)
        message = decode_message(row.message_text)
        async with self._store.change() as connection:
            changed = await notifications.acknowledge(connection, caller.tenant, row.notification_id, caller.name)
            if changed is not None:
                await alerts.acknowledge(connection, caller.tenant, message.group, row.created_at, caller.name)
                await record(connection, caller, "notification", notification_id, None, {"acknowledged": True})
        return notification_view(changed or await self._row(caller, notification_id))

    async def _row(self, caller: Caller, notification_id: str) -> NotificationRow:
        try:
            wanted = UUID(notification_id)
        except ValueError:
            raise _unknown(notification_id) from None
        async with self._store.read() as connection:
            row = await notifications.get(connection, caller.tenant, wanted)
        if row is None:
            raise _unknown(notification_id)
        return row


def _unknown(notification_id: str) -> NotFound:
    return NotFound(f"there is no notification {notification_id!r}", hint="see GET /v1/notifications")
