"""Unique jobs: decides, in the transaction of a submission, which of its jobs are created and which are merged into a
job that has their key.

The keys are locked first, so that of several submissions with one key each sees what the others did. The next
statements look at the jobs that have the keys. Whoever wants to change such a job locks it before it looks. A
run that a worker has is not locked, because its reports would have to wait. So it can be handed back between the two
statements, and both are repeated until they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.domain.intake.unique import (
    KEEP,
    KEPT,
    LATER,
    QUEUED,
    REPLACE,
    REPLACED,
    RUNNING,
    SCHEDULED,
    has_started,
    is_limited,
    pushed,
    taken_outside,
    with_work_of,
)
from mainspring.domain.job import JobDefinition, has_limits, line_of, spec_from_text, spec_to_show, spec_to_text
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.domain.tags import changed_meanwhile
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.ownership import check_own
from mainspring.operations.lookup import load_lane
from mainspring.operations.object_guard import reaches_job
from mainspring.store import unique
from mainspring.store.jobs import schedule_from_text
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection
from mainspring.store.unique import ChangedJob, ChangedRun, NewKey, TakenKey, UniqueWaitingRun, WaitingJob
from mainspring.wire.unique import Unique

_CHUNK = 1000  # keys per statement
_LOOKS = 10  # each further one needs a run that was handed back meanwhile


class UniqueItem(msgspec.Struct):
    """A job of a submission that has a key. `definition` changes if a later job of the same submission is merged into
    it."""

    index: int
    digest: bytes
    job_id: str
    definition: JobDefinition

    @property
    def unique(self) -> Unique:
        rule = self.definition.spec.unique
        if rule is None:
            raise ValueError("the job is not unique")
        return rule


class Merged(msgspec.Struct, frozen=True):
    """What became of a job that is not created. `into`: the index of the job of the same submission that has the
    key; otherwise that job was stored before."""

    job_id: str
    generation: int
    answer: str
    into: int | None = None


class _Holder(msgspec.Struct):
    """Who has a key: a stored job, or a job that is stored with this submission (`item`)."""

    job_id: str
    generation: int
    until: datetime
    taken: bool
    item: UniqueItem | None = None
    job: WaitingJob | None = None
    run: UniqueWaitingRun | None = None
    task: str = ""
    at: datetime | None = None
    work: JobDefinition | None = None
    outside: bool = False  # the token of the caller does not reach it


class UniqueMerge:
    """The merge of one submission. After `decide`: `merged` by index, the items with their definitions, and
    `conflicts`, which forbid the submission."""

    def __init__(self, caller: Caller, lanes: LaneRegistry, items: Sequence[UniqueItem], now: datetime) -> None:
        self._caller = caller
        self._tenant = caller.tenant
        self._lanes = lanes
        self._now = now
        self.items = items
        self.merged: dict[int, Merged] = {}
        self.conflicts: list[tuple[int, Conflict]] = []
        self.soonest: datetime | None = None
        self._holders: dict[bytes, _Holder] = {}
        self._inserted: dict[bytes, UniqueItem] = {}

    async def decide(self, connection: Connection) -> None:
        """Lock the keys and merge. Nothing is written yet, except keys that no job had."""
        await self._take(connection)
        slices = TimeSlices()
        for item in self.items:
            if slices.over:
                await slices.pause()
            holder = self._holders.get(item.digest)
            if holder is None or not holder.taken:
                self._holders[item.digest] = _created(item, self._now)
                continue
            try:
                if holder.outside:
                    raise taken_outside()
                if item.unique.else_ != KEEP and (waits := holder.job or holder.run) is not None:
                    check_own(self._caller, waits.created_by, f"job {holder.job_id!r}")
                answer = _merge(holder, item)
            except Conflict as refusal:
                self.conflicts.append((item.index, refusal))
                continue
            into = None if holder.item is None else holder.item.index
            self.merged[item.index] = Merged(holder.job_id, holder.generation, answer, into)

    async def write(self, connection: Connection, generations: Sequence[int]) -> None:
        """Write what was decided. `generations`: those of the jobs of the submission, by index."""
        takes: list[NewKey] = []
        jobs: list[ChangedJob] = []
        runs: list[ChangedRun] = []
        slices = TimeSlices()
        for digest, holder in self._holders.items():
            if slices.over:
                await slices.pause()
            if holder.item is not None:
                if self._inserted.get(digest) is not holder.item or generations[holder.item.index] > 1:
                    takes.append(_new_key(holder.item, generations[holder.item.index]))
            elif holder.job is not None and (holder.at is not None or holder.work is not None):
                jobs.append(_changed_job(holder.job, holder))
                self.soonest = _sooner(self.soonest, jobs[-1].next_fire_at)
            elif holder.run is not None and (holder.at is not None or holder.work is not None):
                runs.append(_changed_run(holder.run, holder))
        for start in range(0, len(takes), _CHUNK):
            await unique.take_over(connection, self._tenant, takes[start : start + _CHUNK])
        for start in range(0, len(jobs), _CHUNK):
            await unique.change_jobs(connection, self._tenant, jobs[start : start + _CHUNK])
        for start in range(0, len(runs), _CHUNK):
            await unique.change_runs(connection, self._tenant, runs[start : start + _CHUNK])

    async def _take(self, connection: Connection) -> None:
        first = {item.digest: item for item in reversed(self.items)}
        digests = sorted(first)
        known: list[TakenKey] = []
        for start in range(0, len(digests), _CHUNK):
            keys = [_new_key(first[digest], 1) for digest in digests[start : start + _CHUNK]]
            for key in await unique.take(connection, self._tenant, keys):
                if key.fresh:
                    self._inserted[key.digest] = first[key.digest]
                else:
                    known.append(key)
        if known:
            await self._look(connection, known)

    async def _look(self, connection: Connection, known: Sequence[TakenKey]) -> None:
        """Find out whether the jobs have their keys. Those that may be changed are locked before."""
        changing = {item.digest for item in self.items if item.unique.else_ != KEEP}
        jobs: dict[unique.Job, WaitingJob] = {}
        runs: dict[unique.Job, UniqueWaitingRun] = {}
        held: set[bytes] = set()
        unclear = known
        for _ in range(_LOOKS):
            if changed := [key.job_id for key in unclear if key.digest in changing]:
                more_jobs, more_runs = await unique.lock_waiting(connection, self._tenant, changed)
                jobs, runs = jobs | more_jobs, runs | more_runs
            states: dict[bytes, set[str]] = {}
            for start in range(0, len(unclear), _CHUNK):
                states |= await unique.held(connection, self._tenant, unclear[start : start + _CHUNK])
            # A run that waits and is not locked here was with a worker when the others were locked.
            waiting = {digest for digest, found in states.items() if digest in changing and found != {RUNNING}}
            locked = jobs.keys() | runs.keys()
            unclear = [key for key in unclear if key.digest in waiting and (key.job_id, key.generation) not in locked]
            held |= states.keys() - {key.digest for key in unclear}
            if not unclear:
                break
        else:
            raise changed_meanwhile("jobs")
        outside = await self._outside(connection, [key for key in known if key.digest in held])
        slices = TimeSlices()
        for key in known:
            if slices.over:
                await slices.pause()
            job = (key.job_id, key.generation)
            holder = _Holder(
                key.job_id,
                key.generation,
                key.until,
                taken=key.digest in held,
                job=jobs.get(job),
                run=runs.get(job),
            )
            if (waits := holder.job or holder.run) is not None:
                holder.task = (await load_lane(self._lanes, connection, waits.lane_id)).task
            holder.outside = job in outside
            self._holders[key.digest] = holder

    async def reaches(self, connection: Connection, job_id: str) -> bool:
        return await reaches_job(self._lanes, connection, self._caller, job_id)

    async def _outside(self, connection: Connection, held: Sequence[TakenKey]) -> set[unique.Job]:
        """Those of the jobs that the token of the caller does not reach. It is told nothing of them."""
        reach = self._caller.narrowing
        found: set[unique.Job] = set()
        if reach is None or not reach.of_objects or not held:
            return found
        for place in await unique.places(connection, self._tenant, held):
            lane = await load_lane(self._lanes, connection, place.lane_id)
            if not reach.has(lane.queue, lane.task, spec_to_show(place.spec_text)[0].labels):
                found.add((place.job_id, place.generation))
        return found


def _created(item: UniqueItem, now: datetime) -> _Holder:
    """The job of this submission that has the key now."""
    schedule = item.definition.schedule
    state = QUEUED if schedule.kind is ScheduleKind.NOW else SCHEDULED
    until = now + timedelta(seconds=item.unique.for_)
    return _Holder(item.job_id, 1, until, taken=state in item.unique.while_, item=item)


def _merge(holder: _Holder, item: UniqueItem) -> str:
    """Merge a submission into the job that has its key. Returns the answer. Raises Conflict if that cannot be done."""
    choice = item.unique.else_
    if choice == KEEP:
        return KEPT
    if holder.item is not None:
        first = holder.item.definition
        if choice == REPLACE:
            line = line_of(first, holder.job_id) if has_limits(first) else None
            holder.item.definition = with_work_of(first, item.definition, holder.job_id, line)
            return REPLACED
        at = pushed(first.schedule.at, item.definition.schedule, holder.until)
        holder.item.definition = msgspec.structs.replace(first, schedule=Schedule(kind=ScheduleKind.AT, at=at))
        return LATER
    waits = holder.job or holder.run
    if waits is None or (holder.job is None and holder.run is not None and holder.run.started):
        raise has_started(holder.job_id, choice)
    spec = spec_from_text(waits.spec_text)
    if choice == REPLACE:
        stored = JobDefinition(task=holder.task, spec=spec, overlap=spec.overlap)
        holder.work = with_work_of(stored, item.definition, holder.job_id, spec.line)
        return REPLACED
    if spec.line is not None and holder.job is None:  # it stands in a line, or has a slot
        raise is_limited(holder.job_id, choice)
    current = holder.at or _time_of(waits)
    at = pushed(current, item.definition.schedule, holder.until)
    if at != current:
        holder.at = at
    return LATER


def _time_of(waits: WaitingJob | UniqueWaitingRun) -> datetime | None:
    if isinstance(waits, UniqueWaitingRun):
        return waits.ready_at
    return waits.paused_from if waits.next_fire_at is None else waits.next_fire_at


def _changed_job(job: WaitingJob, holder: _Holder) -> ChangedJob:
    schedule, next_fire_at, paused_from = job.schedule_text, job.next_fire_at, job.paused_from
    if holder.at is not None:
        moved = msgspec.structs.replace(schedule_from_text(schedule), at=holder.at)
        schedule = msgspec.json.encode(moved).decode()
        if next_fire_at is None:
            paused_from = holder.at
        else:
            next_fire_at = holder.at
    if holder.work is None:
        return ChangedJob(job, schedule, next_fire_at, paused_from, replaced=False)
    spec = spec_to_text(holder.work.spec)
    return ChangedJob(job, schedule, next_fire_at, paused_from, True, holder.work.payload, spec)


def _changed_run(run: UniqueWaitingRun, holder: _Holder) -> ChangedRun:
    if holder.work is None:
        return ChangedRun(run, holder.at, replaced=False)
    return ChangedRun(run, holder.at, True, holder.work.payload, spec_to_text(holder.work.spec))


def _new_key(item: UniqueItem, generation: int) -> NewKey:
    return NewKey(item.digest, item.job_id, generation, item.unique.while_, item.unique.for_)


def _sooner(one: datetime | None, other: datetime | None) -> datetime | None:
    return one if other is None or (one is not None and one < other) else other
