"""Fire: create the runs of due jobs. A run is SKIPPED if an earlier one of its job is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import asyncpg
import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.operations.lifecycle.effects import Effects, after_end
from mainspring.store import fires
from mainspring.store.pool import Connection

_PATIENCE = "50ms"  # how long a batch waits for a job that another transaction has locked


class Fired(Effects):
    """How many runs each lane got, which recurring jobs fired, by their index in the batch, and how many one-time jobs
    fired."""

    created: dict[int, int] = msgspec.field(default_factory=dict)
    moved: list[int] = msgspec.field(default_factory=list)
    gone: int = 0


async def fire_recurring(
    connection: Connection,
    node_id: UUID,
    leases: Mapping[int, int],
    due: Sequence[fires.DueAgain],
    *,
    overlap: bool,
    locked: bool = False,
) -> Fired:
    """Fire recurring jobs as planned. `overlap`: some of them skip a fire while a run is alive. These are locked first,
    so that the fire sees every run that was created before. `locked`: the caller has locked the jobs in an earlier
    statement of its transaction. A job that another transaction has locked does not fire, and is not in `moved`."""
    if overlap and not locked:
        async with connection.transaction():
            free = await fires.lock_due(connection, node_id, leases, due)
            if not free:
                return Fired()
            done = await fires.fire_recurring(connection, node_id, leases, [due[place] for place in free])
            moved = [free[index] for index in done.moved]
    else:
        try:
            done = await fires.fire_recurring(connection, node_id, leases, due, _PATIENCE)
        except asyncpg.LockNotAvailableError:
            if locked:
                raise
            done = await fires.fire_free(connection, node_id, leases, due)
        moved = done.moved
    fired = Fired(created=done.created, moved=moved)
    after_end(done.skipped, fired)
    return fired


async def fire_one_time(
    connection: Connection, node_id: UUID, leases: Mapping[int, int], due: Sequence[fires.DueOnce]
) -> Fired:
    """Fire one-time jobs. A job that another transaction has locked does not fire."""
    done = await fires.fire_one_time(connection, node_id, leases, due)
    fired = Fired(created=done.created, gone=done.gone)
    after_end(done.skipped, fired)
    return fired


async def run_now(
    connection: Connection,
    tenant: TenantId,
    job_id: str,
    run_id: UUID,
    trigger: str,
    changed: fires.Changed | None = None,
) -> Fired | None:
    """Create a manual run, with payload and spec of `changed` if given. It is skipped if nothing was created. Return
    None if the job is cancelled or does not exist. The caller holds the job's lock."""
    run = await fires.run_now(connection, tenant, job_id, run_id, trigger, changed)
    return None if run is None else _manual(run_id, run)


async def run_again(connection: Connection, tenant: TenantId, item: fires.Repeat) -> Fired:
    """Create a manual run of a one-time job that has fired. The caller holds the lock of the fired job."""
    return _manual(item.run_id, await fires.run_again(connection, tenant, item))


def _manual(run_id: UUID, run: fires.ManualRun) -> Fired:
    fired = Fired(created={} if run.skipped else {run.lane_id: 1})
    after_end([(run_id, run.follows, None)], fired)
    return fired
