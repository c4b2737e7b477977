"""Messages about notifications: what was told to whom."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from mainspring.wire.states import words

NotificationStateWord = Annotated[str, words("NotificationState", "PENDING", "SENT", "DEAD")]


class MessageItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a notification tells, as it is stored and shown. subject: what it is about, in words. path: of the
    page about it. reminder: it was told before."""

    event: str
    subject: str
    since: datetime
    count: int = 1
    reason: str | None = None
    job_id: str | None = None
    run_id: str | None = None
    task: str | None = None
    queue: str | None = None
    path: str | None = None
    reminder: bool = False


class NotificationView(msgspec.Struct, omit_defaults=True):
    """A message to one channel. rule: None for rules of jobs and for tests. items: the first things that it tells;
    more: how many others there are. attempts: since it was last asked to be sent.
    next_at: when it is sent, if it is PENDING. error: why the last attempt failed."""

    notification_id: str
    channel: str
    status: NotificationStateWord
    title: str
    created_at: datetime
    attempts: int
    items: list[MessageItem]
    rule: str | None = None
    more: int = 0
    next_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None
    escalated: bool = False
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None


class NotificationList(msgspec.Struct):
    notifications: list[NotificationView]
    next: str | None = None
