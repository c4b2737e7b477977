"""One submission: what it has of each job, and how that is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from mainspring.domain.dependencies import parents_of
from mainspring.domain.errors import Conflict, InvalidInput, MainspringError, key_reused
from mainspring.domain.intake.limits import strict_order
from mainspring.domain.intake.recurrence import never_fires
from mainspring.domain.intake.unique import KEPT, taken_outside
from mainspring.domain.job import DEFAULT_SPEC, JobDefinition, Overlap, boost_in, has_limits, line_of, stored_spec
from mainspring.domain.limits import Slot, key_id
from mainspring.domain.schedules.nominal_times import first_fire
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind, for_job
from mainspring.kernel.config import MAX_PAYLOAD_BYTES
from mainspring.kernel.ids import parse_uuid, uuid7_texts
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.dependencies.edges import Dependant, Refused, make_edges
from mainspring.operations.exchange.hand_off import HandOff
from mainspring.operations.lookup import own_run
from mainspring.operations.submit.chosen_ids import generated_id, of_old_clients, still_held, twice_in_a_batch
from mainspring.operations.submit.unique import UniqueItem, UniqueMerge
from mainspring.store import dependencies, idempotency_keys, jobs, runs, unique
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection

MAX_ERRORS = 100
CHUNK = 1000  # rows per insert, so that a batch of 10,000 does not block other statements
CHUNK_BYTES = 4 * 1024 * 1024  # of payloads and specs per insert: the driver copies them in one go


class SubmitBatch:
    """One submission while it is stored."""

    def __init__(
        self,
        caller: Caller,
        digests: Mapping[int, bytes],
        definitions: Sequence[JobDefinition],
        lane_ids: Sequence[int],
        now: datetime,
        *,
        single: bool,
        plain: bool,
        run_ids: Sequence[str] | None = None,
    ) -> None:
        self._caller = caller
        self._tenant = caller.tenant
        self._digests = digests
        self._definitions = definitions
        self.is_heavy = _are_heavy(definitions)
        self._lane_ids = lane_ids
        self._now = now
        self._single = single
        self._run_ids = uuid7_texts(len(definitions)) if run_ids is None else run_ids
        self.job_ids: list[str] = [
            item.job_id if item.job_id is not None else run_id
            for item, run_id in zip(definitions, self._run_ids, strict=True)
        ]
        self.repeated: list[bool] = [False] * len(definitions)
        self.generations: list[int] = [1] * len(definitions)
        self.unique: list[str | None] = [None] * len(definitions)
        self._twins: dict[int, int] = {}  # the same idempotency key twice: the second and the first
        self._merge: UniqueMerge | None = None
        self.created: dict[int, int] = {}
        self.lines: set[int] = set()
        self._slots: dict[int, list[Slot]] = {}
        self.soonest: datetime | None = None
        self._first_fires: dict[Schedule, datetime | None] = {}
        self._plain = plain

    @property
    def one_statement(self) -> bool:
        """Whether there are no keys or ids to take, and one insert stores everything."""
        if not self._plain or len(self._definitions) > CHUNK or self.is_heavy:
            return False
        return len(self._definitions) == 1 or (
            len(set(self._lane_ids)) == 1 and all(_is_default(item) and item.name is None for item in self._definitions)
        )

    def new_definitions(self) -> list[JobDefinition]:
        """What is stored, without repeats."""
        return [item for item, repeated in zip(self._definitions, self.repeated, strict=True) if not repeated]

    @property
    def may_repeat(self) -> bool:
        """Whether a repeat changes nothing if this was stored: by its keys, or because nothing was written."""
        return all(
            item.idempotency_key is not None or self.unique[index] == KEPT
            for index, item in enumerate(self._definitions)
        )

    def witnesses(self) -> tuple[list[str], list[str]]:
        """Ids that show whether this was stored: of runs, and of jobs. They were generated for it."""
        runs_now, generated = [], []
        for index, item in enumerate(self._definitions):
            if not self.repeated[index]:
                if item.schedule.kind is ScheduleKind.NOW or item.job_id is None:
                    runs_now.append(self._run_ids[index])
                if item.job_id is None:
                    generated.append(self._run_ids[index])
        return runs_now, generated

    def slots(self) -> list[Slot]:
        """What the runs of the jobs that are stored need, without repeats. The last of the batch is the last here."""
        for index, item in enumerate(self._definitions):
            if not self.repeated[index] and has_limits(item):
                self._slots[index] = line_of(item, self.job_ids[index])
        found = dict.fromkeys([slot for line in reversed(self._slots.values()) for slot in line])
        return list(reversed(found))

    def contradiction(self, names: set[str]) -> MainspringError:
        """The error for jobs that take part in these limits, which have a strict order, and do not say so."""
        found = {
            index: {slot.name for slot in line if slot.name in names and not slot.strict}
            for index, line in self._slots.items()
        }
        return self._refusal([(index, strict_order(loose)) for index, loose in found.items() if loose])

    async def take_keys_and_ids(self, connection: Connection) -> None:
        if self._plain:
            return
        await self._take_keys(connection)
        if self._merge is not None:
            await self._merge_unique(connection, self._merge)
        await self._take_ids(connection)
        if self._merge is not None:
            await self._write_merged(connection, self._merge)
        for index, first in self._twins.items():
            self.job_ids[index], self.unique[index] = self.job_ids[first], self.unique[first]
            self.generations[index] = self.generations[first]

    def merge_into(self, lanes: LaneRegistry, keys: Mapping[int, bytes]) -> None:
        """Some of the jobs are unique: their keys by index."""
        items = [UniqueItem(index, key, self.job_ids[index], self._definitions[index]) for index, key in keys.items()]
        self._merge = UniqueMerge(self._caller, lanes, items, self._now)

    async def _merge_unique(self, connection: Connection, merge: UniqueMerge) -> None:
        merge.items = [item for item in merge.items if not self.repeated[item.index]]
        await merge.decide(connection)
        if merge.conflicts:
            raise self._refusal(merge.conflicts)
        definitions = list(self._definitions)
        for item in merge.items:
            definitions[item.index] = item.definition
        self._definitions = definitions
        for index, merged in merge.merged.items():
            self.repeated[index] = True
            self.job_ids[index], self.generations[index] = merged.job_id, merged.generation
            self.unique[index] = merged.answer

    async def _write_merged(self, connection: Connection, merge: UniqueMerge) -> None:
        await merge.write(connection, self.generations)
        self.soonest = merge.soonest
        answers = []
        for index, merged in merge.merged.items():
            if merged.into is not None:
                self.generations[index] = self.generations[merged.into]
            key = self._definitions[index].idempotency_key
            if key is not None:
                answers.append((key, merged.job_id, self.generations[index], merged.answer))
        if answers:
            await unique.set_merged(connection, self._tenant, answers)

    async def plan_ahead(self) -> None:
        """Work out the first fires that take long before the transaction begins, because it must not wait for them."""
        slices = TimeSlices()
        for index, item in enumerate(self._definitions):
            schedule = item.schedule
            if schedule.calendar is not None or schedule.rrule is not None or schedule.jitter is not None:
                self._first_fire(for_job(schedule, self._tenant, self.job_ids[index], self._now))
                if slices.over:
                    await slices.pause()

    async def insert(self, connection: Connection) -> None:
        new_jobs: list[jobs.NewJob] = []
        full, limited, waiting = runs.NewRuns(), runs.NewHeldRuns(), runs.NewRuns()
        bare: dict[int, list[int]] = {}
        weight = 0
        slices = TimeSlices()
        for index, item in enumerate(self._definitions):
            if slices.over:
                await slices.pause()
            if self.repeated[index]:
                continue
            if item.schedule.kind is not ScheduleKind.NOW:
                new_jobs.append(self._new_job(index, item))
            else:
                lane_id = self._lane_ids[index]
                if item.spec.depends_on is not None:
                    self._add_run(waiting, index, item, stored_spec(item, line=self._slots.get(index)))
                    continue
                held = has_limits(item)
                if not held:
                    self.created[lane_id] = self.created.get(lane_id, 0) + 1
                if _is_default(item) and item.name is None and item.job_id is None:
                    bare.setdefault(lane_id, []).append(index)
                    continue
                if held:
                    self._add_held_run(limited, index, item)
                else:
                    self._add_run(full, index, item, None if _is_default(item) else stored_spec(item))
            weight += _weight(item)
            if weight > CHUNK_BYTES or max(len(full.run_ids), len(limited.run_ids), len(new_jobs)) >= CHUNK:
                await self._insert_full(connection, full, limited, new_jobs)
                full, limited, new_jobs, weight = runs.NewRuns(), runs.NewHeldRuns(), [], 0
        await self._insert_full(connection, full, limited, new_jobs)
        for lane_id, indexes in bare.items():
            await self._insert_bare(connection, lane_id, indexes)
        if waiting.run_ids:
            await runs.insert(connection, self._tenant, waiting, waiting=True, created_by=self._caller.created_by)

    async def hand_off(self, connection: Connection, hand_off: HandOff) -> int:
        """Insert jobs that are plain, some as claimed by workers that wait. Return how many these are. `created` counts
        the others."""
        new = runs.NewRuns()
        for index, item in enumerate(self._definitions):
            self._add_run(new, index, item, None if _is_default(item) else stored_spec(item))
        handed = await hand_off.store(connection, self._tenant, new, self._caller.created_by)
        self.created = dict(Counter(self._lane_ids) - handed)
        return handed.total()

    async def make_edges(self, connection: Connection, given_as: Sequence[str]) -> None:
        """Make the edges of the jobs that were stored, and note what their runs wait for. `given_as`: the names of the
        field in the requests."""
        found = {
            index: Dependant(self.job_ids[index], item, given_as=given_as[index])
            for index, item in enumerate(self._definitions)
            if not self.repeated[index] and (parents_of(item) or self.generations[index] > 1)
        }
        try:
            await make_edges(connection, self._tenant, list(found.values()))
        except Refused as refused:
            raise refused.of_submission(list(found)[refused.place], single=self._single) from None
        waits = [
            (self._run_ids[index], parent)
            for index, item in found.items()
            if item.definition.schedule.kind is ScheduleKind.NOW
            for parent in item.parents
        ]
        if waits:
            await dependencies.insert_waits(connection, waits)

    async def _insert_full(
        self, connection: Connection, full: runs.NewRuns, limited: runs.NewHeldRuns, new_jobs: list[jobs.NewJob]
    ) -> None:
        created_by = self._caller.created_by
        if full.run_ids:
            await runs.insert(connection, self._tenant, full, created_by=created_by)
        if limited.run_ids:
            await runs.insert_held(connection, self._tenant, limited, created_by)
            self.lines.update(line for lines in limited.lines for line in lines)
        if new_jobs:
            await jobs.insert(connection, self._tenant, new_jobs, created_by)

    async def _insert_bare(self, connection: Connection, lane_id: int, indexes: list[int]) -> None:
        """Insert jobs that have only a task and a payload."""
        attempts, created_by = DEFAULT_SPEC.retry.max_attempts, self._caller.created_by
        for chunk in self._chunks(indexes):
            run_ids = [self._run_ids[index] for index in chunk]
            payloads = [self._definitions[index].payload for index in chunk]
            await runs.insert_plain(connection, self._tenant, lane_id, attempts, run_ids, payloads, created_by)

    def _chunks(self, indexes: list[int]) -> Iterator[list[int]]:
        """The jobs in parts that one insert may hold."""
        if len(indexes) <= CHUNK and not self.is_heavy:
            yield indexes
            return
        chunk: list[int] = []
        weight = 0
        for index in indexes:
            chunk.append(index)
            weight += _weight(self._definitions[index])
            if weight > CHUNK_BYTES or len(chunk) >= CHUNK:
                yield chunk
                chunk, weight = [], 0
        if chunk:
            yield chunk

    def _add_held_run(self, new: runs.NewHeldRuns, index: int, item: JobDefinition) -> None:
        line = self._slots[index]
        self._add_run(new, index, item, stored_spec(item, line=line))
        new.lines.append(sorted({key_id(self._tenant, slot) for slot in line}))
        new.boosts.append(boost_in(line, item.priority))

    def _add_run(self, new: runs.NewRuns, index: int, item: JobDefinition, spec: str | None) -> None:
        new.run_ids.append(self._run_ids[index])
        new.lane_ids.append(self._lane_ids[index])
        new.max_attempts.append(item.spec.retry.max_attempts)
        new.job_ids.append(item.job_id)
        new.names.append(item.name)
        new.payloads.append(item.payload)
        new.specs.append(spec)
        new.generations.append(self.generations[index])

    def _new_job(self, index: int, item: JobDefinition) -> jobs.NewJob:
        schedule = for_job(item.schedule, self._tenant, self.job_ids[index], self._now)
        first = self._first_fire(schedule)
        if first is None and schedule.recurring:
            raise self._never_fires(index, schedule)
        if first is not None and (self.soonest is None or first < self.soonest):
            self.soonest = first
        return jobs.NewJob(
            job_id=self.job_ids[index],
            id_generated=item.job_id is None,
            lane_id=self._lane_ids[index],
            definition=item if schedule is item.schedule else msgspec.structs.replace(item, schedule=schedule),
            next_fire_at=first,
            generation=self.generations[index],
        )

    def _never_fires(self, index: int, schedule: Schedule) -> InvalidInput:
        error = never_fires(schedule)
        if not self._single:
            error.field = f"jobs[{index}].{error.field}"
        return error

    def _first_fire(self, schedule: Schedule) -> datetime | None:
        """Worked out once for all jobs of the submission that have the same schedule."""
        if schedule.kind is ScheduleKind.AT:
            return schedule.at
        if schedule not in self._first_fires:
            self._first_fires[schedule] = first_fire(schedule, self._now, self._now)
        return self._first_fires[schedule]

    async def _take_keys(self, connection: Connection) -> None:
        keyed: dict[str, tuple[int, bytes]] = {}
        for index, item in enumerate(self._definitions):
            if item.idempotency_key is None:
                continue
            digest = self._digests[index]
            first = keyed.setdefault(item.idempotency_key, (index, digest))
            if first[0] != index:  # the same key twice in one batch
                if first[1] != digest:
                    raise self._refusal([(index, key_reused(item.idempotency_key))])
                self.repeated[index] = True
                self._twins[index] = first[0]
        if not keyed:
            return
        known = await idempotency_keys.take(
            connection,
            self._tenant,
            [(key, digest, self.job_ids[index]) for key, (index, digest) in keyed.items()],
        )
        conflicts = []
        for index, item in enumerate(self._definitions):
            before = known.get(item.idempotency_key) if item.idempotency_key is not None else None
            if before is None or item.idempotency_key is None:
                continue
            if before.body_hash != keyed[item.idempotency_key][1]:
                conflicts.append((index, key_reused(item.idempotency_key)))
            elif before.merged is not None and not await self._reaches(connection, before.job_id):
                conflicts.append((index, taken_outside("idempotency_key")))
            self.repeated[index] = True
            self.job_ids[index] = before.job_id
            self.generations[index] = before.generation
            self.unique[index] = before.merged
        if conflicts:
            raise self._refusal(conflicts)

    async def _reaches(self, connection: Connection, job_id: str) -> bool:
        """Whether the caller may learn of the job into which an earlier submission with its key was merged."""
        if self._caller.reaches_all:
            return True
        return self._merge is not None and await self._merge.reaches(connection, job_id)

    async def _take_ids(self, connection: Connection) -> None:
        chosen: dict[str, int] = {}
        taken: list[tuple[int, Conflict]] = []
        for index, item in enumerate(self._definitions):
            if item.job_id is None or self.repeated[index]:
                continue
            if item.job_id in chosen:
                taken.append((index, twice_in_a_batch(item.job_id)))
            chosen.setdefault(item.job_id, index)
        if chosen:
            free = await jobs.take_ids(connection, self._tenant, list(chosen))
            generated = {job_id for job_id in free if await self._is_generated(connection, job_id)}
            taken += [(chosen[job_id], generated_id(job_id)) for job_id in generated]
            if held := [job_id for job_id in chosen if job_id not in free]:
                taken += [(chosen[job_id], why) for job_id, why in await self._renew(connection, chosen, held)]
        if taken:
            raise self._refusal(sorted(taken, key=lambda pair: pair[0]))

    async def _renew(
        self, connection: Connection, chosen: Mapping[str, int], held: Sequence[str]
    ) -> list[tuple[str, Conflict]]:
        """Begin a new generation of ids that were taken before. Return those whose jobs have not ended."""
        keys_of_held = {job_id: self._definitions[chosen[job_id]].idempotency_key for job_id in held}
        refused = of_old_clients(keys_of_held) or await still_held(connection, self._caller, held)
        if refused:
            return refused
        generations = await jobs.next_generations(connection, self._tenant, held)
        run_now = []
        keys: dict[str, int] = {}
        for job_id, generation in generations.items():
            index = chosen[job_id]
            item = self._definitions[index]
            self.generations[index] = generation
            if item.schedule.kind is ScheduleKind.NOW:
                run_now.append(job_id)
            if item.idempotency_key is not None:
                keys[item.idempotency_key] = generation
        if run_now:
            await jobs.delete_ended(connection, self._tenant, run_now)
        if keys:
            await idempotency_keys.set_generations(connection, self._tenant, keys)
        return []

    async def _is_generated(self, connection: Connection, job_id: str) -> bool:
        """Whether this id was generated for another job. Generated ids are not in taken_ids."""
        run_id = parse_uuid(job_id)
        if run_id is None or run_id.version != 7:
            return False
        if await jobs.get(connection, self._tenant, job_id) is not None:
            return True
        return await own_run(connection, self._tenant, job_id) is not None

    def _refusal(self, conflicts: list[tuple[int, Conflict]]) -> MainspringError:
        """The error for the whole submission: the error itself for a single job, errors by index for a batch."""
        if self._single:
            return conflicts[0][1]
        errors = [error.as_field_problem(index) for index, error in conflicts[:MAX_ERRORS]]
        refusal = Conflict(
            f"{len(conflicts)} job(s) of the batch are in conflict, so nothing was stored. The first: "
            f"{errors[0].field}: {errors[0].detail}",
            code=conflicts[0][1].code,
            field=errors[0].field,
        )
        refusal.errors = errors
        return refusal


def is_plain(item: JobDefinition) -> bool:
    """Whether only a run is created: no id or key to take, and no jobs row."""
    return (
        item.job_id is None
        and item.idempotency_key is None
        and item.schedule.kind is ScheduleKind.NOW
        and not has_limits(item)
        and item.spec.unique is None
        and item.spec.depends_on is None
    )


def is_stored(item: JobDefinition) -> bool:
    """Whether it becomes a row of jobs: it waits for a time, or recurs."""
    return item.schedule.kind is not ScheduleKind.NOW


def _is_default(item: JobDefinition) -> bool:
    """Whether the spec of an immediate job is stored as NULL. The overlap rule is a part of the spec there."""
    return item.spec is DEFAULT_SPEC and item.overlap is Overlap.SKIP


def _are_heavy(definitions: Sequence[JobDefinition]) -> bool:
    """Whether one insert would be too large. Only payloads count: a spec that is not the default goes elsewhere."""
    if len(definitions) * MAX_PAYLOAD_BYTES <= CHUNK_BYTES:
        return False
    return sum([len(payload) for item in definitions if (payload := item.payload) is not None]) > CHUNK_BYTES


def _weight(item: JobDefinition) -> int:
    """About how many bytes of it travel to the database."""
    setup, command = item.spec.setup, item.spec.command
    weight = 1000 + len(item.payload or "")
    if setup is not None:
        weight += len(msgspec.json.encode(setup))
    if command is not None:
        weight += sum(map(len, command))
    return weight + len(item.spec.description or "")
