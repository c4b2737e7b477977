"""Fire a locked job: what was due before a change is dealt with by the definition from before it.

A change locks the job's row, reads the database's time and calls `fire_locked` before it writes. Fires that are due by
then are planned as the scheduler plans them, and written in the transaction of the change. A fire that the scheduler
has prepared meanwhile matches no row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import asyncpg
import msgspec

from mainspring.domain.job import JobDefinition, Overlap
from mainspring.domain.schedules.misfire import FirePlan, Missed, limited, missed_through, plan_fires
from mainspring.domain.schedules.nominal_times import first_fire, latest, nominal_of
from mainspring.domain.schedules.schedule import Schedule
from mainspring.domain.tags import changed_meanwhile
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.logs import get_logger
from mainspring.operations.lifecycle.dispatch import FIRES_MISSED, RUNS_CREATED
from mainspring.operations.lifecycle.effects import Effects, after_end
from mainspring.operations.lifecycle.events import FireMissed, RunsCreated
from mainspring.operations.lifecycle.fire import FireEffects, cancel_earlier
from mainspring.store import fires, missed_fires
from mainspring.store.jobs import LockedJob
from mainspring.store.pool import Connection

log = get_logger("fire_locked")

_UNFIT = "it could not be fired"
_POISON = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError, ValueError, OverflowError)


class FiredLocked(FireEffects, kw_only=True):
    """What was fired, and the job's row after it. `gone`: a one-time job became its run and has no row any more."""

    row: LockedJob


async def fire_locked(connection: Connection, row: LockedJob, definition: JobDefinition) -> FiredLocked:
    """Fire or record what is due. The caller holds the lock of `row`; `definition` is what the row says."""
    fired = FiredLocked(row=row)
    while not fired.gone and fired.row.next_fire_at is not None and fired.row.next_fire_at <= row.now:
        try:
            async with connection.transaction():
                await _step(connection, fired, definition)
        except _POISON as error:
            # The change may be what mends the job, so it must not fail with it.
            log.error("job cannot be fired", tenant=row.tenant_id, job=row.job_id, error=repr(error))
            missed = await miss_due(connection, fired.row, definition, _UNFIT, fired)
            following = first_fire(definition.schedule, row.now, missed.dealt_with)
            fired.row = msgspec.structs.replace(missed, next_fire_at=following, status=int(_status_before(following)))
    return fired


async def miss_due(
    connection: Connection, row: LockedJob, definition: JobDefinition, reason: str, effects: Effects | None = None
) -> LockedJob:
    """Record what was due, or would have been without a pause, as missed. Returns the row as it is to be: with that
    dealt with."""
    first = row.next_fire_at or row.paused_from
    if first is None or first > row.now:
        return row
    missed, last = Missed(first, first, 1, reason), first
    if definition.schedule.recurring:
        # In a thread, because a rare cron takes some milliseconds to count.
        missed, last = await asyncio.to_thread(_missed_through, definition.schedule, first, row.now, reason)
    await missed_fires.record(connection, row, missed)
    await _happened(connection, row, [missed], effects or Effects())
    return msgspec.structs.replace(row, last_nominal_for=latest(row.last_nominal_for, last))


async def _happened(connection: Connection, row: LockedJob, missed: Sequence[Missed], effects: Effects) -> None:
    events = [FireMissed(row.tenant_id, row.job_id, one.first, one.last, one.count, one.reason) for one in missed]
    await FIRES_MISSED.happened(connection, events, effects)


def _missed_through(schedule: Schedule, first: datetime, until: datetime, reason: str) -> tuple[Missed, datetime]:
    """The range, and its last nominal time."""
    (missed,) = missed_through(schedule, first, until, reason)
    return missed, nominal_of(schedule, missed.last)


async def _step(connection: Connection, fired: FiredLocked, definition: JobDefinition) -> None:
    row = fired.row
    assert row.next_fire_at is not None
    plan: FirePlan = await asyncio.to_thread(
        plan_fires, definition.schedule, row.next_fire_at, row.now, definition.spec.misfire, row.dealt_with
    )
    plan = limited(plan, row.runs_left)
    if definition.schedule.one_time and plan.runs:
        done = await fires.fire_locked_one_time(connection, row.tenant_id, row.job_id, row.version, row.next_fire_at)
        fired.gone = done.gone
    else:
        due = fires.DueAgain(row.tenant_id, row.job_id, row.version, row.next_fire_at, plan, row.generation)
        done = await fires.fire_locked_recurring(connection, due)
    if definition.overlap is Overlap.CANCEL_PREVIOUS:
        await cancel_earlier(connection, row.tenant_id, row.job_id, done.held, fired)
    if not (done.moved or done.gone):
        raise changed_meanwhile(f"job {row.job_id!r}")
    fired.row = msgspec.structs.replace(
        row,
        next_fire_at=plan.next_fire,
        last_fired_for=plan.through,
        last_nominal_for=latest(row.last_nominal_for, plan.dealt_with),
        status=int(_status_before(plan.next_fire)),
        runs_left=None if row.runs_left is None else row.runs_left - len(plan.runs),
    )
    for lane_id, created in done.created.items():
        fired.created[lane_id] = fired.created.get(lane_id, 0) + created
    fired.held += len(done.held)
    await RUNS_CREATED.happened(connection, [RunsCreated(done.created, done.lines, done.with_edges)], fired)
    if plan.missed:
        await _happened(connection, row, plan.missed, fired)
    after_end(done.skipped, fired)


def _status_before(following: datetime | None) -> StoredJobStatus:
    return StoredJobStatus.COMPLETED if following is None else StoredJobStatus.SCHEDULED
