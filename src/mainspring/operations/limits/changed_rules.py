"""A change of a job's overlap rule, and of what it declares: the runs that live already follow the new rule.

Under `queue` and `cancel_previous` every live run of the job owns the slot of the job or waits for it. Runs that were
created under another rule get it here. Under `allow` no run waits for it any more.
"""

from __future__ import annotations

from mainspring.domain.intake.limits import strict_order
from mainspring.domain.job import ONE_AFTER_ANOTHER, JobDefinition, Overlap, has_limits, line_of
from mainspring.domain.limits import Slot, key_id, overlap_slot
from mainspring.kernel.ids import TenantId
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.limits.effects import LimitEffects
from mainspring.store import limit_declarations, limits, runs
from mainspring.store.pool import Connection


async def change_lines(
    connection: Connection,
    tenant: TenantId,
    job_id: str,
    stored: JobDefinition,
    changed: JobDefinition,
    effects: Effects,
) -> None:
    """The caller holds the job's lock and has written the change."""
    if has_limits(changed):
        slots = line_of(changed, job_id)
        if loose := await limit_declarations.declare(connection, tenant, slots):
            raise strict_order(loose)
    if changed.spec.circuit_breaker is None and stored.spec.circuit_breaker is not None:
        await _leave_breaker(connection, tenant, job_id, stored, effects)
    before, after = stored.overlap in ONE_AFTER_ANOTHER, changed.overlap in ONE_AFTER_ANOTHER
    slot = overlap_slot(job_id)
    if after and not before:
        await _adopt(connection, tenant, job_id, slot)
    elif before and changed.overlap is Overlap.ALLOW:
        await _leave(connection, tenant, job_id, slot, effects)


async def _leave_breaker(
    connection: Connection, tenant: TenantId, job_id: str, stored: JobDefinition, effects: Effects
) -> None:
    """Runs that wait behind a circuit breaker which the job has no more go on without it."""
    for slot in line_of(stored, job_id):
        if slot.failures is not None:
            await _leave(connection, tenant, job_id, slot, effects)


async def _leave(connection: Connection, tenant: TenantId, job_id: str, slot: Slot, effects: Effects) -> None:
    lanes, lines = await limits.leave_line(connection, tenant, job_id, key_id(tenant, slot))
    effects.ready.update(lanes)
    effects.of(LimitEffects).wake(lines)


async def _adopt(connection: Connection, tenant: TenantId, job_id: str, slot: Slot) -> None:
    live = await runs.lock_overlapping(connection, tenant, job_id)
    if live:
        line = key_id(tenant, slot)
        await limits.lock_lines(connection, [line])
        await limits.join_line(connection, [run.run_id for run in live], line)
