"""Next fires follow changes: of a calendar, and of the libraries of time zones and holidays.

A job without a further fire is COMPLETED. If a calendar allows a fire again, the job goes on.

What remains to be done is in the rows: a job stores the version of the rules that decided its next fire, and a walk
through all jobs stores its place. So a process can end at any time, and another goes on. Each slice is evaluated
outside a transaction, and then written if its jobs have not changed. What is due fires by the old rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainspring.domain.schedules.calendar_rules import RulesNotLoaded
from mainspring.domain.schedules.fires import next_fire
from mainspring.domain.schedules.nominal_times import first_fire, first_fire_instead, latest
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.lifecycle.fire_locked import miss_due
from mainspring.operations.lookup import load_lane
from mainspring.store import calendars, jobs
from mainspring.store.calendars import CalendarRow, JobToRecompute, Libraries, Recomputed
from mainspring.store.jobs import schedule_from_text
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store

log = get_logger("recompute")

SLICE = 1000
_PAUSED = "paused"
_BEFORE_ALL = (0, "")
_encode = msgspec.json.Encoder().encode


class Recomputer:
    def __init__(self, store: Store, lanes: LaneRegistry, slice_size: int = SLICE) -> None:
        self._store = store
        self._lanes = lanes
        self._slice = slice_size

    async def calendar(self, tenant: TenantId, name: str) -> int:
        """Bring the jobs of a calendar to its current rules, slice by slice. Returns how many were."""
        total, after, look = 0, _BEFORE_ALL, calendars.to_recompute
        while True:
            async with self._store.reads.acquire() as connection:
                row = await calendars.get(connection, tenant, name)
                if row is None:
                    return total
                slice_of_jobs = await look(connection, row, after, self._slice)
                if not slice_of_jobs and look is calendars.to_recompute:
                    after, look = _BEFORE_ALL, calendars.completed_to_recompute
                    slice_of_jobs = await look(connection, row, after, self._slice)
                current = Schedule(kind=ScheduleKind.CRON, calendar=name, calendar_rules=row.digest)
                before = {job.schedule_text for job in slice_of_jobs if _may_be_held_up(job)}
                await load_rules(connection, tenant, [current, *map(schedule_from_text, before)])
            if not slice_of_jobs:
                await self._finish(row)
                return total
            last = slice_of_jobs[-1]
            after = (schedule_from_text(last.schedule_text).calendar_version or 0, last.job_id)
            total += await self._write(row, slice_of_jobs)

    async def _write(self, row: CalendarRow, slice_of_jobs: Sequence[JobToRecompute]) -> int:
        """Write a slice. Returns how many jobs follow the current rules now."""
        coming = [job for job in slice_of_jobs if not _is_due(job)]
        done = await asyncio.to_thread(_in_calendar, coming, row)
        async with self._store.change() as connection:
            locked = await calendars.lock_pending(connection, row.tenant_id, row.name)
            if locked is None or locked.rules_version != row.rules_version:
                return 0  # it has changed again, or another process works on it
            written = len(await calendars.write_recomputed(connection, done))
            await calendars.note_recomputed(connection, row, written, done=False)
        for job in slice_of_jobs:
            if job.status == StoredJobStatus.PAUSED and _is_due(job):
                written += await self._hold_back_anew(row, job)
        return written

    async def _hold_back_anew(self, calendar: CalendarRow, job: JobToRecompute) -> int:
        """A paused job has held back fires: they are recorded as missed by the old rules, as a change of it does."""
        async with self._store.change() as connection:
            row = await jobs.lock(connection, job.tenant_id, job.job_id)
            if row is None or row.version != job.version or row.status != StoredJobStatus.PAUSED:
                return 0
            locked = await calendars.lock_pending(connection, calendar.tenant_id, calendar.name)
            if locked is None or locked.rules_version != calendar.rules_version:
                return 0
            definition = jobs.definition_of(row, await load_lane(self._lanes, connection, row.lane_id))
            await load_rules(connection, row.tenant_id, [definition.schedule])
            row = await miss_due(connection, row, definition, _PAUSED)
            schedule, following = _moved_to(job, calendar), first_fire(definition.schedule, row.now, row.dealt_with)
            changed = await jobs.change(
                connection,
                row.tenant_id,
                row.job_id,
                row.version,
                status=row.status,
                next_fire_at=None,
                paused_from=first_fire_instead(schedule, definition.schedule, following, row.now, row.dealt_with),
                lane_id=row.lane_id,
                definition=msgspec.structs.replace(definition, schedule=schedule),
                now=row.now,
                pruned=row.pruned,
                runs_left=row.runs_left,
                last_nominal_for=row.last_nominal_for,
            )
            if changed:
                await calendars.note_recomputed(connection, calendar, 1, done=False)
        return int(changed)

    async def _finish(self, row: CalendarRow) -> None:
        """Note that no job is left, unless some were due or locked."""
        async with self._store.change() as connection:
            locked = await calendars.lock_pending(connection, row.tenant_id, row.name)
            if locked is None or locked.rules_version != row.rules_version:
                return
            if await calendars.is_pending(connection, locked):
                return
            await calendars.note_recomputed(connection, locked, 0, done=True)
        log.info(
            "next fires recomputed: a calendar changed", tenant=row.tenant_id, calendar=row.name,
            version=locked.rules_version, jobs=locked.recomputed,
        )  # fmt: skip

    async def walk(self) -> int:
        """One slice of the walk after a change of the libraries, if one is under way. Returns how many jobs it passed;
        none if one of them was locked and has to be read again."""
        async with self._store.reads.acquire() as connection:
            walk = await calendars.libraries(connection)
            if walk is None or not walk.walking:
                return 0
            passed = await calendars.on_walk(connection, walk, self._slice)
            schedules = {(job.tenant_id, job.schedule_text) for job in passed if _depends_on_libraries(job)}
            for tenant in sorted({tenant for tenant, _ in schedules}):
                texts = [text for owner, text in schedules if owner == tenant]
                await load_rules(connection, tenant, map(schedule_from_text, texts))
        moved = await asyncio.to_thread(_moved_by_libraries, passed)
        return len(passed) if await self._go_on(walk, passed, moved) else 0

    async def _go_on(self, walk: Libraries, passed: Sequence[JobToRecompute], moved: Sequence[Recomputed]) -> bool:
        async with self._store.change() as connection:
            locked = await calendars.lock_walk(connection)
            if locked != walk:
                return False  # another process was faster
            written = len(await calendars.write_recomputed(connection, moved)) if moved else 0
            place = (walk.after_tenant, walk.after_job)
            if passed and written == len(moved):
                place = (passed[-1].tenant_id, passed[-1].job_id)
            await calendars.go_on(connection, place, written, done=not passed)
        if not passed:
            log.info(
                "next fires recomputed: other time zones or holidays", tzdata=walk.tzdata, holidays=walk.holidays,
                jobs=walk.recomputed,
            )  # fmt: skip
        return written == len(moved)


def _in_calendar(coming: Sequence[JobToRecompute], row: CalendarRow) -> list[Recomputed]:
    """The jobs with their next fires by the current rules."""
    known = _NextFires()
    return [_recomputed(job, _moved_to(job, row), known) for job in coming]


def _moved_by_libraries(passed: Sequence[JobToRecompute]) -> list[Recomputed]:
    """The jobs that fire at another time by the libraries of this process."""
    moved, known = [], _NextFires()
    for job in passed:
        if _depends_on_libraries(job) and not _is_due(job):
            try:
                done = _recomputed(job, schedule_from_text(job.schedule_text), known)
            except RulesNotLoaded:
                continue  # its calendar has changed since, and a change brings it to the current rules
            if (done.next_fire_at, done.paused_from) != (job.next_fire_at, job.paused_from):
                moved.append(done)
    return moved


def _depends_on_libraries(job: JobToRecompute) -> bool:
    """Or on a seed: migration 0040 has given some jobs back theirs, and begins a walk."""
    if job.one_time or job.status not in (StoredJobStatus.SCHEDULED, StoredJobStatus.PAUSED):
        return False
    schedule = schedule_from_text(job.schedule_text)
    in_zone = schedule.recurring and schedule.timezone != "UTC"
    return schedule.calendar is not None or in_zone or schedule.seed is not None


def _may_be_held_up(job: JobToRecompute) -> bool:
    """Whether jitter or the calendar may move a fire to a later time."""
    schedule = schedule_from_text(job.schedule_text)
    return schedule.jitter is not None or schedule.outside == "next"


def _is_due(job: JobToRecompute) -> bool:
    first = job.next_fire_at or job.paused_from
    return first is not None and first <= job.now


def _moved_to(job: JobToRecompute, row: CalendarRow) -> Schedule:
    """The schedule with the current rules of the calendar."""
    return msgspec.structs.replace(
        schedule_from_text(job.schedule_text), calendar_version=row.rules_version, calendar_rules=row.digest
    )


class _NextFires(dict[tuple[Schedule, datetime], datetime | None]):
    """The next fires of a slice: many of its jobs have equal schedules."""

    def __missing__(self, key: tuple[Schedule, datetime]) -> datetime | None:
        found = self[key] = next_fire(*key)
        return found


def _recomputed(job: JobToRecompute, schedule: Schedule, known: _NextFires) -> Recomputed:
    dealt_with = latest(job.last_nominal_for, job.last_fired_for)
    if _may_be_held_up(job):
        before, coming = schedule_from_text(job.schedule_text), job.next_fire_at or job.paused_from
        following = first_fire_instead(schedule, before, coming, job.now, dealt_with)
    else:
        following = known[schedule, latest(job.now, dealt_with) or job.now]
    paused = job.status == StoredJobStatus.PAUSED
    return Recomputed(job, None if paused else following, following if paused else None, _encode(schedule).decode())
