"""Changes to existing jobs and runs: update, pause, resume, delete, run now, cancel a run.

Each change locks the job's row first, so it cannot interleave with a fire. It also raises the version, so a fire that
was prepared before the change fails. What is due when the lock is held is not lost. An update deals with it by the old
definition (operations/lifecycle/fire_locked.py); a one-time job that is due is not updated any more. Pause and delete
record it as missed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from uuid import UUID

import msgspec

from mainspring.domain.backfills import JOB_CANCELLED, BackfillState
from mainspring.domain.dependencies import parents_of
from mainspring.domain.errors import Conflict, InvalidInput, NotFound
from mainspring.domain.intake.declaration import amended
from mainspring.domain.intake.patch import change_warnings, changes_nothing, names_schedule
from mainspring.domain.intake.recurrence import never_fires, runs_left_after
from mainspring.domain.job import JobDefinition
from mainspring.domain.refusals import ALREADY_FIRED, already_fired, cancelled, ended, paused
from mainspring.domain.schedules.nominal_times import first_fire, first_fire_instead
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind, for_job
from mainspring.domain.tags import changed_meanwhile, check_tag, check_version, run_tag
from mainspring.domain.transitions import JobStatus, StoredJobStatus, StoredState, job_may_follow
from mainspring.kernel import metrics
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.audit_record import audited_job, record
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.ownership import check_own
from mainspring.operations.calendars.rules import load_rules, with_current_rules
from mainspring.operations.dependencies.edge_changes import change_edges, names_parents
from mainspring.operations.dependencies.edges import fire_if_met
from mainspring.operations.dependencies.effects import DependencyEffects
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.dispatch import BACKFILLS_ENDED, finish
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import BackfillEnded
from mainspring.operations.lifecycle.fire_locked import FiredLocked, fire_locked, miss_due
from mainspring.operations.limits.changed_rules import change_lines
from mainspring.operations.limits.effects import admit_woken
from mainspring.operations.limits.quota_guard import check_stored, take_job_places
from mainspring.operations.lookup import load_lane, no_job, own_run, refuse_step
from mainspring.operations.notify.job_channels import check_channels_of
from mainspring.operations.object_guard import check_reached
from mainspring.operations.read.one_time import fired_job
from mainspring.operations.read.views import fired_definition, job_view
from mainspring.operations.secrets.secret_check import check_in, named_by
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.signatures.slow_checks import prepare_checks
from mainspring.store import backfills, dependencies, history, jobs, runs
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.history import LiveRun
from mainspring.store.jobs import JobRow, LockedJob, schedule_from_text
from mainspring.store.lanes import LaneRegistry, lane_key
from mainspring.store.pool import Connection, Store
from mainspring.store.shown_definitions import definition_to_show
from mainspring.wire.jobs import JobPatch

PAUSED = "paused"
DELETED = "deleted"
CANCELLED = "cancelled"
Check = Callable[[Connection], Awaitable[bool]]
Change = Callable[[Connection, LockedJob, JobDefinition], Awaitable[JobDefinition]]


class GivenChange(msgspec.Struct, frozen=True):
    """A change as it was given. `changed` returns what it makes of a definition; None if it cannot be repeated."""

    changed: Callable[[JobDefinition, datetime], JobDefinition] | None = None
    names_schedule: bool = False


class Amender:
    def __init__(self, store: Store, lanes: LaneRegistry, signals: Signals, signatures: SignatureRegistry) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._signatures = signatures

    async def update(self, caller: Caller, job_id: str, patch: JobPatch, if_version: int | None) -> list[str]:
        """Change the job. Returns warnings about what may not be meant."""
        await prepare_checks([patch])

        def changed(stored: JobDefinition, now: datetime) -> JobDefinition:
            return amended(stored, patch, now, self._signatures.known(caller.tenant))

        async def change(_: Connection, row: LockedJob, stored: JobDefinition) -> JobDefinition:
            return changed(stored, row.now)

        given = GivenChange(changed, names_schedule=names_schedule(patch))
        return await self.update_by(caller, job_id, change, if_version, given, patch)

    async def update_by(
        self,
        caller: Caller,
        job_id: str,
        change: Change,
        if_version: int | None,
        given: GivenChange,
        patch: JobPatch | None = None,
    ) -> list[str]:
        """Give the job the definition that `change` returns. It is called in the transaction that has locked the job,
        perhaps more than once. `patch`: the change, unless it is that of a workflow. Returns warnings."""
        warnings: list[str] = []
        update = partial(self._update, caller, job_id, change, if_version, given, patch, warnings)
        fired = await despite_deadlocks(update)
        if fired is not None:
            self._publish(fired)
            self._signals.due.publish()
        return warnings

    async def _update(
        self,
        caller: Caller,
        job_id: str,
        change: Change,
        if_version: int | None,
        given: GivenChange,
        patch: JobPatch | None,
        warnings: list[str],
    ) -> FiredLocked | None:
        """None if the change is a repeat: the job is so already, or it was before it fired."""
        tenant = caller.tenant
        async with self._store.change() as connection:
            if names_parents(patch):
                await dependencies.lock_graph(connection, tenant)
            try:
                row = await self._lock(connection, caller, job_id, "changed")
            except Conflict as refused:
                repeatable = refused.code == ALREADY_FIRED and if_version is None
                if repeatable and await self._was_so(connection, tenant, job_id, given):
                    return None
                raise
            check_version("job", row.version, if_version)
            status = StoredJobStatus(row.status)
            stored = await self._definition(connection, row)
            if status is StoredJobStatus.CANCELLED:
                raise cancelled(job_id, one_time=stored.schedule.one_time)
            changed = await change(connection, row, stored)
            if caller.narrowing is not None:
                caller.narrowing.check_inside(changed.queue, changed.task, changed.spec.labels)
                if parents := set(parents_of(changed)) - set(parents_of(stored)):
                    await check_reached(self._lanes, connection, caller, parents, "depends_on")
            if changed.spec.setup != stored.spec.setup or (changed.queue, changed.task) != (stored.queue, stored.task):
                await check_in(connection, tenant, named_by([changed]))
            again = given.names_schedule and status is StoredJobStatus.COMPLETED  # missed, so it has not fired
            if stored.schedule.one_time and not again and changes_nothing(stored, changed, row.now):
                return None
            if changed.spec.notify != stored.spec.notify:
                await check_channels_of(connection, tenant, changed)
            if changed.schedule.calendar is not None and changed.schedule.calendar_version is None:
                changed = await with_current_rules(connection, tenant, changed, row.now)
            fired = await fire_locked(connection, row, stored)
            if fired.gone:  # a refused change changes nothing: the transaction ends, and the scheduler fires the job
                raise already_fired(job_id, "changed", "is due now")
            await self._redefine(connection, fired.row, stored, changed, again=again)
            warnings[:] = change_warnings(stored, changed)
            if parents_of(changed) != parents_of(stored):
                await change_edges(connection, fired.row, changed, patch)
            if changed.schedule.after is not None:
                fired.of(DependencyEffects).due |= await fire_if_met(connection, [(tenant, job_id)]) > 0
            await change_lines(connection, tenant, job_id, stored, changed, fired)
            await admit_woken(connection, fired)  # who waits no longer for what the job has given up
            await self._audit(connection, caller, row)
        return fired

    async def _was_so(self, connection: Connection, tenant: TenantId, job_id: str, given: GivenChange) -> bool:
        """Whether the change would change nothing of a one-time job that has fired."""
        job = await fired_job(connection, tenant, job_id)
        if given.changed is None or job is None:
            return False
        stored = fired_definition(job.fired, await load_lane(self._lanes, connection, job.fired.lane_id))
        now = job.deciding.now if isinstance(job.deciding, LiveRun) else job.deciding.ended_at
        try:
            return changes_nothing(stored, given.changed(stored, now), now)
        except InvalidInput:
            return False

    async def _redefine(
        self, connection: Connection, row: LockedJob, stored: JobDefinition, changed: JobDefinition, *, again: bool
    ) -> None:
        """Write the changed definition. Nothing is due by the stored one, except what a pause holds back. `again`: the
        time counts even if it is the stored one."""
        status, next_at, paused_from = StoredJobStatus(row.status), row.next_fire_at, row.paused_from
        places: int | None = None
        schedule = for_job(changed.schedule, row.tenant_id, row.job_id, row.now)
        changed = msgspec.structs.replace(changed, schedule=schedule)
        if schedule != stored.schedule or (again and schedule.at is not None):
            if status is StoredJobStatus.PAUSED:
                if schedule.at == row.now:
                    raise paused(row.job_id)
                row = await miss_due(connection, row, stored, PAUSED)
            first = _first_fire(schedule, row, stored)
            if first is None and schedule.recurring:
                raise never_fires(schedule)
            row = msgspec.structs.replace(row, runs_left=runs_left_after(stored.schedule, row.runs_left, schedule))
            requested = schedule.at if first != schedule.at else None
            changed = msgspec.structs.replace(
                changed, spec=msgspec.structs.replace(changed.spec, requested_at=requested)
            )
            next_at, paused_from = (None, first) if status is StoredJobStatus.PAUSED else (first, None)
            if status is StoredJobStatus.COMPLETED:
                places = await take_job_places(connection, row.tenant_id)
                status = StoredJobStatus.SCHEDULED
        lanes = await self._lanes.intern(connection, [key := lane_key(row.tenant_id, changed)])
        await self._write(connection, row, status, next_at, paused_from, lanes[key], changed, pruned=row.pruned)
        await check_stored(connection, row.tenant_id, places)

    def _publish(self, fired: FiredLocked) -> None:
        metrics.fired.inc(fired.total)
        self._signals.ready.publish(fired.created)
        fired.publish(self._signals)

    async def pause(self, caller: Caller, job_id: str, if_version: int | None = None) -> None:
        """Stop the fires. What is due already and has not fired is missed; a one-time job keeps its fire. A job that is
        paused since its application no longer declares it becomes paused by a person."""
        async with self._store.change() as connection:
            await self.pause_in(caller, connection, job_id, if_version)

    async def pause_in(
        self, caller: Caller, connection: Connection, job_id: str, if_version: int | None = None
    ) -> None:
        """Pause a job in the caller's transaction."""
        row = await self._lock(connection, caller, job_id, "paused")
        check_version("job", row.version, if_version)
        status = StoredJobStatus(row.status)
        if status is StoredJobStatus.PAUSED and not row.pruned:
            return
        if status is not StoredJobStatus.PAUSED and not job_may_follow(status, StoredJobStatus.PAUSED):
            raise _ended(row, "paused", "wrong_status")
        await self._pause(connection, row)
        await self._audit(connection, caller, row)

    async def prune(self, caller: Caller, application: str, job_id: str, still: Check) -> bool:
        """Pause a job that its application no longer declares, if `still` holds. Return whether it was paused."""
        async with self._store.change() as connection:
            if not await still(connection):
                return False
            row = await jobs.lock(connection, caller.tenant, job_id)
            if row is None or row.declared_by != application or row.status != StoredJobStatus.SCHEDULED:
                return False
            await self._pause(connection, row, pruned=True)
            await self._audit(connection, caller, row)
        return True

    async def _pause(self, connection: Connection, row: LockedJob, *, pruned: bool = False) -> None:
        definition = await self._definition(connection, row)
        paused_from = row.paused_from if row.status == StoredJobStatus.PAUSED else row.next_fire_at
        if row.next_fire_at is not None and definition.schedule.recurring and row.next_fire_at <= row.now:
            row = await miss_due(connection, row, definition, PAUSED)
            paused_from = _next_fire(definition, row, row.now)
        await self._write(
            connection, row, StoredJobStatus.PAUSED, None, paused_from, row.lane_id, definition, pruned=pruned
        )

    async def resume(self, caller: Caller, job_id: str, if_version: int | None = None) -> None:
        """Continue from now. The fires of the pause are recorded as missed. A one-time job that became due fires. A
        cancelled job is revived if it was to run more than once; the fires since the cancel are recorded as missed. If
        an application no longer declares the job, it does not belong to that application any more, so that it is not
        paused again."""
        async with self._store.change() as connection:
            resumed = await self.resume_in(caller, connection, job_id, if_version)
        if resumed:
            self.publish_resumed()

    async def resume_in(
        self, caller: Caller, connection: Connection, job_id: str, if_version: int | None = None
    ) -> bool:
        """Resume a job in the caller's transaction. Return whether the job has changed. If so, the caller calls
        `publish_resumed` after the commit."""
        row = await self._lock(connection, caller, job_id, "resumed")
        check_version("job", row.version, if_version)
        status = StoredJobStatus(row.status)
        if status is StoredJobStatus.SCHEDULED:
            return False
        one_time = schedule_from_text(row.schedule_text).one_time
        if status is StoredJobStatus.COMPLETED or (status is StoredJobStatus.CANCELLED and one_time):
            raise _ended(row, "resumed", "not_paused")
        await self._resume(connection, row, None if row.pruned else row.declared_by)
        await self._audit(connection, caller, row)
        await fire_if_met(connection, [(caller.tenant, job_id)])
        return True

    def publish_resumed(self) -> None:
        self._signals.due.publish()
        self._signals.backfills.publish(())

    async def resume_declared(self, caller: Caller, application: str, job_id: str, still: Check) -> bool:
        """Resume a job that its application declares again, if `still` holds. Return whether it was resumed."""
        async with self._store.change() as connection:
            if not await still(connection):
                return False
            row = await jobs.lock(connection, caller.tenant, job_id)
            if row is None or row.declared_by != application or not row.pruned:
                return False
            await self._resume(connection, row, application)
            await self._audit(connection, caller, row)
        self._signals.due.publish()
        return True

    async def _resume(self, connection: Connection, row: LockedJob, declared_by: str | None) -> None:
        definition = await self._definition(connection, row)
        reason, places = PAUSED, None  # a job that comes back is a stored one again
        if row.status == StoredJobStatus.CANCELLED:
            places = await take_job_places(connection, row.tenant_id)
            # The calendar may have changed: the next fires of cancelled jobs do not follow it.
            definition = await with_current_rules(connection, row.tenant_id, definition, row.now)
            # The cancel has recorded what was due by then.
            first = _next_fire(definition, row, row.updated_at)
            row, reason = msgspec.structs.replace(row, paused_from=first), CANCELLED
        next_at = row.paused_from
        if definition.schedule.recurring and next_at is not None and next_at <= row.now:
            row = await miss_due(connection, row, definition, reason)
            next_at = _next_fire(definition, row, row.now)
        definition = msgspec.structs.replace(definition, declared_by=declared_by)
        over = next_at is None and definition.schedule.recurring
        status = StoredJobStatus.COMPLETED if over else StoredJobStatus.SCHEDULED
        await self._write(connection, row, status, next_at, None, row.lane_id, definition)
        await check_stored(connection, row.tenant_id, places)

    async def cancel_job(self, caller: Caller, job_id: str, if_version: int | None = None) -> None:
        """Delete the job: it fires no more, its queued runs end, and its running ones are told to stop. What is due
        already and has not fired is missed."""
        async with self._store.change() as connection:
            effects = await self.cancel_job_in(caller, connection, job_id, if_version)
        await finish(effects, self._store, self._signals)

    async def cancel_job_in(
        self, caller: Caller, connection: Connection, job_id: str, if_version: int | None = None
    ) -> Effects:
        """Cancel a job in the caller's transaction. The caller publishes the effects after the commit."""
        tenant = caller.tenant
        row = await jobs.lock(connection, tenant, job_id)
        over: list[UUID] = []
        if row is not None:
            check_own(caller, row.created_by, f"job {job_id!r}")
            check_version("job", row.version, if_version)
        if row is not None and row.status != StoredJobStatus.CANCELLED:
            await self._cancel(connection, row)
            over = await backfills.end_of_job(connection, tenant, job_id, JOB_CANCELLED)
        live: list[runs.LockedRun] = []
        own = await own_run(connection, tenant, job_id)  # it is older than manual runs, so this is key order
        if row is None:
            await refuse_step(connection, tenant, job_id, own)
        if own is not None and (locked := await runs.lock_run(connection, tenant, own.run_id)) is not None:
            live.append(locked)
        live += await runs.lock_runs_of_job(connection, tenant, job_id)
        effects = await cancel(connection, live)
        if over:
            state = int(BackfillState.CANCELLED)
            ended = [BackfillEnded(tenant, backfill_id, job_id, state) for backfill_id in over]
            await BACKFILLS_ENDED.happened(connection, ended, effects)
        effects.of(DependencyEffects).check |= await dependencies.poll_again(connection, [(tenant, job_id)]) > 0
        if row is None and own is None and not live and not await self._has_ended(connection, tenant, job_id):
            raise no_job(job_id)
        if row is not None:
            await self._audit(connection, caller, row)
        elif live:
            await record(connection, caller, "job", job_id, None, {"status": CANCELLED.upper()})
        return effects

    async def _cancel(self, connection: Connection, row: LockedJob) -> None:
        reason = DELETED if row.paused_from is None else PAUSED
        lane = await load_lane(self._lanes, connection, row.lane_id)
        definition, problem = definition_to_show(row, lane)
        await load_rules(connection, row.tenant_id, [definition.schedule])
        row = await miss_due(connection, row, definition, reason)
        if problem is None:
            await self._write(connection, row, StoredJobStatus.CANCELLED, None, None, row.lane_id, definition)
        elif not await jobs.cancel_unreadable(connection, row):
            raise _changed(row)

    async def cancel_run(
        self, caller: Caller, run_id: UUID, reason: str | None = None, *, if_match: str | None = None
    ) -> None:
        tenant = caller.tenant
        async with self._store.change() as connection:
            row = await runs.lock_run(connection, tenant, run_id)
            if row is None:
                ended = await history.ended_run(connection, tenant, run_id)
                if ended is None:
                    raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
                check_tag("run", run_tag(ended.state, ended.fence), if_match)
                state = StoredState(ended.state)
                if state is StoredState.CANCELLED:
                    return
                raise Conflict(f"run {run_id} has ended with {state.name}", code="run_ended")
            check_tag("run", run_tag(row.state, row.fence), if_match)
            effects = await cancel(connection, [row], reason)
            before = {"status": StoredState(row.state).name}
            await record(connection, caller, "run", run_id, before, {"status": CANCELLED.upper(), "reason": reason})
        await finish(effects, self._store, self._signals)

    async def _audit(self, connection: Connection, caller: Caller, before: LockedJob) -> None:
        """Record how the job has changed."""
        if caller.operation is None:
            return
        rows = (before, await jobs.get(connection, before.tenant_id, before.job_id))
        shown = [
            None if row is None else audited_job(job_view(row, await load_lane(self._lanes, connection, row.lane_id)))
            for row in rows
        ]
        await record(connection, caller, "job", before.job_id, *shown)

    async def _lock(self, connection: Connection, caller: Caller, job_id: str, what: str) -> LockedJob:
        tenant = caller.tenant
        row = await jobs.lock(connection, tenant, job_id)
        if row is not None:
            check_own(caller, row.created_by, f"job {job_id!r}")
            return row
        own = await own_run(connection, tenant, job_id)
        await refuse_step(connection, tenant, job_id, own)
        fired = bool(await runs.lock_runs_of_job(connection, tenant, job_id))
        if fired or own or await self._has_ended(connection, tenant, job_id):
            raise already_fired(job_id, what)
        raise no_job(job_id)

    async def _has_ended(self, connection: Connection, tenant: TenantId, job_id: str) -> bool:
        return bool(await history.runs_of_job(connection, tenant, job_id, None, 1))

    async def _definition(self, connection: Connection, row: JobRow) -> JobDefinition:
        definition = jobs.definition_of(row, await load_lane(self._lanes, connection, row.lane_id))
        await load_rules(connection, row.tenant_id, [definition.schedule])
        return definition

    async def _write(
        self,
        connection: Connection,
        row: LockedJob,
        status: StoredJobStatus,
        next_fire_at: datetime | None,
        paused_from: datetime | None,
        lane_id: int,
        definition: JobDefinition,
        *,
        pruned: bool = False,
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
            now=row.now,
            runs_left=row.runs_left,
            last_nominal_for=row.last_nominal_for,
            pruned=pruned,
        )
        if not changed:
            raise _changed(row)


def _changed(row: LockedJob) -> Conflict:
    return changed_meanwhile(f"job {row.job_id!r}")


def _ended(row: LockedJob, what: str, code: str) -> Conflict:
    status = JobStatus(StoredJobStatus(row.status).name)
    return ended(row.job_id, status, what, one_time=schedule_from_text(row.schedule_text).one_time, code=code)


def _next_fire(definition: JobDefinition, row: JobRow, after: datetime) -> datetime | None:
    """The next fire of a job, unless its schedule has made all its runs."""
    if row.runs_left == 0:
        return None
    dealt_with = row.dealt_with
    if dealt_with is None and definition.schedule.jitter is not None:
        dealt_with = row.created_at  # jitter can hold up a time from before the job
    return first_fire(definition.schedule, after, dealt_with)


def _first_fire(schedule: Schedule, row: LockedJob, stored: JobDefinition) -> datetime | None:
    """The first fire of a schedule that replaces the stored one. What is due by that one is dealt with."""
    dealt_with = row.dealt_with
    if schedule.kind is not ScheduleKind.AT:
        following = row.next_fire_at or row.paused_from
        if following is not None and following <= row.now:  # a pause has held it back
            following = _next_fire(stored, row, row.now)
        return first_fire_instead(schedule, stored.schedule, following, row.now, dealt_with)
    if schedule.at is not None and schedule.at < row.now:
        return row.now  # a time that has passed is a fire now
    if dealt_with is not None and schedule.at is not None and schedule.at <= dealt_with:
        raise InvalidInput(
            f"the job has fired for {dealt_with.isoformat()} already",
            code="already_fired_for",
            field="schedule.at",
            expected="a later time",
        )
    return schedule.at
