"""Fire: create the runs of due jobs. The overlap rule of the job says what happens if an earlier run is alive: the new
one is SKIPPED, waits for it (HELD), runs beside it, or replaces it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.job import REPLACED
from mainspring.kernel.ids import TenantId
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.dispatch import FIRES_MISSED, RUNS_CREATED
from mainspring.operations.lifecycle.effects import Effects, after_end
from mainspring.operations.lifecycle.events import FireMissed, RunsCreated
from mainspring.store import fires, runs
from mainspring.store.pool import Connection

_PATIENCE = "50ms"  # how long a batch waits for a job or a run that another transaction has locked
_SHORT_OF_PATIENCE = f"set local lock_timeout = '{_PATIENCE}'"


class FireEffects(Effects):
    """How many runs each lane got, which recurring jobs fired, by their index in the batch, how many one-time jobs
    fired, and how many runs are HELD."""

    created: dict[int, int] = msgspec.field(default_factory=dict)
    moved: list[int] = msgspec.field(default_factory=list)
    gone: int = 0
    held: int = 0

    @property
    def total(self) -> int:
        """How many runs were created."""
        return sum(self.created.values()) + self.held

    def add(self, other: FireEffects) -> None:
        """Another part of the same batch."""
        for lane_id, count in other.created.items():
            self.created[lane_id] = self.created.get(lane_id, 0) + count
        self.moved += other.moved
        self.gone += other.gone
        self.held += other.held
        self.merge(other)


async def fire_recurring(
    connection: Connection,
    node_id: UUID,
    leases: Mapping[int, int],
    due: Sequence[fires.DueAgain],
    *,
    overlap: bool,
    locked: bool = False,
) -> FireEffects:
    """Fire recurring jobs as planned. `overlap`: some of them have a rule about runs that are alive. These are locked
    first, so that the fire sees every run that was created before. `locked`: the caller has locked the jobs in an
    earlier statement of its transaction. A job that another transaction has locked does not fire, and is not in
    `moved`."""
    if overlap and not locked:

        async def part(places: Sequence[int]) -> FireEffects:
            return await _lock_and_fire(connection, node_id, leases, due, places)

        return await _in_parts([job.replaces for job in due], part)
    # A statement is its own transaction, unless what it does has to be handled with it.
    together = FIRES_MISSED.wanted([missed for job in due if job.plan.missed for missed in _missed(job)])
    try:
        async with connection.transaction() if together else nullcontext():
            done = await fires.fire_recurring(connection, node_id, leases, due, _PATIENCE)
            return await _finished(connection, done, due, done.moved)
    except asyncpg.LockNotAvailableError:
        if locked:
            raise
    async with connection.transaction() if together else nullcontext():
        done = await fires.fire_free(connection, node_id, leases, due)
        return await _finished(connection, done, due, done.moved)


def _missed(job: fires.DueAgain) -> list[FireMissed]:
    return [
        FireMissed(job.tenant_id, job.job_id, one.first, one.last, one.count, one.reason) for one in job.plan.missed
    ]


async def _lock_and_fire(
    connection: Connection,
    node_id: UUID,
    leases: Mapping[int, int],
    due: Sequence[fires.DueAgain],
    places: Sequence[int],
) -> FireEffects:
    """Fire the jobs at these places of the batch in one transaction."""
    async with connection.transaction():
        locked = await fires.lock_due(connection, node_id, leases, [due[place] for place in places])
        free = [places[index] for index in locked]
        if not free:
            return FireEffects()
        done = await fires.fire_recurring(connection, node_id, leases, [due[place] for place in free])
        moved = [free[index] for index in done.moved]
        if any(due[place].replaces for place in moved):
            await connection.execute(_SHORT_OF_PATIENCE)
        return await _finished(connection, done, due, moved)


async def _in_parts(replaces: Sequence[bool], fire: Callable[[Sequence[int]], Awaitable[FireEffects]]) -> FireEffects:
    """Fire a batch in one transaction. If another transaction holds a run that a job of it replaces, or its line, each
    such job has a transaction of its own, so that it does not hold up the others. One that would have to wait does not
    fire."""
    places = range(len(replaces))
    try:
        return await fire(places)
    except asyncpg.LockNotAvailableError:
        if not any(replaces):
            raise
    fired = FireEffects()
    if others := [place for place in places if not replaces[place]]:
        fired.add(await fire(others))
    for place in places:
        if replaces[place]:
            with suppress(asyncpg.LockNotAvailableError):
                fired.add(await fire([place]))
    return fired


async def _finished(
    connection: Connection, done: fires.FiredRows, due: Sequence[fires.DueAgain], moved: list[int]
) -> FireEffects:
    fired = await from_store(connection, done)
    fired.moved = moved
    if missed := [one for place in moved if due[place].plan.missed for one in _missed(due[place])]:
        await FIRES_MISSED.happened(connection, missed, fired)
    for place in moved:
        if due[place].replaces:
            await cancel_earlier(connection, TenantId(due[place].tenant_id), due[place].job_id, done.held, fired)
    return fired


async def from_store(connection: Connection, done: fires.FiredRows) -> FireEffects:
    """What follows from runs that were created."""
    fired = FireEffects(created=done.created, gone=done.gone, held=len(done.held))
    await RUNS_CREATED.happened(connection, [RunsCreated(done.created, done.lines, done.with_edges)], fired)
    after_end(done.skipped, fired)
    return fired


async def fire_one_time(
    connection: Connection,
    node_id: UUID,
    leases: Mapping[int, int],
    due: Sequence[fires.DueOnce],
    *,
    locked: bool = False,
) -> FireEffects:
    """Fire one-time jobs. A job that another transaction has locked does not fire. `locked`: as above."""
    if not any(job.replaces for job in due):
        return await from_store(connection, await fires.fire_one_time(connection, node_id, leases, due))

    async def part(places: Sequence[int]) -> FireEffects:
        async with connection.transaction():
            done = await fires.fire_one_time(connection, node_id, leases, [due[place] for place in places])
            fired = await from_store(connection, done)
            replacing = [due[place] for place in places if due[place].replaces and due[place].run_id in done.held]
            if replacing and not locked:
                await connection.execute(_SHORT_OF_PATIENCE)
            for job in replacing:
                await cancel_earlier(connection, TenantId(job.tenant_id), job.job_id, [job.run_id], fired)
        return fired

    return await (part(range(len(due))) if locked else _in_parts([job.replaces for job in due], part))


async def cancel_earlier(
    connection: Connection, tenant: TenantId, job_id: str, created: Collection[UUID], fired: FireEffects
) -> None:
    """Overlap cancel_previous: of the live runs of the job, only the last one that was `created` just now stays, and
    those of backfills. Those that run are told to stop, and hold the slot of the job until they have. The caller holds
    the job's lock."""
    live = await runs.lock_overlapping(connection, tenant, job_id)
    new = [run.run_id for run in live if run.run_id in created]
    if not new:
        return
    effects = await cancel(connection, [run for run in live if run.run_id != new[-1]], REPLACED)
    fired.merge(effects)


async def run_now(
    connection: Connection,
    tenant: TenantId,
    job_id: str,
    run_id: UUID,
    trigger: str,
    changed: fires.Changed | None = None,
    created_by: UUID | None = None,
) -> FireEffects | None:
    """Create a manual run, with payload and spec of `changed` if given. It is skipped if nothing was created and it is
    not HELD. Return None if the job is cancelled or does not exist. The caller holds the job's lock."""
    run = await fires.run_now(connection, tenant, job_id, run_id, trigger, changed, created_by)
    return None if run is None else await _manual(connection, run_id, run)


async def run_again(connection: Connection, tenant: TenantId, item: fires.Repeat) -> FireEffects:
    """Create a manual run of a one-time job that has fired. The caller holds the lock of the fired job."""
    return await _manual(connection, item.run_id, await fires.run_again(connection, tenant, item))


async def _manual(connection: Connection, run_id: UUID, run: fires.ManualRun) -> FireEffects:
    held_in = [] if run.line is None else [run.line]
    fired = FireEffects(created={} if run.skipped or held_in else {run.lane_id: 1}, held=len(held_in))
    await RUNS_CREATED.happened(connection, [RunsCreated(fired.created, held_in)], fired)
    after_end([(run_id, run.follows, None, None)], fired)
    return fired
