"""Changes of gates: limits and pauses of a queue, of a tenant and of all tenants."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from mainspring.domain.errors import Forbidden, InvalidInput, VersionMismatch
from mainspring.domain.rates import MOST_BURST, parse_rate
from mainspring.domain.tags import changed_meanwhile
from mainspring.domain.texts import check_line, check_prose, meant, shown
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import EVERY_TENANT, TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.lifecycle.dispatch import QUEUES_PAUSED
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import QueuePaused
from mainspring.operations.limits.barrier import wait_for_older_claims
from mainspring.operations.limits.gate_counting import RunningCount
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.limits.gate_views import gate_view
from mainspring.operations.signals import Signals
from mainspring.store import gates, workers
from mainspring.store.gates import Gate
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.wire.gates import GateRequest, GateView, RateRequest

log = get_logger("gates")

MOST_GATES = 10_000
_MOST = 1_000_000_000
_LONGEST_QUEUE = 200
_LONGEST_REASON = 1000


class GateChanger:
    def __init__(
        self, store: Store, registry: GateRegistry, lanes: LaneRegistry, signals: Signals, clock: Clock
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._registry = registry
        self._signals = signals
        self._clock = clock
        self._running = RunningCount(store, signals, clock)

    async def put_queue(
        self, caller: Caller, queue: str, request: GateRequest, if_version: int | None = None
    ) -> GateView:
        check_queue(queue)
        return await self._change(caller, caller.tenant, queue, request, if_version)

    async def put_tenant(self, caller: Caller, request: GateRequest, if_version: int | None = None) -> GateView:
        return await self._change(caller, caller.tenant, None, request, if_version)

    async def pause_queue(
        self, caller: Caller, queue: str, *, paused: bool, reason: str | None = None, if_version: int | None = None
    ) -> GateView:
        return await self.put_queue(caller, queue, _pause(paused, reason), if_version)

    async def pause_all(
        self,
        caller: Caller,
        *,
        paused: bool,
        all_tenants: bool,
        reason: str | None = None,
        if_version: int | None = None,
    ) -> GateView:
        """Everything of the caller's tenant, or of all tenants."""
        if all_tenants and not caller.is_instance_admin:
            raise Forbidden(
                "only an admin of the tenant default can pause or resume all tenants",
                code="instance_admin_only", field="all_tenants", hint="leave all_tenants out to pause your own tenant",
            )  # fmt: skip
        tenant = EVERY_TENANT if all_tenants else caller.tenant
        return await self._change(caller, tenant, None, _pause(paused, reason), if_version)

    async def _change(
        self, caller: Caller, tenant: TenantId, queue: str | None, request: GateRequest, if_version: int | None
    ) -> GateView:
        """The answer is sent when no claim that does not know the change can hand out a run any more."""
        async with self._store.change() as connection:
            before = await gates.lock(connection, tenant, queue)
            changed, effects = await self.change_in(caller, connection, tenant, queue, request, if_version)
        await self.settle(caller, [changed], effects)
        async with self._store.reads.acquire() as connection:
            known = await gates.of_tenant(connection, tenant)
            state = next(gate for gate in known if gate.queue == queue and gate.tenant_id == tenant)
            undone = before.has_settings and not state.has_settings
            warnings = [] if queue is None or undone else await self._unused(connection, tenant, queue)
        view = gate_view(state)
        view.warnings = warnings or UNSET
        return view

    async def _unused(self, connection: Connection, tenant: TenantId, queue: str) -> list[str]:
        """What to say if no job and no worker has used the queue so far."""
        await self._lanes.refresh(connection)
        used = {*self._lanes.queues(tenant), *await workers.offers_by_queue(connection, tenant)}
        if queue in used:
            return []
        waits = "what is set holds when one does"
        return [f"no job and no worker uses queue {queue}; {meant(queue, used, waits)}"]

    async def change_in(
        self,
        caller: Caller,
        connection: Connection,
        tenant: TenantId,
        queue: str | None,
        request: GateRequest,
        if_version: int | None = None,
    ) -> tuple[Gate, Effects]:
        """Change a gate in the caller's transaction. The caller calls `settle` after the commit."""
        wanted = wanted_settings(request)
        await self._check_number(connection, tenant, queue)
        before = await gates.lock(connection, tenant, queue)
        if if_version is not None and if_version != before.version:
            raise VersionMismatch(
                f"the limits have version {before.version}, not {if_version}", field="If-Match",
                hint="read them again and repeat the change",
            )  # fmt: skip
        after = msgspec.structs.replace(before, **wanted)
        if request.paused is not UNSET:
            moment = await gates.clock(connection) if request.paused else None
            after = msgspec.structs.replace(after, paused_at=moment)
        if after.pause_reason is not None and after.paused_at is None:
            if request.pause_reason is not UNSET:
                raise InvalidInput(
                    "a reason goes with a pause", field="pause_reason", hint='add "paused": true, or leave it out'
                )
            after = msgspec.structs.replace(after, pause_reason=None)
        changed = await gates.change(connection, before, after, caller.name)
        if changed is None:
            raise changed_meanwhile("the limits")
        kind, name = ("tenant", tenant) if queue is None else ("queue", queue)
        await record(connection, caller, kind, name, _audited(before), _audited(changed), tenants=[tenant])
        effects = Effects()
        if (paused := changed.paused_at is not None) != (before.paused_at is not None):
            event = QueuePaused(tenant, queue, paused, caller.name)
            await QUEUES_PAUSED.happened(connection, [event], effects)
        return changed, effects

    async def settle(self, caller: Caller, changed: Sequence[Gate], effects: Effects) -> None:
        """After the commit: wait until every claim knows the change, and count the runs of these gates."""
        effects.publish(self._signals)
        self._signals.gates_changed.publish()
        for gate in changed:
            paused = gate.paused_at is not None
            log.info("gate changed", tenant=gate.tenant_id, queue=gate.queue, by=caller.name, paused=paused)
        await wait_for_older_claims(self._store, self._clock)
        for gate in changed:
            await self._running.count(gate.gate_id)
        async with self._store.reads.acquire() as connection:
            await self._registry.load(connection)

    async def _check_number(self, connection: Connection, tenant: TenantId, queue: str | None) -> None:
        if queue is not None and await gates.count(connection, tenant) >= MOST_GATES:
            known = await gates.of_tenant(connection, tenant)
            if not any(gate.queue == queue for gate in known):
                raise InvalidInput(
                    f"the tenant has settings for {MOST_GATES} queues already", field="queue",
                    hint="set a limit of the tenant: PUT /v1/tenant/limits",
                )  # fmt: skip


def _pause(paused: bool, reason: str | None) -> GateRequest:
    return GateRequest(paused=paused, pause_reason=UNSET if reason is None else _reason(reason, "reason"))


def _audited(gate: Gate) -> dict[str, object]:
    return {
        "paused": gate.paused_at is not None, "concurrency": gate.concurrency, "rate": gate.rate, "burst": gate.burst,
        "max_depth": gate.max_depth,
    }  # fmt: skip


def check_queue(queue: str) -> None:
    check_line(queue, "queue")
    if not queue or len(queue) > _LONGEST_QUEUE:
        raise InvalidInput(
            f"{shown(queue)} cannot be the name of a queue", field="queue", expected=f"1 to {_LONGEST_QUEUE} characters"
        )


def wanted_settings(request: GateRequest) -> dict[str, object]:
    """The settings that change. Raises InvalidInput."""
    wanted: dict[str, object] = {}
    for field in ("concurrency", "max_depth"):
        value = getattr(request, field)
        if value is not UNSET:
            wanted[field] = None if value is None else _positive(value, field)
    if request.rate is not UNSET:
        given = RateRequest(request.rate) if isinstance(request.rate, str) else request.rate
        if given is None:
            wanted["rate"] = wanted["burst"] = None
        else:
            of_struct = isinstance(request.rate, RateRequest)
            rate = parse_rate(given.rate, "rate.rate" if of_struct else "rate")
            wanted["rate"] = str(rate)
            wanted["burst"] = (
                rate.usual_burst if given.burst is None else _positive(given.burst, "rate.burst", MOST_BURST)
            )
    if request.pause_reason is not UNSET:
        wanted["pause_reason"] = _reason(request.pause_reason, "pause_reason")
    return wanted


def _reason(given: str | None, field: str) -> str | None:
    reason = (given or "").strip()
    check_prose(reason, field)
    if len(reason) > _LONGEST_REASON:
        raise InvalidInput("the reason is too long", field=field, expected=f"at most {_LONGEST_REASON} characters")
    return reason or None


def _positive(value: int, field: str, most: int = _MOST) -> int:
    if not 1 <= value <= most:
        hint = "null removes the limit"
        if value == 0:
            hint = 'to let nothing start, pause instead: {"paused": true}; null removes the limit'
        raise InvalidInput(f"{value} is out of range", field=field, expected=f"1 to {most}", hint=hint)
    return value
