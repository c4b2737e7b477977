"""The signatures of tasks, as workers declare them. The server checks new payloads against them. Jobs get the options
of their task where the request does not set them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.intake.declaration import TaskDeclaration, options_in
from mainspring.kernel.ids import DEFAULT_TENANT, EVERY_TENANT, TenantId
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.kinds.registry import learn_package
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.search import searching
from mainspring.operations.signatures.signature_compiler import SignatureCompiler
from mainspring.store import signatures
from mainspring.store.pages import cut
from mainspring.store.pool import Connection, Store
from mainspring.wire.exchange import WorkerHello
from mainspring.wire.tasks import OPTIONS_KEYWORD, TaskList, TaskView

log = get_logger("signatures")

MOST_TASKS = 5_000  # of a tenant, that have a signature
MOST_BYTES = 4 * 1024 * 1024  # of a tenant's signatures: about 1.5 s to compile
_AT_ONCE = 16  # signatures that are read and compiled together: 4 MiB at most, except what older versions stored
_NONE: dict[str, TaskDeclaration] = {}
_MOST_MERGED = 1000  # tenants
_SERVER = TenantId(-1)  # has turns of its own


class SignatureRegistry:
    """The declarations that this server knows. A periodic task reads those of other servers every two seconds."""

    name = "signature_book"
    interval = 2.0

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_tenant: dict[TenantId, dict[str, TaskDeclaration]] = {}
        self._texts: dict[tuple[TenantId, str], str] = {}
        self._versions: dict[tuple[TenantId, str], datetime] = {}
        self._merged: dict[TenantId, dict[str, TaskDeclaration]] = {}
        self._sizes: dict[tuple[TenantId, str], int] = {}
        self._bytes: dict[TenantId, int] = {}
        self._compiler = SignatureCompiler()

    def known(self, tenant: TenantId) -> dict[str, TaskDeclaration]:
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

    def texts(self, tenant: TenantId) -> dict[str, str]:
        """The declarations that `known` returns, as they are stored. Another process can decode them."""
        of_tenant = self._by_tenant.get(tenant, _NONE)
        return {task: self._texts[tenant if task in of_tenant else EVERY_TENANT, task] for task in self.known(tenant)}

    def check(self, tenant: TenantId, task: str, payload: str | None) -> None:
        """Raise InvalidInput with the code bad_payload if the task does not take this payload (JSON text)."""
        declaration = self.known(tenant).get(task)
        if declaration is not None:
            declaration.check(payload)

    async def read(self, tenant: TenantId, hello: WorkerHello) -> dict[str, str]:
        """What a worker declares about its tasks, as texts. This needs no connection, because it may take a while."""
        tasks = set(hello.tasks)
        return await self._compiler.declared_texts(
            tenant, {task: raw for task, raw in hello.signatures.items() if task in tasks}
        )

    async def differs(
        self, connection: Connection, tenant: TenantId, hello: WorkerHello, schemas: Mapping[str, str]
    ) -> bool:
        """Whether a hello declares something else than what is stored."""
        return await signatures.differs(connection, tenant, schemas, _untyped(hello, schemas))

    async def declare(
        self, connection: Connection, tenant: TenantId, hello: WorkerHello, schemas: Mapping[str, str]
    ) -> bool:
        """Store what a worker declares in its hello (`schemas`, see `read`). Return whether anything changed. It
        applies here after `refresh`. What is stored of a tenant stays within the bounds: the newest counts."""
        news = await signatures.declare(connection, tenant, schemas, _untyped(hello, schemas))
        if news and schemas:
            dropped = await signatures.drop_excess(connection, tenant, MOST_TASKS, MOST_BYTES)
            if dropped:
                log.warning(
                    "a tenant has too many signatures; the oldest are dropped", tenant=tenant, tasks=dropped[:10]
                )
        return news

    async def offered(self, caller: Caller) -> TaskList:
        """The tasks of live workers, with payload schemas and options."""
        async with searching(self._store, caller.tenant, "tasks") as connection:
            rows = await signatures.offered(connection, caller.tenant, MOST_BYTES, MOST_TASKS + 1)
        views: list[TaskView] = []
        slices = TimeSlices()
        page, more = cut(rows, MOST_TASKS)
        for row in page:
            views.append(_view(row))
            if slices.over:
                await slices.pause()
        return TaskList(views, more)

    async def run_once(self) -> int:
        async with self._store.reads.acquire() as connection:
            return await self.refresh(connection)

    async def refresh(self, connection: Connection, tenant: TenantId | None = None) -> int:
        """Read the signatures that have changed, of all tenants or of one. Return how many these are."""
        current = await signatures.versions(connection)
        gone = [key for key in self._versions if key not in current]
        for key in gone:
            self._forget(key)
        changed = [
            key
            for key, moment in current.items()
            if self._versions.get(key) != moment and tenant in (None, key[0])  # a hello does not wait for others
        ]
        changed.sort(key=lambda key: current[key], reverse=True)  # where there are too many, the newest count
        slices = TimeSlices()
        for start in range(0, len(changed), _AT_ONCE):
            wanted = self._without_full({key: current[key] for key in changed[start : start + _AT_ONCE]})
            if slices.over:
                await slices.pause()
            if not wanted:
                continue
            items = await signatures.schemas(connection, wanted)
            keys = [(item.task, item.schema_text.encode()) for item in items]
            compiled = await self._compiler.compile(_SERVER if tenant is None else tenant, keys)
            for item, one in zip(items, compiled, strict=True):
                if one.parameters:  # an older version has stored it
                    log.warning("too many parameters: payloads are not checked", task=item.task, found=one.parameters)
                self._note(item, one.declaration)
        if gone or changed:
            self._merged.clear()
        return len(gone) + len(changed)

    def _without_full(self, changed: Mapping[tuple[TenantId, str], datetime]) -> list[tuple[TenantId, str]]:
        """The signatures whose tenant may have more of them. The others are not even read."""
        wanted = []
        for key, moment in changed.items():
            tenant, task = key
            known = self._by_tenant.get(tenant, _NONE)
            size = self._bytes.get(tenant, 0) - self._sizes.get(key, 0)
            if size < MOST_BYTES and len(known) - (task in known) < MOST_TASKS:
                wanted.append(key)
                continue
            log.warning("a signature is skipped: its tenant has too many", task=task, tenant=tenant)
            self._forget(key)
            self._versions[key] = moment
        return wanted

    def _note(self, item: signatures.Declared, declaration: TaskDeclaration | None) -> None:
        key = (item.tenant_id, item.task)
        noted = self._versions.get(key)
        if noted is not None and noted >= item.registered_at:  # a refresh that began later was faster
            return
        self._forget(key)
        self._versions[key] = item.registered_at
        if declaration is None:
            return
        size = len(item.schema_text)
        total = self._bytes.get(item.tenant_id, 0) + size
        known = self._by_tenant.setdefault(item.tenant_id, {})
        if total > MOST_BYTES or len(known) >= MOST_TASKS:
            log.warning(
                "a signature is skipped: its tenant has too many", task=item.task, bytes=size, tenant=item.tenant_id
            )
            return
        self._bytes[item.tenant_id] = total
        self._sizes[key] = size
        self._texts[key] = item.schema_text
        known[item.task] = declaration
        if declaration.unknown is not None and item.tenant_id in (DEFAULT_TENANT, EVERY_TENANT):
            # Only workers of the instance administrator: all tenants see this.
            learn_package(declaration.unknown.name, declaration.unknown.package)

    def _forget(self, key: tuple[TenantId, str]) -> None:
        self._versions.pop(key, None)
        tenant, task = key
        self._by_tenant.get(tenant, {}).pop(task, None)
        self._texts.pop(key, None)
        if size := self._sizes.pop(key, 0):
            self._bytes[tenant] -= size


def _untyped(hello: WorkerHello, schemas: Mapping[str, str]) -> list[str]:
    return sorted(task for task in hello.tasks if task not in schemas)


def _view(row: signatures.OfferedTask) -> TaskView:
    schema: dict[str, Any] = msgspec.json.decode(row.schema_text or "{}")
    options = options_in(schema)
    schema.pop(OPTIONS_KEYWORD, None)
    return TaskView(row.task, row.queues, row.workers, schema or None, options, row.left_out)
