"""How much of its quotas a tenant uses."""

from __future__ import annotations

from mainspring.domain.quotas import NAMES, Quotas, use_of
from mainspring.domain.rates import Bucket
from mainspring.kernel.ids import TenantId
from mainspring.store import gates, quotas
from mainspring.store.pool import Connection
from mainspring.wire.quotas import QuotaUse

_MOST_COUNTED = 100_000  # of what has no quota


async def quota_uses(connection: Connection, tenant: TenantId, allowed: Quotas | None = None) -> list[QuotaUse]:
    """Every quota with its use. `allowed`: None to read them."""
    if allowed is None:
        allowed = (await quotas.get(connection, tenant)).quotas
    used: dict[str, int | None] = {
        "stored_jobs": await quotas.count_stored_jobs(connection, tenant, allowed.stored_jobs or _MOST_COUNTED),
        "log_bytes_per_day": await quotas.log_bytes_today(connection, tenant),
        "tokens": await quotas.count_tokens(connection, tenant),
    }
    if allowed.submissions_per_second is not None:
        used["submissions_per_second"] = await _submitted(connection, tenant)
    if (most := allowed.runs_per_minute) is not None:
        used["runs_per_minute"] = await quotas.count_starts(connection, tenant, most)
    if (most := allowed.queued_runs) is not None:
        lanes = await quotas.lanes_of(connection, tenant)
        used["queued_runs"] = await gates.count_waiting(connection, lanes, most)
    if allowed.concurrent_runs is not None:
        known = await gates.of_tenant(connection, tenant)
        used["concurrent_runs"] = sum(one.in_use for one in known if one.tenant_id == tenant and one.queue is None)
    return [use_of(name, getattr(allowed, name), used.get(name)) for name in NAMES]


async def _submitted(connection: Connection, tenant: TenantId) -> int | None:
    """How many tokens of the bucket of submissions are taken."""
    row = await quotas.submissions(connection, tenant)
    if row is None or (most := row.submissions_per_second) is None:
        return None
    return most - Bucket(1.0 / most, most, row.tat).tokens(row.now)
