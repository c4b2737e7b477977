"""Calendars of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.domain.schedules.calendar_rules import rules_to_text
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.calendar_changes import delete_calendar, put_calendar
from mainspring.operations.files.kinds import Done, FileEntry, differing
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.store import calendars, file_objects
from mainspring.wire.calendars import CalendarRequest
from mainspring.wire.files import ExportedObject, FieldChange

_encode = msgspec.json.Encoder().encode


class CalendarsOfFiles:
    section = "calendars"
    audited = "calendar"

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        return sorted(entries, key=lambda entry: entry.id)

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        entry.wanted = await services.calendars.read(caller, entry.id, entry.body)

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        connection, tenant = parts.connection, parts.caller.tenant
        wanted: CalendarRequest = entry.wanted
        before = await calendars.get(connection, tenant, entry.id)
        fields: list[FieldChange] = []
        if before is not None:
            fields = differing(_rules(before.rules_text, before.description), _rules_of(wanted))
            if not fields:
                return Done("unchanged", before.version)
        await put_calendar(connection, parts.caller, entry.id, wanted)
        after = await calendars.get(connection, tenant, entry.id)
        return Done("create" if before is None else "change", 1 if after is None else after.version, fields)

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        if await calendars.get(parts.connection, parts.caller.tenant, object_id) is None:
            return None
        await delete_calendar(parts.connection, parts.caller, object_id)
        return Done("remove", 0)

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        async with services.store.reads.acquire() as connection:
            rows = await calendars.page(connection, caller.tenant, after, limit)
            owners = await file_objects.of_kind(connection, caller.tenant, self.section, [row.name for row in rows])
        found = [
            ExportedObject(
                self.section,
                row.name,
                _rules(row.rules_text, row.description),
                owners[row.name].owner if row.name in owners else None,
            )
            for row in rows
        ]
        return found, rows[-1].name if len(rows) == limit else None


def _rules_of(wanted: CalendarRequest) -> dict[str, Any]:
    return _rules(rules_to_text(wanted), wanted.description)


def _rules(text: str, description: str | None) -> dict[str, Any]:
    """The rules as a file says them."""
    rules: dict[str, Any] = msgspec.json.decode(text)
    rules.pop("description", None)
    return {**rules, **({} if description is None else {"description": description})}
