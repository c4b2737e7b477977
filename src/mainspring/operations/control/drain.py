"""Drain: ask a worker to finish its runs and stop. It learns of it in its next exchange; a waiting exchange is woken at
once."""

from __future__ import annotations

from uuid import UUID

from mainspring.domain.errors import Conflict, Forbidden, NotFound
from mainspring.domain.tags import check_tag, worker_tag
from mainspring.domain.worker_state import WorkerState
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.read.views import worker_view
from mainspring.operations.signals import Signals
from mainspring.store import workers
from mainspring.store.pool import Connection, Store
from mainspring.store.workers import WorkerRow
from mainspring.wire.runs import WorkerView

log = get_logger("drain")

_LIVING = (WorkerState.LIVE, WorkerState.DRAINING)


class Drainer:
    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals

    async def worker(self, caller: Caller, worker_id: UUID) -> WorkerView:
        """One worker, live or ended."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            return worker_view(await _row(connection, tenant, worker_id))

    async def drain(self, caller: Caller, worker_id: UUID, if_match: str | None = None) -> WorkerView:
        """Give the worker no new runs from now on. A second call changes nothing. `if_match`: the tag that it must
        have."""
        tenant = caller.tenant
        async with self._store.change() as connection:
            before = await _row(connection, tenant, worker_id)
            if before.tenant_id == EVERY_TENANT and not caller.is_instance_admin:
                raise Forbidden(
                    f"worker {before.name} serves every tenant: an admin of the tenant default may drain it",
                    code="instance_admin_only", hint="ask the administrator of this Mainspring",
                )  # fmt: skip
            check_tag("worker", worker_tag(before.state), if_match)
            only_from = None if if_match is None else WorkerState(before.state)
            changed = await workers.set_state(connection, worker_id, WorkerState.DRAINING, only_from)
            row = await _row(connection, tenant, worker_id)
            if changed:
                states = ({"state": WorkerState(one.state).name} for one in (before, row))
                await record(connection, caller, "worker", worker_id, *states, tenants=[before.tenant_id])
            else:
                check_tag("worker", worker_tag(row.state), if_match)  # it may have changed since it was read
        if row.state not in _LIVING:
            state = WorkerState(row.state).name
            raise Conflict(
                f"worker {row.name} is gone: {state}",
                code="worker_gone",
                hint="see GET /v1/workers for the live workers",
            )
        if changed:
            log.info("worker asked to drain", worker=str(worker_id), name=before.name)
        self._signals.stop.publish(worker_id)
        return worker_view(row)


async def _row(connection: Connection, tenant: TenantId, worker_id: UUID) -> WorkerRow:
    row = await workers.view(connection, tenant, worker_id)
    if row is None:
        raise NotFound(f"there is no worker {worker_id}", hint="see GET /v1/workers")
    return row
