"""Rules of notifications in files. A mute is a decision of a person, and no file has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.domain.file_jobs import in_words
from mainspring.domain.notify.channel_kinds import check_name
from mainspring.domain.notify.rules import NotifyRule, read_rule
from mainspring.operations.access.caller import Caller
from mainspring.operations.files.kinds import Done, FileEntry, differing
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.operations.notify.rule_admin import decode_rule, delete_rule, put_rule
from mainspring.store import file_objects, rules
from mainspring.wire.files import ExportedObject, FieldChange

_encode = msgspec.json.Encoder().encode
_DURATIONS = ("group_wait", "group_interval", "repeat_interval", "over")


class RulesOfFiles:
    section = "rules"
    audited = "rule"

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        return sorted(entries, key=lambda entry: entry.id)

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        check_name(entry.id, "rule")
        entry.wanted = read_rule(entry.body)

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        connection, tenant, wanted = parts.connection, parts.caller.tenant, entry.wanted
        before = await rules.get(connection, tenant, entry.id)
        fields: list[FieldChange] = []
        if before is not None:
            fields = differing(_says(decode_rule(before.rule_text)), _says(wanted))
            if not fields:
                return Done("unchanged", before.version)
        await put_rule(connection, parts.caller, entry.id, wanted, None if before is None else before.version)
        after = await rules.get(connection, tenant, entry.id)
        return Done("create" if before is None else "change", 1 if after is None else after.version, fields)

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        if await rules.get(parts.connection, parts.caller.tenant, object_id) is None:
            return None
        await delete_rule(parts.connection, parts.caller, object_id)
        return Done("remove", 0)

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        async with services.store.reads.acquire() as connection:
            rows = await rules.page(connection, caller.tenant, after, limit)
            owners = await file_objects.of_kind(connection, caller.tenant, self.section, [row.name for row in rows])
        found = [
            ExportedObject(
                self.section, row.name, _says(decode_rule(row.rule_text)),
                owners[row.name].owner if row.name in owners else None,
            )
            for row in rows
        ]  # fmt: skip
        return found, rows[-1].name if len(rows) == limit else None


def _says(rule: NotifyRule) -> dict[str, Any]:
    """A rule as a file says it, without its defaults."""
    found: dict[str, Any] = msgspec.json.decode(_encode(rule))
    found = {name: value for name, value in found.items() if value is not None}
    for name in _DURATIONS:
        if name in found:
            found[name] = in_words(found[name])
    if rule.escalate is not None:
        found["escalate"]["after"] = in_words(rule.escalate.after)
    return found
