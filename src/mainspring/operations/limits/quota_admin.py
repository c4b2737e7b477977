"""Instance administrators set the quotas of tenants. Each tenant sees how much of its own is used."""

from __future__ import annotations

from mainspring.domain.errors import Conflict, Forbidden, NotFound, VersionMismatch
from mainspring.domain.quotas import NAMES, Quotas, changed_quotas, check_history_days, near_in_words
from mainspring.domain.texts import shown
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.limits.gate_changes import GateChanger
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.limits.quota_use import quota_uses
from mainspring.store import gates, quotas, tenants
from mainspring.store.gates import Gate
from mainspring.store.pool import Connection, Store
from mainspring.store.quotas import QuotaRow
from mainspring.wire.quotas import QuotasRequest, QuotaUse, TenantUsage

log = get_logger("quotas")


class QuotaAdmin:
    def __init__(self, store: Store, registry: GateRegistry, changer: GateChanger) -> None:
        self._store = store
        self._registry = registry
        self._changer = changer

    async def put(
        self, caller: Caller, name: str, request: QuotasRequest, if_version: int | None = None
    ) -> TenantUsage:
        """Set quotas. When the answer is sent, no run starts by the earlier quotas."""
        check_may_set(caller)
        check_history_days(request, self._registry.history_days)
        async with self._store.change() as connection:
            tenant = await tenant_named(connection, caller, name)
            _, gate = await put_quotas(connection, caller, tenant, request, if_version)
        await self._changer.settle(caller, [gate], Effects())
        return await self.usage(caller, name)

    async def usage(self, caller: Caller, name: str) -> TenantUsage:
        async with self._store.reads.acquire() as connection:
            tenant = await tenant_named(connection, caller, name)
            row = await quotas.get(connection, tenant)
            uses = await quota_uses(connection, tenant, row.quotas)
        warnings = [near_in_words(use) for use in uses if use.near]
        return TenantUsage(name, uses, row.version, warnings, row.updated_by, row.updated_at)

    async def limited(self, caller: Caller) -> list[QuotaUse]:
        """The quotas that the tenant of the caller has, with their use. A tenant without quotas costs nothing."""
        allowed = self._registry.quotas.get(caller.tenant)
        if allowed is None:
            return []
        async with self._store.reads.acquire() as connection:
            uses = await quota_uses(connection, caller.tenant, allowed)
        return [use for use in uses if use.limit is not None]


def check_may_set(caller: Caller) -> None:
    if not caller.is_instance_admin:
        raise Forbidden(
            "only an admin of the tenant default can set quotas", code="instance_admin_only",
            hint="ask the administrator of this Mainspring; GET /v1/tenants/{tenant}/usage shows what is used",
        )  # fmt: skip


async def put_quotas(
    connection: Connection, caller: Caller, tenant: TenantId, request: QuotasRequest, if_version: int | None = None
) -> tuple[QuotaRow, Gate]:
    """Set quotas in the caller's transaction. The caller settles the gate after the commit."""
    before = await quotas.lock(connection, tenant, caller.name)
    if if_version is not None and if_version != before.version:
        raise VersionMismatch(
            f"the quotas have version {before.version}, not {if_version}", field="If-Match",
            hint="read them again and repeat the change",
        )  # fmt: skip
    wanted = changed_quotas(before.quotas, request)
    gate = await gates.lock(connection, tenant, None)
    changed = await quotas.change(connection, tenant, before.version, wanted, caller.name)
    if changed is None:
        raise Conflict("the quotas changed meanwhile", code="changed_meanwhile", hint="try again")
    if before.concurrent_runs is None and wanted.concurrent_runs is not None:
        await quotas.recount(connection, gate.gate_id)
    await gates.raise_revision(connection)
    old, new = ({"quotas": given_quotas(one)} for one in (before.quotas, wanted))
    await record(connection, caller, "tenant", tenant, old, new, tenants={caller.tenant, tenant})
    log.info("quotas changed", quotas_of=tenant, by=caller.name, quotas=given_quotas(wanted))
    return changed, gate


async def tenant_named(connection: Connection, caller: Caller, name: str) -> TenantId:
    """The tenant of this name, if the caller may see it."""
    tenant = await tenants.find(connection, name)
    if tenant is None or (tenant != caller.tenant and not caller.is_instance_admin):
        raise NotFound(f"there is no tenant {shown(name)}", hint="see GET /v1/tenants")
    return tenant


def given_quotas(allowed: Quotas) -> dict[str, int]:
    """Those that there are."""
    return {name: value for name in NAMES if (value := getattr(allowed, name)) is not None}
