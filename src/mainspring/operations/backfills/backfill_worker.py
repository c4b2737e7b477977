"""The backfill worker creates the runs of backfills and counts how they end.

A step is one transaction that locks the job and the backfill. It counts the runs that have ended, creates as many as
may be alive at once, and moves the cursor. A process that is killed in a step has changed nothing, and the next step
of any server continues. The fires come from a slice, which a separate transaction stores in the row: the next few
thousand fires, and which of them have a run already. The history has no index by fire time, so it is read once for each
slice.

A slice is correct as long as nothing else creates runs for its fires. The scheduler creates none: a slice is taken only
after the job's next fire is past the range. Other backfills of the job create none: taking a slice drops their slices.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.backfills import (
    JOB_CANCELLED,
    JOB_GONE,
    BackfillState,
    FireRange,
    Slice,
    cursor_after,
    next_slice,
    trigger_of,
)
from mainspring.domain.job import ONE_AFTER_ANOTHER, Overlap, stored_spec
from mainspring.domain.schedules.nominal_times import nominal_of
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.kernel import metrics
from mainspring.kernel.ids import uuid7_batch
from mainspring.kernel.logs import get_logger
from mainspring.operations.backfills.effects import backfill_ended
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.lifecycle.dispatch import runs_ended
from mainspring.operations.lifecycle.fire import FireEffects, from_store
from mainspring.operations.lookup import load_lane
from mainspring.operations.signals import Signals
from mainspring.store import backfills, jobs
from mainspring.store.backfills import AtWork, LockedBackfill, WantsSlice
from mainspring.store.jobs import LockedJob, schedule_from_text
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import AWAY, NOT_NOW, Connection, Store

log = get_logger("backfill_worker")

SLICE = 5000  # fires; the history of the job is read once for each slice
_AT_ONCE = 1000  # fires that one step deals with
_STEPS = 50  # of one backfill, before it is the turn of the next
_MOST_AT_ONCE = 1000  # backfills per round
_ENDS = {
    StoredState.SUCCESS: "succeeded",
    StoredState.FAILED: "failed",
    StoredState.CANCELLED: "cancelled",
    StoredState.SKIPPED: "skipped",
}


class BackfillStep(msgspec.Struct, frozen=True):
    """What a step did. `again`: there is more to do at once. `wants_slice`: before that, a slice."""

    created: int = 0
    again: bool = False
    wants_slice: bool = False


class BackfillWorker:
    name = "backfill_worker"
    interval = 1.0

    def __init__(self, store: Store, lanes: LaneRegistry, signals: Signals, slice_length: int = SLICE) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._slice_length = slice_length
        self._after = backfills.FIRST
        self._ended: set[UUID] = set()
        self._all = False
        self._working: asyncio.Task[None] | None = None
        signals.backfills.subscribe(self.wake)

    async def run_once(self) -> int:
        """Continue every backfill that has not ended. Returns how many runs were created."""
        async with self._store.reads.acquire() as connection:
            found = await backfills.at_work(connection, self._after, _MOST_AT_ONCE)
        self._after = found[-1].backfill_id if len(found) == _MOST_AT_ONCE else backfills.FIRST
        return await self._work_on(found)

    def wake(self, ended: Collection[UUID]) -> None:
        """Continue the backfills of these runs, which have ended, soon. Without runs: continue all backfills."""
        self._ended.update(ended)
        self._all |= not ended
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._answer())

    async def close(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    async def _answer(self) -> None:
        try:
            while self._ended or self._all:
                ended, everything = list(self._ended), self._all
                self._ended, self._all = set(), False
                if everything:
                    await self.run_once()
                    continue
                async with self._store.reads.acquire() as connection:
                    found = await backfills.of_runs(connection, ended)
                await self._work_on(found)
        except NOT_NOW as error:
            log.warning("backfills could not be continued; the next round does it", error=repr(error))

    async def _work_on(self, found: list[AtWork]) -> int:
        created = 0
        for item in found:
            try:
                created += await self._work(item)
            except Exception as error:
                if isinstance(error, AWAY) and not isinstance(error, asyncpg.QueryCanceledError):
                    raise
                # One that cannot be continued, or whose history takes too long to read, does not hold up the others.
                log.error("backfill cannot be continued now", backfill=str(item.backfill_id), error=repr(error))
        return created

    async def _work(self, item: AtWork) -> int:
        created = 0
        for _ in range(_STEPS):
            done = await self.step(item)
            created += done.created
            if not done.again or (done.wants_slice and not await self.take_slice(item)):
                break
        return created

    async def step(self, item: AtWork) -> BackfillStep:
        """Count the runs that have ended, and create as many as there is room for."""
        async with self._store.change() as connection:
            job = await jobs.lock(connection, item.tenant_id, item.job_id)
            row = await backfills.lock(connection, item.tenant_id, item.backfill_id, _AT_ONCE)
            if row is None:
                return BackfillStep()
            counted = await _counted(connection, row)
            fired = FireEffects()
            after = _without_job(counted, job)
            if after.state == BackfillState.RUNNING and job is not None and job.status != StoredJobStatus.PAUSED:
                after, fired = await self._filled(connection, job, after)
            after = _completed(after)
            if after != row:
                over = after.state in (BackfillState.CANCELLED, BackfillState.COMPLETED)
                ended = over and not after.live
                await backfills.advance(connection, row, after, keep_slice=after.has_slice and not over, ended=ended)
                if ended:
                    await backfill_ended(connection, after, fired)
        metrics.fired.inc(fired.total)
        self._signals.ready.publish(fired.created)
        fired.publish(self._signals)
        return _step(after, fired.total, paused=job is None or job.status == StoredJobStatus.PAUSED)

    async def _filled(
        self, connection: Connection, job: LockedJob, row: LockedBackfill
    ) -> tuple[LockedBackfill, FireEffects]:
        """Deal with the next fires: those that have a run are counted, the others become runs."""
        if not row.has_slice or not row.first_of_job:
            return row, FireEffects()
        times, exist = row.next_fires or [], row.next_exist or []
        room = row.concurrency - len(row.live)
        new: list[datetime] = []
        done = 0
        for moment, exists in zip(times, exist, strict=True):
            if not exists:
                if len(new) >= room:
                    break
                new.append(moment)
            done += 1
        if not done:
            return row, FireEffects()
        ids = uuid7_batch(len(new))
        fired = FireEffects()
        if new:
            own, spec = await self._own_spec(connection, job)
            made = await backfills.create_runs(
                connection, row, list(zip(ids, new, strict=True)), trigger_of(row.backfill_id),
                nominal=await _nominal(connection, row, new), own_spec=own, spec=spec,
            )  # fmt: skip
            fired = await from_store(connection, made)
            await runs_ended(connection, fired)
        through = row.slice_done + done
        over = through >= row.slice_length
        assert row.slice_end is not None
        row = msgspec.structs.replace(
            row,
            created=row.created + len(new),
            existing=row.existing + done - len(new),
            slice_done=through,
            fire_cursor=row.slice_end if over else cursor_after(times[done - 1], newest_first=row.newest_first),
            has_slice=not over,
            live=[*row.live, *ids],
        )
        return row, fired

    async def _own_spec(self, connection: Connection, job: LockedJob) -> tuple[bool, str | None]:
        """The overlap rule is about the fires of the schedule, so runs of a backfill do not stand in its line."""
        if job.overlap not in ONE_AFTER_ANOTHER:
            return False, None
        definition = jobs.definition_of(job, await load_lane(self._lanes, connection, job.lane_id))
        return True, stored_spec(msgspec.structs.replace(definition, overlap=Overlap.ALLOW), job.job_id)

    async def take_slice(self, item: AtWork) -> bool:
        """Store the next fires of a backfill in its row. Return whether that was done: not if another process did it,
        or the scheduler has yet to deal with fires of the range."""
        async with self._store.reads.acquire() as connection:
            wanted = await backfills.wants_slice(connection, item.tenant_id, item.backfill_id)
            if wanted is None:
                return False
            await load_rules(connection, item.tenant_id, [schedule_from_text(wanted.schedule_text)])
        taken = await asyncio.to_thread(_slice, wanted, self._slice_length)  # rare fires take a while to find
        async with self._store.change() as connection:
            await backfills.lock_of_job(connection, item.tenant_id, item.job_id)
            row = await backfills.lock(connection, item.tenant_id, item.backfill_id)
            if row is None or not await backfills.job_is_past(connection, item.tenant_id, item.backfill_id):
                return False
            known = set()
            if taken.times:
                first, last = min(taken.nominal), max(taken.times)
                known = await backfills.existing(connection, item.tenant_id, item.job_id, row.generation, first, last)
            exist = [not known.isdisjoint(one) for one in zip(taken.times, taken.nominal, strict=True)]
            return await backfills.take_slice(connection, item, wanted.fire_cursor, taken, exist)


def _slice(wanted: WantsSlice, count: int) -> Slice:
    return next_slice(
        schedule_from_text(wanted.schedule_text),
        FireRange(wanted.from_at, wanted.to_at),
        wanted.fire_cursor,
        newest_first=wanted.newest_first,
        count=count,
    )


async def _nominal(connection: Connection, row: LockedBackfill, new: list[datetime]) -> list[datetime]:
    """The nominal times of new runs, with jitter."""
    if row.jittered_text is None:
        return []
    schedule = schedule_from_text(row.jittered_text)
    await load_rules(connection, row.tenant_id, [schedule])
    return [nominal_of(schedule, moment) for moment in new]


async def _counted(connection: Connection, row: LockedBackfill) -> LockedBackfill:
    """The backfill with those of its runs counted that have ended."""
    if not row.live:
        return row
    known = await backfills.ends(connection, row.live, row.created_at)
    ends = Counter(_ENDS[StoredState(run.state)] for run in known if run.state is not None)
    live = [run.run_id for run in known if run.alive]
    if len(live) == len(row.live):
        return row
    return msgspec.structs.replace(row, live=live, **{name: getattr(row, name) + count for name, count in ends.items()})


def _without_job(row: LockedBackfill, job: LockedJob | None) -> LockedBackfill:
    """A backfill whose job is gone is cancelled."""
    if row.state not in (BackfillState.RUNNING, BackfillState.PAUSED):
        return row
    if job is not None and job.generation == row.generation and job.status != StoredJobStatus.CANCELLED:
        return row
    same = job is not None and job.generation == row.generation
    return msgspec.structs.replace(
        row, state=int(BackfillState.CANCELLED), reason=JOB_CANCELLED if same else JOB_GONE, has_slice=False
    )


def _completed(row: LockedBackfill) -> LockedBackfill:
    """A backfill without fires left is completed when its last run has ended."""
    if row.state != BackfillState.RUNNING or row.has_fires_left:
        return row
    total = row.created + row.existing  # the rules of a time zone may have changed since it was counted
    state = row.state if row.live else int(BackfillState.COMPLETED)
    return msgspec.structs.replace(row, total=total, state=state)


def _step(row: LockedBackfill, created: int, *, paused: bool) -> BackfillStep:
    if row.state != BackfillState.RUNNING or paused or not row.first_of_job:
        return BackfillStep(created)
    wants_slice = not row.has_slice and row.has_fires_left
    room = row.has_slice and len(row.live) < row.concurrency
    return BackfillStep(created, again=wants_slice or room, wants_slice=wants_slice)
