"""Channels and notifications as clients see them."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.domain.notify.messages import Message
from mainspring.domain.notify.states import MessageState, attempts_of_series
from mainspring.store.channels import ChannelRow
from mainspring.store.notifications import NotificationRow
from mainspring.wire.channels import ChannelView
from mainspring.wire.notifications import NotificationView

_settings = msgspec.json.Decoder(dict[str, Any]).decode
decode_message = msgspec.json.Decoder(Message).decode


def channel_view(row: ChannelRow) -> ChannelView:
    """Only the settings that may be shown: the row has no others."""
    settings = {name: value for name, value in _settings(row.settings_text).items() if name != "webhook_url"}
    return ChannelView(
        name=row.name, kind=row.kind, version=row.version, created_at=row.created_at, updated_at=row.updated_at,
        updated_by=row.updated_by, secrets=list(row.secret_names), **settings,
    )  # fmt: skip


def notification_view(row: NotificationRow) -> NotificationView:
    message = decode_message(row.message_text)
    pending = row.state == MessageState.PENDING
    return NotificationView(
        notification_id=str(row.notification_id),
        channel=row.channel,
        status=MessageState(row.state).name,
        title=row.title,
        created_at=row.created_at,
        attempts=attempts_of_series(row.attempts, pending=pending),
        items=message.items,
        rule=row.rule,
        more=message.more,
        next_at=row.next_at if pending else None,
        ended_at=row.ended_at,
        error=row.error,
        escalated=message.escalated,
        acknowledged_at=row.acknowledged_at,
        acknowledged_by=row.acknowledged_by,
    )
