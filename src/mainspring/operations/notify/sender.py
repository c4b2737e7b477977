"""Sends messages. Each server does: the server that claims a message first sends it.

At least once: a claim is renewed during an attempt, and ends by itself. If a process dies after it has
sent a message and before it has noted that, another one sends the message again, with the same id. A channel has few
attempts under way at a time, so one that hangs delays only its own messages. So has a tenant: if all of its channels
hang, messages of other tenants are sent.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.notify.deliveries import delivery_of
from mainspring.domain.notify.states import MOST_ATTEMPTS, retry_delay
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.logs.log_service import LogService
from mainspring.operations.notify.channel_secrets import resolved_secrets
from mainspring.operations.notify.log_lines import with_log_lines
from mainspring.operations.notify.transport import NotSent, Transport
from mainspring.operations.notify.views import decode_message
from mainspring.store import channels, notifications
from mainspring.store.notifications import NotificationRow
from mainspring.store.pool import Store

log = get_logger("notify_sender")

AT_ONCE = 2  # attempts of one channel, by this process
LEASE = 15.0  # seconds; renewed each second of an attempt, which takes 35 at most
_OF_A_TENANT = 64  # attempts of one tenant, by this process
_MOST_AT_ONCE = 512
_settings = msgspec.json.Decoder(dict[str, Any]).decode


class NotificationSender:
    name = "notification_sender"

    def __init__(
        self,
        store: Store,
        clock: DatabaseClock,
        transport: Transport,
        *,
        logs: LogService | None = None,
        interval: float = 1.0,
        lease: float = LEASE,
    ) -> None:
        """`logs`: for channels that want lines of output."""
        self._logs = logs
        self.interval = interval
        self._store = store
        self._clock = clock
        self._transport = transport
        self._lease = lease
        self._sending: Counter[tuple[TenantId, str]] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_work: dict[UUID, NotificationRow] = {}

    async def run_once(self) -> int:
        """Begin to send what is due. Returns how many attempts have begun."""
        await self._renew()
        if len(self._tasks) >= _MOST_AT_ONCE:
            return 0
        async with self._store.reads.acquire() as connection:
            if not await notifications.has_pending(connection):
                return 0
        busy = [channel for channel, count in self._sending.items() if count > 0]
        of_tenants: Counter[TenantId] = Counter()
        for (tenant, _), count in self._sending.items():
            of_tenants[tenant] += count
        async with self._store.change() as connection:
            rows = await notifications.claim_due(connection, busy, of_tenants, AT_ONCE, _OF_A_TENANT, self._lease)
        for row in rows:
            self._sending[row.tenant_id, row.channel] += 1
            self._at_work[row.notification_id] = row
            task = asyncio.create_task(self._send(row), name=f"notification {row.notification_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(rows)

    async def _renew(self) -> None:
        """An attempt may take longer than a claim holds. A process that is killed renews nothing, so that another one
        soon sends the message."""
        if not self._at_work:
            return
        async with self._store.change() as connection:
            renewed = await notifications.renew(connection, list(self._at_work.values()), self._lease)
        self._at_work.update((row.notification_id, row) for row in renewed if row.notification_id in self._at_work)

    async def settle(self) -> None:
        """Wait for the attempts that are under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Stop. What is under way is sent again by another process."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._transport.close()

    async def _send(self, row: NotificationRow) -> None:
        try:
            error = await self._attempt(row)
            self._at_work.pop(row.notification_id, None)  # from here on the row says when it is tried again
            async with self._store.change() as connection:
                await self._note(connection, row, error)
        except Exception as failure:  # noqa: BLE001 - the claim ends by itself, and the message is sent again
            log.warning("a notification was not noted", notification=str(row.notification_id), error=repr(failure))
        finally:
            self._at_work.pop(row.notification_id, None)
            self._sending[row.tenant_id, row.channel] -= 1

    async def _attempt(self, row: NotificationRow) -> NotSent | None:
        async with self._store.reads.acquire() as connection:
            channel = await channels.get(connection, row.tenant_id, row.channel)
            secrets = await resolved_secrets(connection, row.tenant_id, row.channel)
        if channel is None:
            return NotSent("the channel was deleted", final=True)
        settings, message = _settings(channel.settings_text), decode_message(row.message_text)
        if self._logs is not None and (lines := settings.get("log_lines")):
            message = await with_log_lines(self._logs, row.tenant_id, message, lines)
        try:
            delivery = delivery_of(channel.kind, settings, secrets, message, int(self._clock.now().timestamp()))
            await self._transport.deliver(delivery)
        except NotSent as error:
            return error
        except KeyError as error:
            return NotSent(f"the channel has no {error.args[0]}", final=True)
        return None

    async def _note(self, connection: Any, row: NotificationRow, error: NotSent | None) -> None:
        if error is None:
            await notifications.end(connection, row, None)
            return
        text = str(error)
        if error.final or row.attempts % MOST_ATTEMPTS == 0:
            await notifications.end(connection, row, text)
            log.warning("a notification is given up", notification=str(row.notification_id), channel=row.channel,
                        tenant=row.tenant_id, error=text)  # fmt: skip
            return
        delay = max(error.after or 0.0, retry_delay(row.attempts % MOST_ATTEMPTS, random.random()))
        await notifications.retry(connection, row, delay, text)
