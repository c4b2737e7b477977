"""The overlap rule of a workflow, for its reruns.

A rerun is a run like others: later fires see it as alive. It does not begin beside a run that is alive, and under
`queue` and `cancel_previous` it owns the slot of the workflow until it ends.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.domain.job import Overlap
from mainspring.domain.limits import key_id, overlap_slot
from mainspring.domain.refusals import overlaps
from mainspring.kernel.ids import TenantId
from mainspring.store import dead_letters, limit_declarations, limits, workflows
from mainspring.store.pool import Connection


class OverlapRule(msgspec.Struct, frozen=True):
    """overlap: None if the workflow has no row: it ran once. alive: whether a run is alive that the rule is about."""

    overlap: Overlap | None
    alive: bool


async def lock_rule(connection: Connection, tenant: TenantId, workflow_id: str) -> OverlapRule:
    """Lock the workflow, so that it is not fired meanwhile, and read its rule."""
    locked = await dead_letters.lock_jobs(connection, tenant, [workflow_id])
    job = locked.allowed.get(workflow_id)
    if job is None:
        return OverlapRule(None, bool(locked.live))
    return OverlapRule(Overlap(job.overlap), await workflows.any_alive(connection, tenant, workflow_id))


def check_rule(rule: OverlapRule, run_id: UUID) -> None:
    if rule.alive and rule.overlap is not Overlap.ALLOW:
        raise overlaps(run_id)


async def take_slot(connection: Connection, tenant: TenantId, workflow_id: str, run_id: UUID) -> None:
    """The run that stands for a rerun owns the slot of its workflow. It is free: no run is alive, and the workflow is
    locked."""
    slot = overlap_slot(workflow_id)
    line = key_id(tenant, slot)
    await limit_declarations.restore(connection, tenant, [slot])
    if not await limits.lock_lines(connection, [line]):
        raise Conflict(f"the line of workflow {workflow_id!r} is gone", code="changed_meanwhile", hint="try again")
    await limits.join_line(connection, [run_id], line)
