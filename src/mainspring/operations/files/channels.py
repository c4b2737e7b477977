"""Channels in files. A file has no secret: the command line sends the values that the file points to. A secret field
that the file leaves out keeps its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.domain.notify.channel_kinds import check_name
from mainspring.operations.access.caller import Caller
from mainspring.operations.files.kinds import HIDDEN, HIDDEN_OTHER, Done, FileEntry, differing
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.operations.notify.channel_admin import delete_channel, put_channel, wanted_channel
from mainspring.store import channels, file_objects
from mainspring.store.channels import ChannelRow
from mainspring.wire.channels import ChannelRequest
from mainspring.wire.files import ExportedObject, FieldChange

_settings = msgspec.json.Decoder(dict[str, Any]).decode


class ChannelsOfFiles:
    section = "channels"
    audited = "channel"

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        return sorted(entries, key=lambda entry: entry.id)

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        check_name(entry.id, "channel")
        entry.wanted = entry.body

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        connection, tenant, request = parts.connection, parts.caller.tenant, entry.wanted
        before = await channels.get(connection, tenant, entry.id)
        fields: list[FieldChange] = []
        if before is not None:
            fields = await _fields(parts, before, request)
            if not fields:
                return Done("unchanged", before.version)
        await put_channel(connection, parts.caller, entry.id, request, None if before is None else before.version)
        after = await channels.get(connection, tenant, entry.id)
        return Done("create" if before is None else "change", 1 if after is None else after.version, fields)

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        if await channels.get(parts.connection, parts.caller.tenant, object_id) is None:
            return None
        await delete_channel(parts.connection, parts.caller, object_id)
        return Done("remove", 0)

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        async with services.store.reads.acquire() as connection:
            rows = await channels.page(connection, caller.tenant, after, limit)
            owners = await file_objects.of_kind(connection, caller.tenant, self.section, [row.name for row in rows])
        found = [
            ExportedObject(
                self.section, row.name, _says(row.kind, _settings(row.settings_text)),
                owners[row.name].owner if row.name in owners else None,
            )
            for row in rows
        ]  # fmt: skip
        return found, rows[-1].name if len(rows) == limit else None


async def _fields(parts: Parts, before: ChannelRow, request: ChannelRequest) -> list[FieldChange]:
    """What differs. Of a secret field only whether it does."""
    wanted = await wanted_channel(parts.connection, parts.caller.tenant, request, before)
    was, now = _says(before.kind, _settings(before.settings_text)), _says(request.kind, wanted.public)
    fields = differing(was, now)
    for name in sorted({*wanted.known, *wanted.sealed}):
        had, has = wanted.known.get(name), wanted.sealed.get(name)
        if had != has:
            fields.append(FieldChange(name, None if had is None else HIDDEN, None if has is None else HIDDEN_OTHER))
    return fields


def _says(kind: str, public: dict[str, Any]) -> dict[str, Any]:
    """A channel as a file says it."""
    found: dict[str, Any] = {"kind": kind}
    for name, value in public.items():
        found["from" if name == "sender" else name] = value
    return found
