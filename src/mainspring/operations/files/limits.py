"""Limits of queues in files. A file says all limits of a queue; whether it is paused is for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from mainspring.operations.access.caller import Caller
from mainspring.operations.files.kinds import Done, FileEntry
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.operations.limits.gate_changes import check_queue, wanted_settings
from mainspring.store import file_objects, gates
from mainspring.store.gates import Gate
from mainspring.wire.files import ExportedObject, FieldChange
from mainspring.wire.gates import GateRequest, RateRequest

_LIMITS = ("concurrency", "rate", "burst", "max_depth")


class LimitsOfFiles:
    section = "limits"
    audited = "queue"

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        return sorted(entries, key=lambda entry: entry.id)

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        check_queue(entry.id)
        given: GateRequest = entry.body
        entry.wanted = GateRequest(
            None if given.concurrency is UNSET else given.concurrency,
            None if given.rate is UNSET else given.rate,
            None if given.max_depth is UNSET else given.max_depth,
        )
        wanted_settings(entry.wanted)

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        before = await _present(parts, entry.id)
        wanted = wanted_settings(entry.wanted)
        had = {name: None if before is None else getattr(before, name) for name in _LIMITS}
        fields = [FieldChange(name, had[name], wanted.get(name)) for name in _LIMITS if had[name] != wanted.get(name)]
        if before is not None and not fields:
            return Done("unchanged", before.version)
        changed = await _change(parts, entry.id, entry.wanted)
        action = "create" if before is None or not before.has_settings else "change"
        return Done(action, changed.version, fields if action == "change" else [])

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        before = await _present(parts, object_id)
        if before is None or all(getattr(before, name) is None for name in _LIMITS):
            return None
        await _change(parts, object_id, GateRequest(None, None, None))
        return Done("remove", 0)

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        async with services.store.reads.acquire() as connection:
            known = await gates.of_tenant(connection, caller.tenant)
            rows = sorted(
                (gate for gate in known if gate.tenant_id == caller.tenant and gate.queue is not None and _says(gate)),
                key=lambda gate: gate.queue or "",
            )
            rows = [gate for gate in rows if after is None or (gate.queue or "") > after]
            page = rows[:limit]
            owners = await file_objects.of_kind(
                connection, caller.tenant, self.section, [gate.queue or "" for gate in page]
            )
        found = [
            ExportedObject(
                self.section,
                gate.queue or "",
                _says(gate),
                owners[gate.queue or ""].owner if gate.queue in owners else None,
            )
            for gate in page
        ]
        return found, found[-1].id if len(rows) > limit else None


def _says(gate: Gate) -> dict[str, Any]:
    rate: Any = gate.rate
    if rate is not None and wanted_settings(GateRequest(rate=rate))["burst"] != gate.burst:
        rate = msgspec.to_builtins(RateRequest(rate, gate.burst))
    says = {"concurrency": gate.concurrency, "rate": rate, "max_depth": gate.max_depth}
    return {name: value for name, value in says.items() if value is not None}


async def _present(parts: Parts, queue: str) -> Gate | None:
    known = await gates.of_tenant(parts.connection, parts.caller.tenant)
    return next((gate for gate in known if gate.queue == queue and gate.tenant_id == parts.caller.tenant), None)


async def _change(parts: Parts, queue: str, request: GateRequest) -> Gate:
    changed, effects = await parts.services.gates.change_in(
        parts.caller, parts.connection, parts.caller.tenant, queue, request
    )
    parts.after.gates.append(changed)
    parts.after.gate_effects.append(effects)
    return changed
