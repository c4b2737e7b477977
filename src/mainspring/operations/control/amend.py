"""Changes to existing jobs and runs: update, pause, resume, delete, run now, cancel a run.

Each change locks the job's row first, so it cannot interleave with a fire. It also raises the version, so a fire that
was prepared before the change fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput, NotFound, VersionMismatch
from mainspring.domain.intake.declaration import amended
from mainspring.domain.job import JobDefinition
from mainspring.domain.schedules.misfire import Missed
from mainspring.domain.schedules.schedule import ScheduleKind, anchored, fires, next_fire
from mainspring.domain.transitions import StoredJobStatus, StoredState, job_may_follow
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.operations.access.caller import Caller
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.fire import run_now
from mainspring.operations.lookup import load_lane, no_job, own_run
from mainspring.operations.signals import Signals
from mainspring.operations.submit.signature_registry import SignatureRegistry
from mainspring.store import history, jobs, runs
from mainspring.store.jobs import JobRow, LockedJob
from mainspring.store.lanes import LaneRegistry, lane_key
from mainspring.store.pool import Connection, Store
from mainspring.wire.jobs import JobPatch

_MISSED_AT_ONCE = 100_000
_SIGN_OF_LIFE = 0.5


class RanNow(msgspec.Struct, frozen=True):
    run_id: UUID
    skipped: bool


class Amender:
    def __init__(self, store: Store, lanes: LaneRegistry, signals: Signals, signatures: SignatureRegistry) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._signatures = signatures

    async def update(self, caller: Caller, job_id: str, patch: JobPatch, if_version: int | None) -> None:
        tenant = caller.tenant
        async with self._store.change() as connection:
            row = await self._lock(connection, tenant, job_id, "changed")
            self._check_version(row, if_version)
            status = StoredJobStatus(row.status)
            if status is StoredJobStatus.CANCELLED:
                raise Conflict(f"job {job_id!r} is CANCELLED", code="job_cancelled", hint="create a new one")
            stored = await self._definition(connection, row)
            now = row.now
            changed = amended(stored, patch, now, self._signatures.known(tenant))
            moved = changed.schedule != stored.schedule
            next_at, paused_from = row.next_fire_at, row.paused_from
            if moved:
                changed = msgspec.structs.replace(changed, schedule=anchored(changed.schedule, now))
                first = self._first_fire(changed, row)
                paused = status is StoredJobStatus.PAUSED
                next_at, paused_from = (None, first) if paused else (first, None)
                if status is StoredJobStatus.COMPLETED:
                    status = StoredJobStatus.SCHEDULED
            lanes = await self._lanes.intern(connection, [key := lane_key(tenant, changed)])
            await self._write(connection, row, status, next_at, paused_from, lanes[key], changed)
        self._signals.due()

    async def pause(self, caller: Caller, job_id: str) -> None:
        tenant = caller.tenant
        async with self._store.change() as connection:
            row = await self._lock(connection, tenant, job_id, "paused")
            status = StoredJobStatus(row.status)
            if status is StoredJobStatus.PAUSED:
                return
            self._check_transition(job_id, status, StoredJobStatus.PAUSED)
            definition = await self._definition(connection, row)
            await self._write(connection, row, StoredJobStatus.PAUSED, None, row.next_fire_at, row.lane_id, definition)

    async def resume(self, caller: Caller, job_id: str) -> None:
        """Continue from now. The fires of the pause are recorded as missed. A one-time job that became due fires."""
        tenant = caller.tenant
        async with self._store.change() as connection:
            row = await self._lock(connection, tenant, job_id, "resumed")
            status = StoredJobStatus(row.status)
            if status is StoredJobStatus.SCHEDULED:
                return
            if status is not StoredJobStatus.PAUSED:
                raise Conflict(f"job {job_id!r} is {status.name}, not PAUSED", code="not_paused")
            definition = await self._definition(connection, row)
            next_at = row.paused_from
            if definition.schedule.recurring and next_at is not None and next_at <= row.now:
                for missed in await _count_missed(connection, definition, next_at, row.now):
                    await jobs.record_missed(connection, tenant, job_id, missed)
                next_at = next_fire(definition.schedule, row.now)
            await self._write(connection, row, StoredJobStatus.SCHEDULED, next_at, None, row.lane_id, definition)
        self._signals.due()

    async def cancel_job(self, caller: Caller, job_id: str) -> None:
        """Delete the job: it fires no more, its queued runs end, and its running ones are told to stop."""
        tenant = caller.tenant
        async with self._store.change() as connection:
            row = await jobs.lock(connection, tenant, job_id)
            if row is not None and row.status != StoredJobStatus.CANCELLED:
                definition = await self._definition(connection, row)
                await self._write(connection, row, StoredJobStatus.CANCELLED, None, None, row.lane_id, definition)
            live: list[runs.LockedRun] = []
            own = await own_run(connection, tenant, job_id)  # it is older than manual runs, so this is key order
            if own is not None and (locked := await runs.lock_run(connection, tenant, own.run_id)) is not None:
                live.append(locked)
            live += await runs.lock_runs_of_job(connection, tenant, job_id)
            effects = await cancel(connection, live)
            if row is None and own is None and not live and not await self._has_ended(connection, tenant, job_id):
                raise no_job(job_id)
        for worker_id in effects.stops:
            self._signals.stop(worker_id)

    async def cancel_run(self, caller: Caller, run_id: UUID) -> None:
        tenant = caller.tenant
        async with self._store.change() as connection:
            row = await runs.lock_run(connection, tenant, run_id)
            if row is None:
                ended = await history.ended_run(connection, tenant, run_id)
                if ended is None:
                    raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
                state = StoredState(ended.state)
                if state is StoredState.CANCELLED:
                    return
                raise Conflict(f"run {run_id} has ended with {state.name}", code="run_ended")
            effects = await cancel(connection, [row])
        for worker_id in effects.stops:
            self._signals.stop(worker_id)

    async def run_now(self, caller: Caller, job_id: str) -> RanNow:
        tenant = caller.tenant
        run_id = uuid7()
        async with self._store.change() as connection:
            row = await self._lock(connection, tenant, job_id, "run again")
            if row.status == StoredJobStatus.CANCELLED:
                raise Conflict(f"job {job_id!r} is CANCELLED", code="job_cancelled", hint="create a new one")
            fired = await run_now(connection, tenant, job_id, run_id, f"manual:{run_id}")
            if fired is None:
                raise Conflict(f"job {job_id!r} changed meanwhile", code="changed_meanwhile", hint="try again")
        self._signals.ready(fired.created)
        return RanNow(run_id, skipped=not fired.created)

    async def _lock(self, connection: Connection, tenant: TenantId, job_id: str, what: str) -> LockedJob:
        row = await jobs.lock(connection, tenant, job_id)
        if row is not None:
            return row
        fired = bool(await runs.lock_runs_of_job(connection, tenant, job_id))
        if fired or await own_run(connection, tenant, job_id) or await self._has_ended(connection, tenant, job_id):
            raise Conflict(
                f"job {job_id!r} was to run once and has fired; it cannot be {what}",
                code="already_fired",
                hint="submit a new job",
            )
        raise no_job(job_id)

    async def _has_ended(self, connection: Connection, tenant: TenantId, job_id: str) -> bool:
        return bool(await history.runs_of_job(connection, tenant, job_id, None, 1))

    async def _definition(self, connection: Connection, row: JobRow) -> JobDefinition:
        return jobs.definition_of(row, await load_lane(self._lanes, connection, row.lane_id))

    def _first_fire(self, definition: JobDefinition, row: LockedJob) -> datetime | None:
        """The first fire of a changed schedule: after now, and after the last time for which the job fired."""
        schedule, fired = definition.schedule, row.last_fired_for
        if schedule.kind is not ScheduleKind.AT:
            return next_fire(schedule, _later(row.now, fired))
        if fired is not None and schedule.at is not None and schedule.at <= fired:
            raise InvalidInput(
                f"the job has fired for {fired.isoformat()} already",
                code="already_fired_for",
                field="schedule.at",
                expected="a later time",
            )
        return schedule.at

    def _check_version(self, row: JobRow, if_version: int | None) -> None:
        if if_version is not None and if_version != row.version:
            raise VersionMismatch(
                f"the job has version {row.version}, not {if_version}",
                field="If-Match",
                hint="read the job again and repeat the change",
            )

    def _check_transition(self, job_id: str, before: StoredJobStatus, after: StoredJobStatus) -> None:
        if not job_may_follow(before, after):
            raise Conflict(f"job {job_id!r} is {before.name} and cannot become {after.name}", code="wrong_status")

    async def _write(
        self,
        connection: Connection,
        row: JobRow,
        status: StoredJobStatus,
        next_fire_at: datetime | None,
        paused_from: datetime | None,
        lane_id: int,
        definition: JobDefinition,
    ) -> None:
        changed = await jobs.change(
            connection,
            row.tenant_id,
            row.job_id,
            row.version,
            status=int(status),
            next_fire_at=next_fire_at,
            paused_from=paused_from,
            lane_id=lane_id,
            definition=definition,
        )
        if not changed:
            raise Conflict(f"job {row.job_id!r} changed meanwhile", code="changed_meanwhile", hint="try again")


async def _count_missed(
    connection: Connection, definition: JobDefinition, first: datetime, until: datetime
) -> list[Missed]:
    """Count in a thread: three days of a one-second cron take 4 s, and workers must be heard meanwhile. PostgreSQL ends
    a transaction that is idle for 2 s, so it hears of this one meanwhile too."""
    counting = asyncio.ensure_future(asyncio.to_thread(_missed_in_pause, definition, first, until))
    while not (await asyncio.wait({counting}, timeout=_SIGN_OF_LIFE))[0]:
        await connection.execute("select 1")
    return counting.result()


def _missed_in_pause(definition: JobDefinition, first: datetime, until: datetime) -> list[Missed]:
    """The fires in [first, until], as ranges of at most 100,000."""
    return list(_ranges(definition, first, until))


def _ranges(definition: JobDefinition, first: datetime, until: datetime) -> Iterator[Missed]:
    count, begin, last = 0, first, first
    for moment in fires(definition.schedule, first - timedelta(microseconds=1)):
        if moment > until:
            break
        if count == 0:
            begin = moment
        count, last = count + 1, moment
        if count == _MISSED_AT_ONCE:
            yield Missed(begin, last, count, "paused")
            count = 0
    if count:
        yield Missed(begin, last, count, "paused")


def _later(now: datetime, last_fired_for: datetime | None) -> datetime:
    return now if last_fired_for is None else max(now, last_fired_for)
