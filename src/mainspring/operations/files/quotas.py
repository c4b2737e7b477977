"""Quotas of tenants in files, by the name of the tenant. Only an instance administrator applies and exports them.
A file says all quotas of a tenant: one that it does not have is removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from mainspring.domain.quotas import NAMES, NO_QUOTAS, changed_quotas, check_history_days
from mainspring.operations.access.caller import Caller
from mainspring.operations.files.kinds import Done, FileEntry, differing
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.operations.limits.quota_admin import check_may_set, given_quotas, put_quotas, tenant_named
from mainspring.store import file_objects, quotas, tenants
from mainspring.wire.files import ExportedObject, FieldChange
from mainspring.wire.quotas import QuotasRequest

_NONE = QuotasRequest(**dict.fromkeys(NAMES))


class QuotasOfFiles:
    section = "quotas"
    audited = "tenant"

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        return sorted(entries, key=lambda entry: entry.id)

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        check_may_set(caller)
        given = {name: getattr(entry.body, name) for name in NAMES}
        entry.wanted = QuotasRequest(**{name: None if one is UNSET else one for name, one in given.items()})
        changed_quotas(NO_QUOTAS, entry.wanted)
        check_history_days(entry.wanted, services.quotas.history_days)

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        tenant = await tenant_named(parts.connection, parts.caller, entry.id)
        before = await quotas.get(parts.connection, tenant)
        had = given_quotas(before.quotas)
        fields: list[FieldChange] = differing(had, given_quotas(changed_quotas(before.quotas, entry.wanted)))
        if not fields:
            return Done("unchanged", before.version)
        after, gate = await put_quotas(parts.connection, parts.caller, tenant, entry.wanted, before.version or None)
        parts.after.gates.append(gate)
        return Done("change" if had else "create", after.version, fields if had else [])

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        check_may_set(parts.caller)
        tenant = await tenants.find(parts.connection, object_id)
        if tenant is None or not given_quotas((await quotas.get(parts.connection, tenant)).quotas):
            return None
        _, gate = await put_quotas(parts.connection, parts.caller, tenant, _NONE)
        parts.after.gates.append(gate)
        return Done("remove", 0)

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        if not caller.is_instance_admin:
            return [], None
        async with services.store.reads.acquire() as connection:
            names = {row.tenant_id: row.name for row in await tenants.list_tenants(connection)}
            known = await quotas.all_quotas(connection)
            says: dict[str, dict[str, Any]] = {
                names[tenant]: given
                for tenant, one in known.items()
                if tenant in names and (given := given_quotas(one))
            }
            chosen = [name for name in sorted(says) if after is None or name > after]
            page = chosen[:limit]
            owners = await file_objects.of_kind(connection, caller.tenant, self.section, page)
        found = [
            ExportedObject(self.section, name, says[name], owners[name].owner if name in owners else None)
            for name in page
        ]
        return found, page[-1] if len(chosen) > limit else None
