"""Submit: store definitions as rows in one transaction, all of a batch or nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial

import msgspec

from mainspring.domain.errors import Conflict, InvalidBatch, InvalidInput, MainspringError, key_reused
from mainspring.domain.intake.canonical import canonical_json
from mainspring.domain.intake.declaration import defined
from mainspring.domain.intake.limits import strict_order
from mainspring.domain.intake.recurrence import never_fires
from mainspring.domain.intake.unique import unique_key
from mainspring.domain.job import DEFAULT_SPEC, JobDefinition, Overlap, boost_in, has_limits, line_of, stored_spec
from mainspring.domain.limits import Slot, key_id
from mainspring.domain.schedules.fires import first_fire
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind, for_job
from mainspring.kernel import metrics
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.config import MAX_PAYLOAD_BYTES
from mainspring.kernel.ids import TenantId, parse_uuid, uuid7_texts
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import CalendarBook, hold_rules
from mainspring.operations.gates.depths import Depths
from mainspring.operations.limits.admission import Admitted, hand_over
from mainspring.operations.limits.lines import LineOpener
from mainspring.operations.lookup import own_run
from mainspring.operations.signals import Signals
from mainspring.operations.submit.chosen_ids import generated_id, of_old_clients, still_held, twice_in_a_batch
from mainspring.operations.submit.path_compiler import compile_paths
from mainspring.operations.submit.signature_registry import SignatureRegistry
from mainspring.operations.submit.submit_batching import SubmitBatcher
from mainspring.operations.submit.unique import UniqueItem, UniqueMerge
from mainspring.store import jobs, runs, unique
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.lanes import LaneKey, LaneRegistry, lane_key
from mainspring.store.pool import Connection, Store
from mainspring.wire.jobs import JobRequest
from mainspring.wire.problems import FieldProblem

_MAX_ERRORS = 100
_CHUNK = 1000  # rows per insert, so that a batch of 10,000 does not block other statements
_CHUNK_BYTES = 4 * 1024 * 1024  # of payloads and specs per insert: the driver copies them in one go
# Submissions with keys or ids may have to wait for a user's transaction that holds them (see the decision on
# transactional submit). Two of the eight connections are always left for other statements, such as those of workers.
_TAKING_AT_ONCE = 6


class Submitted(msgspec.Struct, frozen=True):
    """The ids and generations in the order of the request. `repeated` marks jobs that exist already, by their
    idempotency key or their unique key. `unique`: what became of those that were merged into another job."""

    job_ids: list[str]
    repeated: list[bool]
    generations: list[int]
    unique: list[str | None]


class Submitter:
    def __init__(
        self,
        store: Store,
        lanes: LaneRegistry,
        signals: Signals,
        clock: DatabaseClock,
        signatures: SignatureRegistry,
        depths: Depths,
    ) -> None:
        self._store = store
        self._depths = depths
        self._lanes = lanes
        self._signals = signals
        self._clock = clock
        self._signatures = signatures
        self._batcher = SubmitBatcher(self._store_plain)
        self._taking = asyncio.Semaphore(_TAKING_AT_ONCE)
        self._lines = LineOpener(lambda: clock.timestamp())
        self._calendars = CalendarBook(store, clock)

    async def submit(self, caller: Caller, request: JobRequest) -> Submitted:
        tenant = caller.tenant
        await compile_paths([request])
        definition = defined(request, self._clock.now(), self._signatures.known(tenant))
        if definition.schedule.calendar is not None:
            definition = (await self._calendars.resolved(tenant, [definition], single=True))[0]
        if _plain(definition):
            self._depths.admit(tenant, [definition])
            return Submitted([await self._batcher.add(tenant, definition)], [False], [1], [None])
        return await despite_deadlocks(partial(self._store_all, tenant, [request], [definition], single=True))

    async def submit_batch(self, caller: Caller, requests: Sequence[JobRequest]) -> Submitted:
        tenant = caller.tenant
        await compile_paths(requests)
        now = self._clock.now()
        known = self._signatures.known(tenant)
        definitions: list[JobDefinition] = []
        errors: list[FieldProblem] = []
        slices = TimeSlices()
        for index, request in enumerate(requests):
            try:
                definitions.append(defined(request, now, known))
            except MainspringError as error:
                errors.append(error.as_field_problem(index))
                if len(errors) >= _MAX_ERRORS:
                    break
            if slices.over:  # a single rule may take longer than a slice
                await slices.pause()
        if errors:
            raise InvalidBatch(errors, more=len(errors) >= _MAX_ERRORS)
        resolved = await self._calendars.resolved(tenant, definitions, single=False)
        return await despite_deadlocks(partial(self._store_all, tenant, requests, resolved, single=False))

    async def _store_plain(self, tenant: TenantId, definitions: Sequence[JobDefinition]) -> list[str]:
        return (await self._store_all(tenant, (), definitions, single=True)).job_ids

    async def _store_all(
        self,
        tenant: TenantId,
        requests: Sequence[JobRequest],
        definitions: Sequence[JobDefinition],
        *,
        single: bool,
    ) -> Submitted:
        if not definitions:
            return Submitted([], [], [], [])
        plain = all(map(_plain, definitions))
        admitted = Admitted()
        fresh: list[Slot] = []
        # Before the transaction: it must not stand still for long.
        digests = {} if plain else await _digests(requests, definitions)
        limited = not plain and any(map(has_limits, definitions))
        unique_keys = {} if plain else await _unique_keys(definitions)
        async with nullcontext() if plain else self._taking, self._store.hot.acquire() as connection:
            lane_ids = await self._lane_ids(connection, tenant, definitions)
            batch = _Batch(tenant, digests, definitions, lane_ids, self._clock.now(), single=single, plain=plain)
            if unique_keys:
                batch.merge_into(self._lanes, unique_keys)
            if batch.one_statement:
                if requests:
                    self._depths.admit(tenant, definitions)
                await batch.insert(connection)  # a statement is its own transaction
            else:
                await batch.plan_ahead()
                async with connection.transaction():
                    await batch.take_keys_and_ids(connection)
                    await hold_rules(connection, tenant, batch.new_definitions())
                    if requests:  # those of the batcher are admitted one by one
                        self._depths.admit(tenant, batch.new_definitions())
                    if limited:
                        fresh, loose = await self._lines.declare(connection, tenant, batch.slots())
                        if loose:
                            raise batch.contradiction(loose)
                    await batch.insert(connection)
                    if batch.lines:
                        admitted = await hand_over(connection, {}, batch.lines)
                        batch.created.update(Counter(batch.created) + admitted.lanes)
        if fresh:
            self._lines.committed(tenant, fresh)
        metrics.submitted.inc(len(definitions) - sum(batch.repeated))
        self._signals.ready(batch.created)
        self._signals.knock(admitted.again)
        admitted.tell_later(self._signals)
        if batch.soonest is not None and batch.soonest < self._clock.now() + timedelta(seconds=5):
            self._signals.due()
        return Submitted(batch.job_ids, batch.repeated, batch.generations, batch.unique)

    async def _lane_ids(
        self, connection: Connection, tenant: TenantId, definitions: Sequence[JobDefinition]
    ) -> list[int]:
        lanes: list[int] = []
        missing: list[LaneKey] = []
        known = self._lanes.known
        slices = TimeSlices()
        for start in range(0, len(definitions), _CHUNK):
            for item in definitions[start : start + _CHUNK]:
                key = lane_key(tenant, item)
                lane_id = known(key)
                if lane_id is None:
                    missing.append(key)
                else:
                    lanes.append(lane_id)
            if slices.over:
                await slices.pause()
        if not missing:
            return lanes
        await self._lanes.intern(connection, missing)
        return await self._lane_ids(connection, tenant, definitions)


class _Batch:
    """One submission while it is stored."""

    def __init__(
        self,
        tenant: TenantId,
        digests: Mapping[int, bytes],
        definitions: Sequence[JobDefinition],
        lane_ids: Sequence[int],
        now: datetime,
        *,
        single: bool,
        plain: bool,
    ) -> None:
        self._tenant = tenant
        self._digests = digests
        self._definitions = definitions
        self._is_heavy = _are_heavy(definitions)
        self._lane_ids = lane_ids
        self._now = now
        self._single = single
        self._run_ids = uuid7_texts(len(definitions))
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
        if not self._plain or len(self._definitions) > _CHUNK or self._is_heavy:
            return False
        return len(self._definitions) == 1 or (
            len(set(self._lane_ids)) == 1 and all(_is_default(item) and item.name is None for item in self._definitions)
        )

    def new_definitions(self) -> list[JobDefinition]:
        """What is stored, without repeats."""
        return [item for item, repeated in zip(self._definitions, self.repeated, strict=True) if not repeated]

    def slots(self) -> list[Slot]:
        """What the runs of the jobs that are stored need, without repeats. The last of the batch is the last here."""
        for index, item in enumerate(self._definitions):
            if not self.repeated[index] and has_limits(item):
                self._slots[index] = line_of(item, self.job_ids[index])
        found = dict.fromkeys([slot for line in reversed(self._slots.values()) for slot in line])
        return list(reversed(found))

    def contradiction(self, names: set[str]) -> MainspringError:
        """Jobs declare these limits in strict order without it."""
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
        self._merge = UniqueMerge(self._tenant, lanes, items, self._now)

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
        """Work out the first fires that take long, before the transaction begins: it must not stand still."""
        slices = TimeSlices()
        for index, item in enumerate(self._definitions):
            schedule = item.schedule
            if schedule.calendar is not None or schedule.rrule is not None or schedule.jitter is not None:
                self._first_fire(for_job(schedule, self._tenant, self.job_ids[index], self._now))
                if slices.over:
                    await slices.pause()

    async def insert(self, connection: Connection) -> None:
        new_jobs: list[jobs.NewJob] = []
        full, limited = runs.NewRuns(), runs.NewHeldRuns()
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
            if weight > _CHUNK_BYTES or max(len(full.run_ids), len(limited.run_ids), len(new_jobs)) >= _CHUNK:
                await self._insert_full(connection, full, limited, new_jobs)
                full, limited, new_jobs, weight = runs.NewRuns(), runs.NewHeldRuns(), [], 0
        await self._insert_full(connection, full, limited, new_jobs)
        for lane_id, indexes in bare.items():
            await self._insert_bare(connection, lane_id, indexes)

    async def _insert_full(
        self, connection: Connection, full: runs.NewRuns, limited: runs.NewHeldRuns, new_jobs: list[jobs.NewJob]
    ) -> None:
        if full.run_ids:
            await runs.insert(connection, self._tenant, full)
        if limited.run_ids:
            await runs.insert_held(connection, self._tenant, limited)
            self.lines.update(line for lines in limited.lines for line in lines)
        if new_jobs:
            await jobs.insert(connection, self._tenant, new_jobs)

    async def _insert_bare(self, connection: Connection, lane_id: int, indexes: list[int]) -> None:
        """Insert jobs that have only a task and a payload."""
        attempts = DEFAULT_SPEC.retry.max_attempts
        for chunk in self._chunks(indexes):
            run_ids = [self._run_ids[index] for index in chunk]
            payloads = [self._definitions[index].payload for index in chunk]
            await runs.insert_plain(connection, self._tenant, lane_id, attempts, run_ids, payloads)

    def _chunks(self, indexes: list[int]) -> Iterator[list[int]]:
        """In parts that one insert may hold."""
        if len(indexes) <= _CHUNK and not self._is_heavy:
            yield indexes
            return
        chunk: list[int] = []
        weight = 0
        for index in indexes:
            chunk.append(index)
            weight += _weight(self._definitions[index])
            if weight > _CHUNK_BYTES or len(chunk) >= _CHUNK:
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
        known = await jobs.take_keys(
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
            self.repeated[index] = True
            self.job_ids[index] = before.job_id
            self.generations[index] = before.generation
            self.unique[index] = before.merged
        if conflicts:
            raise self._refusal(conflicts)

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
        refused = of_old_clients(keys_of_held) or await still_held(connection, self._tenant, held)
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
            await jobs.set_key_generations(connection, self._tenant, keys)
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
        errors = [error.as_field_problem(index) for index, error in conflicts[:_MAX_ERRORS]]
        refusal = Conflict(
            f"{len(conflicts)} job(s) of the batch are in conflict, so nothing was stored. The first: "
            f"{errors[0].field}: {errors[0].detail}",
            code=conflicts[0][1].code,
            field=errors[0].field,
        )
        refusal.errors = errors
        return refusal


def _plain(item: JobDefinition) -> bool:
    """Whether only a run is created: no id or key to take, and no jobs row."""
    return (
        item.job_id is None
        and item.idempotency_key is None
        and item.schedule.kind is ScheduleKind.NOW
        and not has_limits(item)
        and item.spec.unique is None
    )


def _is_default(item: JobDefinition) -> bool:
    """Whether its spec is stored as NULL. Of an immediate job, whose overlap rule is part of it."""
    return item.spec is DEFAULT_SPEC and item.overlap is Overlap.SKIP


def _are_heavy(definitions: Sequence[JobDefinition]) -> bool:
    """Whether one insert would be too large. Only payloads count: a spec that is not the default goes elsewhere."""
    if len(definitions) * MAX_PAYLOAD_BYTES <= _CHUNK_BYTES:
        return False
    return sum([len(payload) for item in definitions if (payload := item.payload) is not None]) > _CHUNK_BYTES


def _weight(item: JobDefinition) -> int:
    """About how many bytes of it travel to the database."""
    setup, command = item.spec.setup, item.spec.command
    weight = 1000 + len(item.payload or "")
    if setup is not None:
        weight += len(msgspec.json.encode(setup))
    if command is not None:
        weight += sum(map(len, command))
    return weight + len(item.spec.description or "")


async def _digests(requests: Sequence[JobRequest], definitions: Sequence[JobDefinition]) -> dict[int, bytes]:
    """The hashes of the bodies that have a key, by index."""
    digests: dict[int, bytes] = {}
    slices = TimeSlices()
    for index, item in enumerate(definitions):
        if item.idempotency_key is not None:
            digests[index] = body_hash(requests[index])
            if slices.over:
                await slices.pause()
    return digests


async def _unique_keys(definitions: Sequence[JobDefinition]) -> dict[int, bytes]:
    """The keys of the jobs that are unique, by index."""
    keys: dict[int, bytes] = {}
    slices = TimeSlices()
    for index, item in enumerate(definitions):
        if item.spec.unique is not None:
            keys[index] = unique_key(item)
            if slices.over:
                await slices.pause()
    return keys


def body_hash(request: JobRequest) -> bytes:
    """A hash that does not depend on spacing and the order of keys. It does not include the options of the task, so a
    repeat is recognized even if a worker has declared other options meanwhile."""
    return hashlib.sha256(canonical_json(msgspec.json.encode(request))).digest()
