"""What a restored database means for a scheduler. It is settled before the first server starts.

Since the backup the installation went on, and the restored database does not know it. Workers that still live can
report nothing. Jobs that must not run twice do not run again, and a reason says so. Everything else goes on as after
an outage: fires since then follow the misfire policy of their jobs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

import mainspring.operations.handlers  # noqa: F401 - dependants of runs that end here follow
from mainspring.domain.errors import Conflict
from mainspring.domain.schedules.misfire import FirePlan, MisfirePolicy, Missed
from mainspring.kernel.config import SHARD_COUNT
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.fire import fire_recurring
from mainspring.operations.lifecycle.rescue_worker import WorkerRescue
from mainspring.operations.signals import Signals
from mainspring.scheduler.firer import due_again, plan_of
from mainspring.store import leases, restores
from mainspring.store.database import Database
from mainspring.store.jobs import schedule_from_text
from mainspring.store.pool import Store, open_store

UNSURE_RUN = "restored from a backup: it may have begun since the backup, and it runs at most once"
UNSURE_FIRE = "restored from a backup: it may have run, and it runs at most once"
_BATCH = 500
_SEEN = 10.0
_LEASE = 3600.0  # seconds; released at the end


@dataclass(frozen=True, slots=True)
class Settled:
    """What was done: workers that were alive, runs taken from them, runs that were ended, and jobs whose due fires were
    recorded as missed, because they must not happen twice."""

    workers: int
    runs_taken: int
    runs_ended: int
    jobs_skipped: int


async def settle(database: Database, *, alone: bool = True) -> Settled:
    """Fence everything that the time before the restore has handed out. No server may run: `alone` says that the caller
    knows it. Otherwise Conflict is raised if a scheduler was seen a moment ago. Safe to repeat."""
    store = await open_store(database, application="restore", hot=2, reads=2)
    try:
        async with store.hot.acquire() as connection:
            if not alone and await leases.live_nodes(connection, _SEEN):
                raise Conflict(
                    "schedulers use this database", code="still_running",
                    hint=f"stop all servers and schedulers, and try again after {_SEEN:.0f} s",
                )  # fmt: skip
        async with store.hot.acquire() as connection, connection.transaction():
            workers = await restores.end_owners(connection)
        signals = Signals(store)
        taken = 0
        async with store.hot.acquire() as connection:
            holders = await restores.workers_with_runs(connection)
        for worker_id in holders:
            taken += await WorkerRescue(signals, random.random, worker_id).take_all(store)
        return Settled(workers, taken, await _end_unsure(store), await _skip_unsure(store))
    finally:
        await store.close()


async def _end_unsure(store: Store) -> int:
    """End the waiting runs that are at most once and may have begun since the backup."""
    ended = 0
    while True:
        async with store.hot.acquire() as connection, connection.transaction():
            unsure = await restores.lock_unsure(connection, _BATCH)
            if not unsure:
                return ended
            await cancel(connection, unsure, UNSURE_RUN)
        ended += len(unsure)


async def _skip_unsure(store: Store) -> int:
    """Record the due fires of jobs that are at most once as missed, whatever their misfire policy says."""
    node_id = uuid7()
    skipped: set[tuple[TenantId, str]] = set()
    async with store.hot.acquire() as connection:
        held = await leases.take(connection, node_id, range(SHARD_COUNT), _LEASE)
        try:
            while due := await restores.due_unsure(connection, _BATCH):
                now = await connection.fetchval("select clock_timestamp()")
                for tenant in sorted({job.tenant_id for job in due}):
                    texts = {job.schedule_text for job in due if job.tenant_id == tenant}
                    await load_rules(connection, tenant, map(schedule_from_text, texts))
                planned = [(job, _all_missed(plan_of(job, now, MisfirePolicy("skip")))) for job in due]
                done = await fire_recurring(connection, node_id, held, due_again(planned), overlap=True)
                if not done.moved:
                    break  # what cannot be planned is left to the scheduler
                skipped.update(planned[index][0].key for index in done.moved)
        finally:
            await leases.release(connection, node_id, held)
    return len(skipped)


def _all_missed(plan: FirePlan) -> FirePlan:
    """The plan without runs."""
    missed = [msgspec.structs.replace(one, reason=UNSURE_FIRE) for one in plan.missed]
    if plan.runs:
        missed.append(Missed(plan.runs[0], plan.runs[-1], len(plan.runs), UNSURE_FIRE))
    return msgspec.structs.replace(plan, runs=[], nominal_runs=[], missed=missed)
