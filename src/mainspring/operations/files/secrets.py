"""Secrets in files, by name. A value comes with the request, from the environment or a file of the command line, and is
compared here, where it can be decrypted. No plan and no export has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.operations.access.caller import Caller
from mainspring.operations.files.kinds import HIDDEN, HIDDEN_OTHER, Done, FileEntry, differing
from mainspring.operations.files.parts import FileServices, Parts
from mainspring.operations.secrets.secret_changes import delete_secret, scope_of
from mainspring.store import file_objects, secrets
from mainspring.wire.files import ExportedObject, FieldChange
from mainspring.wire.secrets import SecretRequest

_SHOWN_USERS = 10


class SecretsOfFiles:
    section = "secrets"
    audited = "secret"

    def arranged(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        return sorted(entries, key=lambda entry: entry.id)

    async def prepare(self, services: FileServices, caller: Caller, entry: FileEntry) -> None:
        await services.secrets.check(caller, entry.id, entry.body)
        entry.wanted = entry.body

    async def put(self, parts: Parts, entry: FileEntry) -> Done:
        connection, tenant, store = parts.connection, parts.caller.tenant, parts.services.secrets
        request: SecretRequest = entry.wanted
        before = await secrets.get(connection, tenant, entry.id)
        if before is None and request.value is None:
            raise InvalidInput(
                "a new secret needs a value", field="value",
                hint="write value: {env: NAME} or {file: PATH}, or set it by hand first: mainspring secret set",
            )  # fmt: skip
        fields: list[FieldChange] = []
        if before is not None:
            fields = differing(_says(before.queues, before.tasks), _says(*scope_of(request)))
            if request.value is not None and not await store.has_value(
                parts.caller, connection, entry.id, request.value
            ):
                fields.append(FieldChange("value", HIDDEN, HIDDEN_OTHER))
            elif request.value is not None:
                request = SecretRequest(queues=request.queues, tasks=request.tasks)
            if not fields:
                return Done("unchanged", before.version)
        await store.put_in(parts.caller, connection, entry.id, request)
        after = await secrets.get(connection, tenant, entry.id)
        return Done("create" if before is None else "change", 1 if after is None else after.version, fields)

    async def remove(self, parts: Parts, object_id: str, generation: int) -> Done | None:
        connection, tenant = parts.connection, parts.caller.tenant
        if await secrets.get(connection, tenant, object_id) is None:
            return None
        if users := await secrets.users(connection, tenant, object_id, _SHOWN_USERS + 1):
            more = " and more" if len(users) > _SHOWN_USERS else ""
            raise Conflict(
                f"jobs name the secret {object_id!r}: {', '.join(users[:_SHOWN_USERS])}{more}", code="secret_in_use",
                field="name", hint="take it out of these jobs, or keep the secret in the files",
            )  # fmt: skip
        await delete_secret(connection, parts.caller, object_id)
        return Done("remove", 0)

    async def export(
        self, services: FileServices, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[ExportedObject], str | None]:
        async with services.store.reads.acquire() as connection:
            rows = await secrets.page(connection, caller.tenant, after, limit)
            owners = await file_objects.of_kind(connection, caller.tenant, self.section, [row.name for row in rows])
        found = [
            ExportedObject(
                self.section, row.name, _says(row.queues, row.tasks),
                owners[row.name].owner if row.name in owners else None,
            )
            for row in rows
        ]  # fmt: skip
        return found, rows[-1].name if len(rows) == limit else None


def _says(queues: Sequence[str], tasks: Sequence[str]) -> dict[str, Any]:
    """Who may use the secret, as a file says it."""
    return {name: list(words) for name, words in (("queues", queues), ("tasks", tasks)) if words}
