"""The signatures of tasks, as workers declare them. The server checks new payloads against them. Jobs get the options
of their task where the request does not set them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.errors import MainspringError
from mainspring.domain.intake.declaration import Declaration, options_in, read_declaration, read_options
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.store import signatures
from mainspring.store.pool import Connection, Store
from mainspring.wire.exchange import WorkerHello
from mainspring.wire.tasks import OPTIONS_KEYWORD, TaskList, TaskView

log = get_logger("signatures")

_LONGEST = 256 * 1024  # an environment in the options can be half of it
_NONE: dict[str, Declaration] = {}
_MOST_MERGED = 1000  # tenants


class SignatureRegistry:
    """The declarations that this server knows. A periodic task reads those of other servers every two seconds."""

    name = "signature_book"
    interval = 2.0

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_tenant: dict[TenantId, dict[str, Declaration]] = {}
        self._versions: dict[tuple[TenantId, str], datetime] = {}
        self._merged: dict[TenantId, dict[str, Declaration]] = {}

    def known(self, tenant: TenantId) -> dict[str, Declaration]:
        """The declarations by task. A task without a declaration takes any payload and has no options. The declarations
        of shared workers apply where the tenant's own workers declare nothing."""
        shared = self._by_tenant.get(EVERY_TENANT)
        if not shared:
            return self._by_tenant.get(tenant, _NONE)
        merged = self._merged.get(tenant)
        if merged is None:
            if len(self._merged) >= _MOST_MERGED:
                self._merged.clear()
            merged = self._merged[tenant] = {**shared, **self._by_tenant.get(tenant, _NONE)}
        return merged

    def check(self, tenant: TenantId, task: str, payload: str | None) -> None:
        """Raise InvalidInput with the code bad_payload if the task does not take this payload (JSON text)."""
        declaration = self.known(tenant).get(task)
        if declaration is not None:
            declaration.check(payload)

    async def declare(self, connection: Connection, tenant: TenantId, hello: WorkerHello) -> None:
        """Store what a worker declares in its hello. It applies from now on."""
        schemas = {
            task: text
            for task, raw in hello.signatures.items()
            if task in hello.tasks and (text := _declared_text(task, raw)) is not None
        }
        untyped = sorted(task for task in hello.tasks if task not in schemas)
        if await signatures.declare(connection, tenant, schemas, untyped):
            await self._refresh(connection)

    async def offered(self, caller: Caller) -> TaskList:
        """The tasks of live workers, with payload schemas and options."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            rows = await signatures.offered(connection, tenant)
        return TaskList([_view(row) for row in rows])

    async def run_once(self) -> int:
        async with self._store.reads.acquire() as connection:
            return await self._refresh(connection)

    async def _refresh(self, connection: Connection) -> int:
        """Read the signatures that have changed. Return how many these are."""
        current = await signatures.versions(connection)
        gone = [key for key in self._versions if key not in current]
        for tenant, task in gone:
            del self._versions[tenant, task]
            self._by_tenant[tenant].pop(task, None)
        changed = [key for key, moment in current.items() if self._versions.get(key) != moment]
        if changed:
            for item in await signatures.schemas(connection, changed):
                self._note(item)
        if gone or changed:
            self._merged.clear()
        return len(gone) + len(changed)

    def _note(self, item: signatures.Declared) -> None:
        self._versions[item.tenant_id, item.task] = item.registered_at
        known = self._by_tenant.setdefault(item.tenant_id, {})
        declaration = read_declaration(item.task, msgspec.json.decode(item.schema_text))
        if declaration is None:
            known.pop(item.task, None)
        else:
            known[item.task] = declaration


def _declared_text(task: str, raw: msgspec.Raw) -> str | None:
    """The declaration as normalized text. Its options are plain numbers and words, as SQL reads them. None if the
    declaration contains nothing that this server understands."""
    if len(memoryview(raw)) > _LONGEST:
        log.warning("a signature is too long and is ignored", task=task)
        return None
    try:
        schema = msgspec.json.decode(raw)
        if (
            isinstance(schema, dict)
            and (options := _plain_options(task, schema.pop(OPTIONS_KEYWORD, None))) is not None
        ):
            schema[OPTIONS_KEYWORD] = options
        text = msgspec.json.encode(schema).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        log.warning("a signature cannot be read and is ignored", task=task, error=str(error))
        return None
    if read_declaration(task, schema) is None or "\\u0000" in text:
        return None
    return text


def _plain_options(task: str, given: object) -> dict[str, Any] | None:
    try:
        options = read_options(given)
    except MainspringError as error:
        log.warning("a task's options cannot be read and are ignored", task=task, field=error.field, error=error.detail)
        return None
    plain: dict[str, Any] | None = msgspec.to_builtins(options)
    return plain


def _view(row: signatures.OfferedTask) -> TaskView:
    schema: dict[str, Any] = msgspec.json.decode(row.schema_text or "{}")
    options = options_in(schema)
    schema.pop(OPTIONS_KEYWORD, None)
    return TaskView(row.task, row.queues, row.workers, schema or None, options)
