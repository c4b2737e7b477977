"""Channels: create, change, delete, read and test."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.domain.errors import Conflict, Forbidden, InvalidInput
from mainspring.domain.notify.channel_kinds import (
    APPRISE,
    KINDS,
    SECRET_FIELDS,
    check_channel,
    check_name,
    divided,
    no_channel,
)
from mainspring.domain.notify.deliveries import delivery_of
from mainspring.domain.notify.messages import TEST, Message, title_of
from mainspring.domain.tags import changed_meanwhile, check_named_version
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.notify.channel_secrets import resolved_secrets
from mainspring.operations.notify.transport import NotSent, Transport
from mainspring.operations.notify.views import channel_view
from mainspring.operations.paging.cursors import cursor_after_names, name_cursor
from mainspring.store import channels, notifications, tenants
from mainspring.store.channels import ChannelRow
from mainspring.store.pool import Connection, Store
from mainspring.wire.channels import ChannelList, ChannelRequest, ChannelTested, ChannelView
from mainspring.wire.notifications import MessageItem

log = get_logger("channels")

MOST_CHANNELS = 100
_SHOWN_RULES = 10
_settings = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class ChannelAdmin:
    """url: of the page, for links in messages. None: messages have paths."""

    def __init__(
        self, store: Store, clock: Clock, database_clock: DatabaseClock, transport: Transport, url: str | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._database_clock = database_clock
        self._transport = transport
        self._url = url

    async def channels(self, caller: Caller, cursor: str | None, limit: int) -> ChannelList:
        """The channels of the tenant, by name."""
        after = name_cursor(cursor)
        async with self._store.read() as connection:
            rows = await channels.page(connection, caller.tenant, after, limit + 1)
        following = cursor_after_names(rows, limit)
        return ChannelList([channel_view(row) for row in rows[:limit]], following)

    async def channel(self, caller: Caller, name: str) -> ChannelView:
        return channel_view(await self._row(caller, name))

    async def put(self, caller: Caller, name: str, request: ChannelRequest, if_version: int | None) -> bool:
        """Create or change a channel. Returns whether it was created. A secret that is left out keeps its value, if
        the kind and the place stay the same: it must not be sent to another place."""
        check_name(name, "channel")
        if request.kind == APPRISE and request.apprise_url is not None and caller.is_instance_admin:
            check_channel(request)
            self._transport.check_apprise(request.apprise_url)
        async with self._store.change() as connection:
            return await put_channel(connection, caller, name, request, if_version)

    async def delete(self, caller: Caller, name: str, if_version: int | None) -> ChannelView:
        """Delete a channel that no rule uses. Messages that wait for it are given up."""
        async with self._store.change() as connection:
            return channel_view(await delete_channel(connection, caller, name, if_version))

    async def test(self, caller: Caller, name: str) -> ChannelTested:
        """Send a test message now, once, and say what became of it."""
        row = await self._row(caller, name)
        async with self._store.read() as connection:
            secrets = await resolved_secrets(connection, caller.tenant, name)
            tenant = await tenants.get(connection, caller.tenant)
        message_id, now = uuid7(), self._database_clock.now()
        item = MessageItem(TEST, f"channel {name}", now, reason=f"a test by {caller.name}", path="/ui/notifications")
        message = Message(str(message_id), tenant.name if tenant else "", f"test {name}", now, [item], url=self._url)
        began, error, status = self._clock.monotonic(), None, None
        try:
            settings = _settings(row.settings_text)
            delivery = delivery_of(row.kind, settings, secrets, message, int(now.timestamp()))
            status = (await self._transport.deliver(delivery)).status
        except NotSent as failure:
            error, status = str(failure), failure.status
        seconds = round(self._clock.monotonic() - began, 3)
        async with self._store.change() as connection:
            text = _encode(message).decode()
            await notifications.insert_ended(
                connection, message_id, caller.tenant, name, error, title_of(message), text
            )
        return ChannelTested(name, str(message_id), error is None, seconds, error, status)

    async def _row(self, caller: Caller, name: str) -> ChannelRow:
        async with self._store.read() as connection:
            row = await channels.get(connection, caller.tenant, name)
        if row is None:
            raise no_channel(name)
        return row


class WantedChannel(msgspec.Struct, frozen=True):
    """What a request makes of a channel: the settings that may be shown, and the secret fields before and after."""

    public: dict[str, Any]
    known: dict[str, str]
    sealed: dict[str, str]

    def is_as_stored(self, row: ChannelRow, kind: str) -> bool:
        return (row.kind, _settings(row.settings_text), self.known) == (kind, self.public, self.sealed)


async def wanted_channel(
    connection: Connection, tenant: TenantId, request: ChannelRequest, row: ChannelRow | None
) -> WantedChannel:
    """`row`: the channel as it is. Raises InvalidInput."""
    known: dict[str, str] = {}
    if row is not None and row.kind == request.kind:
        known = await channels.secrets(connection, tenant, row.name)
    kept: dict[str, str] = {}
    if row is not None and _place(_settings(row.settings_text)) == _place(divided(request)[0]):
        kept = {field: value for field, value in known.items() if _is_kept(request, field)}
    check_channel(request, frozenset(kept))
    public, secrets = divided(request)
    return WantedChannel(public, known, {**kept, **secrets})


async def put_channel(
    connection: Connection, caller: Caller, name: str, request: ChannelRequest, if_version: int | None = None
) -> bool:
    """Create or change a channel in the caller's transaction. Returns whether it was created."""
    tenant = caller.tenant
    if request.kind == APPRISE and not caller.is_instance_admin:
        raise Forbidden(
            "only an admin of the tenant default can make channels of apprise", code="instance_admin_only",
            hint="use a webhook, or ask the administrator of this Mainspring",
        )  # fmt: skip
    row = await channels.lock(connection, tenant, name)
    check_named_version("channel", name, row, if_version)
    wanted = await wanted_channel(connection, tenant, request, row)
    settings, sealed = _encode(wanted.public).decode(), _encode(wanted.sealed).decode()
    if row is None:
        if len(await channels.names(connection, tenant)) >= MOST_CHANNELS:
            raise InvalidInput(
                f"the tenant has {MOST_CHANNELS} channels already", field="name", hint="delete one first"
            )
        done = await channels.insert(connection, tenant, name, request.kind, settings, sealed, caller.name)
    elif wanted.is_as_stored(row, request.kind):
        return False
    else:
        done = await channels.change(connection, row, request.kind, settings, sealed, caller.name)
    if not done:
        raise changed_meanwhile(f"the channel {name!r}")
    after = _audited(request.kind, wanted.public, wanted.sealed, changed=wanted.sealed != wanted.known)
    was = None if row is None else _audited(row.kind, _settings(row.settings_text), wanted.known)
    await record(connection, caller, "channel", name, was, after)
    log.info("channel changed", tenant=tenant, channel=name, kind=request.kind, by=caller.name)
    return row is None


async def delete_channel(
    connection: Connection, caller: Caller, name: str, if_version: int | None = None
) -> ChannelRow:
    """Delete a channel in the caller's transaction. Returns it as it was."""
    tenant = caller.tenant
    row = await channels.lock(connection, tenant, name)
    if row is None:
        raise no_channel(name)
    check_named_version("channel", name, row, if_version)
    if used := await channels.rules_of(connection, tenant, name, _SHOWN_RULES):
        raise Conflict(
            f"rules use the channel {name!r}: {', '.join(used)}", code="channel_in_use", field="name",
            hint="delete these rules, or give them another channel",
        )  # fmt: skip
    await notifications.give_up_channel(connection, tenant, name, "the channel was deleted")
    if not await channels.delete(connection, row):
        raise changed_meanwhile(f"the channel {name!r}")
    await record(connection, caller, "channel", name, _audited(row.kind, _settings(row.settings_text), {}), None)
    log.info("channel deleted", tenant=tenant, channel=name, by=caller.name)
    return row


def _audited(
    kind: str, settings: dict[str, Any], secrets: dict[str, Any], *, changed: bool = False
) -> dict[str, object]:
    """A channel as its entries show it: of its secrets the names, and whether a value has changed."""
    return {"kind": kind, "settings": settings, "secrets": sorted(secrets), "secrets_changed": changed}


def _place(settings: dict[str, Any]) -> list[Any]:
    """Where the secrets of a channel are sent."""
    return [settings.get(name) for name in ("url", "host", "port", "tls", "region", "account_sid", "user")]


def _is_kept(request: ChannelRequest, field: str) -> bool:
    """Whether the kind has the secret field, and the request leaves it out. A password goes with its user."""
    kind = KINDS.get(request.kind)
    has = kind is not None and field in kind.fields & SECRET_FIELDS
    return has and getattr(request, field) is None and (field != "password" or request.user is not None)
