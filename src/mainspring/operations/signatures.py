"""Signatures at this server: what workers declare is kept, and payloads are checked against it when they arrive."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.domain.signature import Signature, read_signature
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.store import signatures
from mainspring.store.pool import Connection, Store
from mainspring.wire.exchange import WorkerHello
from mainspring.wire.tasks import TaskList, TaskView

log = get_logger("signatures")

_LONGEST_SCHEMA = 64 * 1024
_NONE: dict[str, Signature] = {}


class SignatureBook:
    """The signatures known here; a duty reads what other servers have heard, every two seconds."""

    name = "signature_book"
    interval = 2.0

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_tenant: dict[TenantId, dict[str, Signature]] = {}
        self._versions: dict[tuple[TenantId, str], datetime] = {}

    def known(self, tenant: TenantId) -> dict[str, Signature]:
        """By task. A task that is not in it takes anything, as far as this server knows."""
        return self._by_tenant.get(tenant, _NONE)

    def check(self, tenant: TenantId, task: str, payload: str | None) -> None:
        """Refuse a payload (JSON text) that the task does not take: InvalidInput, code bad_payload."""
        signature = self.known(tenant).get(task)
        if signature is not None:
            signature.check(payload)

    async def hear(self, connection: Connection, tenant: TenantId, hello: WorkerHello) -> None:
        """A worker says hello: what it declares holds from now on."""
        schemas = {
            task: text
            for task, raw in hello.signatures.items()
            if task in hello.tasks and (text := _schema_text(task, raw)) is not None
        }
        untyped = sorted(task for task in hello.tasks if task not in schemas)
        if await signatures.declare(connection, tenant, schemas, untyped):
            await self._refresh(connection)

    async def offered(self, tenant: TenantId) -> TaskList:
        """The tasks of live workers, and what they take."""
        async with self._store.reads.acquire() as connection:
            rows = await signatures.offered(connection, tenant)
        return TaskList([
            TaskView(row["task"], row["queues"], row["workers"], row["schema"] and msgspec.json.decode(row["schema"]))
            for row in rows
        ])  # fmt: skip

    async def run_once(self) -> int:
        async with self._store.reads.acquire() as connection:
            return await self._refresh(connection)

    async def _refresh(self, connection: Connection) -> int:
        """Read what has changed; answers how many signatures did."""
        current = await signatures.versions(connection)
        gone = [key for key in self._versions if key not in current]
        for tenant, task in gone:
            del self._versions[tenant, task]
            self._by_tenant[tenant].pop(task, None)
        changed = [key for key, moment in current.items() if self._versions.get(key) != moment]
        if changed:
            for item in await signatures.schemas(connection, changed):
                self._note(item)
        return len(gone) + len(changed)

    def _note(self, item: signatures.Declared) -> None:
        self._versions[item.tenant, item.task] = item.registered_at
        known = self._by_tenant.setdefault(item.tenant, {})
        signature = read_signature(item.task, msgspec.json.decode(item.schema))
        if signature is None:
            known.pop(item.task, None)
        else:
            known[item.task] = signature


def _schema_text(task: str, raw: msgspec.Raw) -> str | None:
    """The schema as one text however it was spaced; None when it says nothing that we can check."""
    if len(memoryview(raw)) > _LONGEST_SCHEMA:
        log.warning("a signature is too long and not checked", task=task)
        return None
    try:
        schema = msgspec.json.decode(raw)
        text = msgspec.json.encode(schema).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        log.warning("a signature cannot be read and is not checked", task=task, error=str(error))
        return None
    if read_signature(task, schema) is None or "\\u0000" in text:
        return None
    return text
