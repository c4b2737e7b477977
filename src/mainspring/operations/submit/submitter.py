"""Submit: store definitions as rows in one transaction, all of a batch or nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from itertools import compress
from operator import not_

import msgspec

from mainspring.domain.dependencies import parents_of
from mainspring.domain.errors import InvalidBatch, MainspringError
from mainspring.domain.intake.canonical import canonical_json
from mainspring.domain.intake.declaration import defined
from mainspring.domain.intake.job_secrets import idle_references
from mainspring.domain.intake.unique import unique_key
from mainspring.domain.job import JobDefinition, has_limits
from mainspring.domain.limits import Slot
from mainspring.domain.worker_needs import WorkerNeeds, needs_of
from mainspring.kernel import metrics
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import TenantId, uuid7_texts
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import CalendarBook, hold_rules
from mainspring.operations.dependencies.edges import Dependant, Refused, check_count, check_edges, check_parents
from mainspring.operations.exchange.hand_off import HandOffs
from mainspring.operations.lifecycle.dispatch import RUNS_CREATED
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import RunsCreated
from mainspring.operations.limits.admission import Admitted, release_and_admit
from mainspring.operations.limits.depths import Depths
from mainspring.operations.limits.limit_declarer import LimitDeclarer
from mainspring.operations.limits.quota_guard import QuotaGuard, check_stored, take_job_places
from mainspring.operations.live.topics import JOBS, QUEUES, RUNS
from mainspring.operations.notify.job_channels import check_batch, check_channels
from mainspring.operations.object_guard import check_reached
from mainspring.operations.secrets.secret_check import SecretCheck
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.offers import OfferRegistry
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.signatures.slow_checks import prepare_checks
from mainspring.operations.submit.batch import CHUNK, MAX_ERRORS, SubmitBatch, is_plain, is_stored
from mainspring.operations.submit.submit_batching import SubmitBatcher
from mainspring.operations.submit.submit_repeat import InDoubt, RepeatedSubmit
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.dependencies import lock_graph
from mainspring.store.lanes import LaneKey, LaneRegistry, lane_key
from mainspring.store.outage_queue import despite_outages
from mainspring.store.pool import Connection, Store
from mainspring.wire.jobs import JobRequest
from mainspring.wire.problems import FieldProblem

# Submissions with keys or ids may have to wait for a user's transaction that holds them (see the decision on
# transactional submit). Two of the eight connections are always left for other statements, such as those of workers.
_TAKING_AT_ONCE = 6

Also = Callable[[Connection, str, int], Awaitable[None]]


class Submitted(msgspec.Struct, frozen=True):
    """The ids and generations in the order of the request. `repeated` marks jobs that exist already, by their
    idempotency key or their unique key. `unique`: what became of those that were merged into another job. `warnings`:
    what no live worker takes. `needs`: what their runs need from a worker."""

    job_ids: list[str]
    repeated: list[bool]
    generations: list[int]
    unique: list[str | None]
    warnings: list[str] = []
    needs: Collection[WorkerNeeds] = ()


class Submitter:
    def __init__(
        self,
        store: Store,
        lanes: LaneRegistry,
        signals: Signals,
        clock: DatabaseClock,
        signatures: SignatureRegistry,
        depths: Depths,
        offers: OfferRegistry,
        hand_offs: HandOffs | None,
        secrets: SecretCheck,
        quotas: QuotaGuard,
    ) -> None:
        self._store = store
        self._quotas = quotas
        self._secrets = secrets
        self._depths = depths
        self._offers = offers
        self._hand_offs = hand_offs
        self._lanes = lanes
        self._signals = signals
        self._clock = clock
        self._signatures = signatures
        self._batcher = SubmitBatcher(self._store_plain)
        self._taking = asyncio.Semaphore(_TAKING_AT_ONCE)
        self._lines = LimitDeclarer(lambda: clock.timestamp())
        self._calendars = CalendarBook(store, clock)

    async def submit(self, caller: Caller, request: JobRequest) -> Submitted:
        tenant = caller.tenant
        definition = await despite_outages(self._store.waiting, partial(self.check, caller, request))
        await self._quotas.admit(caller, [definition])
        if is_plain(definition):
            self._depths.admit(tenant, [definition])
            try:
                job_id = await self._batcher.add(caller, definition)
            except InDoubt as doubt:
                job_id = await self._decided(caller, definition, doubt)
            return Submitted([job_id], [False], [1], [None], await self.warnings(caller, definition))
        done = await self._store_some(caller, [request], [definition], single=True)
        return await self._with_warnings(caller, done, [definition])

    async def warnings(self, caller: Caller, definition: JobDefinition) -> list[str]:
        """What may not be meant in a job that is accepted."""
        return [*idle_references((definition,)), *await self._offers.warnings(caller, (needs_of(definition),))]

    async def validate(self, caller: Caller, request: JobRequest) -> JobDefinition:
        """The definition of the job that this request would create. Raises what its creation would raise, except for
        ids and keys that are taken and queues that are full. Nothing is stored."""
        definition = await self.check(caller, request)
        await self._would_follow(caller.tenant, [request], definition)
        return definition

    async def validate_defined(self, caller: Caller, definition: JobDefinition) -> None:
        """Check a job that is defined already."""
        if definition.schedule.calendar is not None:
            await self._calendars.resolved(caller.tenant, [definition], single=True)
        await check_channels(self._store, caller.tenant, definition)
        await self._would_follow(caller.tenant, (), definition)

    async def _would_follow(self, tenant: TenantId, requests: Sequence[JobRequest], definition: JobDefinition) -> None:
        """Raise InvalidInput if a job cannot depend on what it names."""
        if not parents_of(definition):
            return
        [given_as] = _given_as(requests, [definition])
        async with self._store.reads.acquire() as connection:
            try:
                await check_edges(connection, tenant, Dependant(definition.job_id or "", definition, given_as=given_as))
            except Refused as refused:
                raise refused.error from None

    async def check(self, caller: Caller, request: JobRequest) -> JobDefinition:
        """The definition of the job that this request would create, apart from what it depends on."""
        await prepare_checks([request])
        definition = defined(request, self._clock.now(), self._signatures.known(caller.tenant))
        if caller.narrowing is not None:
            await self._check_inside(caller, [definition], single=True)
        if definition.schedule.calendar is not None:
            definition = (await self._calendars.resolved(caller.tenant, [definition], single=True))[0]
        if definition.spec.setup is not None:
            await self._secrets.check(caller.tenant, definition)
        await check_channels(self._store, caller.tenant, definition)
        return definition

    async def _checked(self, caller: Caller, definitions: Sequence[JobDefinition]) -> Sequence[JobDefinition]:
        """The jobs of a batch, with the rules of their calendars. Raises if they name what does not exist, or what the
        caller does not reach."""
        tenant = caller.tenant
        errors = await self._secrets.problems(tenant, definitions)
        errors = errors or (await check_batch(self._store, tenant, definitions))[:MAX_ERRORS]
        if errors:
            raise InvalidBatch(errors, more=len(errors) >= MAX_ERRORS)
        if caller.narrowing is not None:
            await self._check_inside(caller, definitions, single=False)
        return await self._calendars.resolved(tenant, definitions, single=False)

    async def _check_inside(self, caller: Caller, definitions: Sequence[JobDefinition], *, single: bool) -> None:
        """Raise if the token of the caller does not reach one of these jobs, or what it depends on."""
        reach = caller.narrowing
        for index, item in enumerate(definitions if reach is not None else ()):
            where = "" if single else f"jobs[{index}]."
            assert reach is not None
            reach.check_inside(item.queue, item.task, item.spec.labels, where)
            if parents := parents_of(item):
                async with self._store.reads.acquire() as connection:
                    await check_reached(self._lanes, connection, caller, parents, f"{where}depends_on")

    async def submit_batch(self, caller: Caller, requests: Sequence[JobRequest]) -> Submitted:
        tenant = caller.tenant
        await prepare_checks(requests)
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
                if len(errors) >= MAX_ERRORS:
                    break
            if slices.over:  # a single rule may take longer than a slice
                await slices.pause()
        if errors:
            raise InvalidBatch(errors, more=len(errors) >= MAX_ERRORS)
        resolved = await despite_outages(self._store.waiting, partial(self._checked, caller, definitions))
        await self._quotas.admit(caller, resolved)
        done = await self._store_some(caller, requests, resolved, single=False)
        return await self._with_warnings(caller, done, resolved)

    async def _with_warnings(self, caller: Caller, done: Submitted, definitions: Sequence[JobDefinition]) -> Submitted:
        offered = await self._offers.warnings(caller, done.needs)
        return msgspec.structs.replace(done, warnings=[*idle_references(definitions), *offered])

    async def submit_defined(
        self, caller: Caller, definition: JobDefinition, digest: bytes | None, also: Also
    ) -> Submitted:
        """Store a job that is defined already. digest: the hash of its request. `also` is called with its id and
        generation in the transaction that stores it, unless the job exists already."""
        tenant = caller.tenant
        if definition.schedule.calendar is not None:
            definition = (await self._calendars.resolved(tenant, [definition], single=True))[0]
        await check_channels(self._store, tenant, definition)
        await self._quotas.admit(caller, [definition])
        digests = {} if digest is None else {0: digest}
        return await despite_deadlocks(
            partial(
                self._store_all,
                caller,
                (),
                [definition],
                RepeatedSubmit(uuid7_texts(1)),
                single=True,
                digests=digests,
                also=also,
            )
        )

    async def submit_with(
        self, caller: Caller, definitions: Sequence[JobDefinition], also: Callable[[Connection], Awaitable[None]]
    ) -> Submitted:
        """Store jobs that are defined already, without idempotency keys. `also` is called in the transaction that
        stores them."""
        await self._quotas.admit(caller, definitions)
        attempt = RepeatedSubmit(uuid7_texts(len(definitions)))

        async def with_these(connection: Connection, _job_id: str, _generation: int) -> None:
            await also(connection)

        return await self._store_all(caller, (), definitions, attempt, single=False, digests={}, also=with_these)

    async def _store_plain(self, caller: Caller, definitions: Sequence[JobDefinition], run_ids: Sequence[str]) -> None:
        await self._store_all(caller, (), definitions, RepeatedSubmit(run_ids), single=True)

    async def _store_some(
        self, caller: Caller, requests: Sequence[JobRequest], definitions: Sequence[JobDefinition], *, single: bool
    ) -> Submitted:
        """Store a request, again after an outage of PostgreSQL."""
        attempt = RepeatedSubmit(uuid7_texts(len(definitions)))
        store = partial(self._store_all, caller, requests, definitions, attempt, single=single)
        done: list[Submitted] = []

        async def once() -> None:
            done.append(await despite_deadlocks(store))

        await attempt.until_stored(self._store, caller.tenant, once)
        if done or attempt.batch is None:
            return done[0]
        return Submitted(attempt.batch.job_ids, attempt.batch.repeated, attempt.batch.generations, attempt.batch.unique)

    async def _decided(self, caller: Caller, definition: JobDefinition, doubt: InDoubt) -> str:
        """Store a plain job whose insert was not acknowledged, unless it is stored."""
        attempt = RepeatedSubmit([doubt.run_id])
        attempt.batch = SubmitBatch(
            caller, {}, [definition], [0], self._clock.now(), single=True, plain=True, run_ids=attempt.run_ids
        )

        async def again() -> None:
            await self._store_all(caller, (), [definition], attempt, single=True)

        assert doubt.__cause__ is not None
        await attempt.until_stored(self._store, caller.tenant, again, doubt.__cause__)
        return doubt.run_id

    async def _store_all(
        self,
        caller: Caller,
        requests: Sequence[JobRequest],
        definitions: Sequence[JobDefinition],
        attempt: RepeatedSubmit,
        *,
        single: bool,
        digests: dict[int, bytes] | None = None,
        also: Also | None = None,
    ) -> Submitted:
        if not definitions:
            return Submitted([], [], [], [])
        tenant = caller.tenant
        plain = also is None and all(map(is_plain, definitions))
        admitted, effects, handed = Admitted(), Effects(), 0
        fresh: list[Slot] = []
        # Before the transaction: it must not stand still for long.
        if digests is None:
            digests = {} if plain else await _digests(requests, definitions)
        limited = not plain and any(map(has_limits, definitions))
        dependent = not plain and any(map(parents_of, definitions))
        if dependent:
            check_count(definitions)
        unique_keys = {} if plain else await _unique_keys(definitions)
        async with nullcontext() if plain else self._taking, self._store.hot.acquire() as connection:
            if dependent:  # before anything is stored, its lane included
                await _check_parents(connection, tenant, requests, definitions, single=single)
            lane_ids = await self._lane_ids(connection, tenant, definitions)
            batch = SubmitBatch(
                caller, digests, definitions, lane_ids, self._clock.now(),
                single=single, plain=plain, run_ids=attempt.run_ids,
            )  # fmt: skip
            if unique_keys:
                batch.merge_into(self._lanes, unique_keys)
            if plain and requests and not attempt.is_repeat:  # those of the batcher are admitted one by one
                self._depths.admit(tenant, definitions)
            may_hand_off = plain and not batch.is_heavy and not attempt.is_repeat
            hand_off = self._hand_offs.begin(lane_ids) if may_hand_off and self._hand_offs is not None else None
            if hand_off is not None:
                attempt.batch = batch
                handed = await batch.hand_off(connection, hand_off)
                await RUNS_CREATED.happened(connection, [RunsCreated(Counter(lane_ids))], effects)
            elif batch.one_statement and not attempt.is_repeat:
                attempt.batch = batch
                await batch.insert(connection)  # a statement is its own transaction
                await RUNS_CREATED.happened(connection, [RunsCreated(batch.created)], effects)
            else:
                await batch.plan_ahead()
                async with connection.transaction():
                    places = None
                    if self._quotas.counts_stored_jobs(caller) and any(map(is_stored, definitions)):
                        places = await take_job_places(connection, tenant)
                    if dependent:
                        await lock_graph(connection, tenant)
                    await batch.take_keys_and_ids(connection)
                    await hold_rules(connection, tenant, batch.new_definitions())
                    if not plain:
                        self._depths.admit(tenant, batch.new_definitions())
                    if limited:
                        fresh, loose = await self._lines.declare(connection, tenant, batch.slots())
                        if loose:
                            raise batch.contradiction(loose)
                    await batch.insert(connection)
                    if places is not None and not all(batch.repeated):
                        await check_stored(connection, tenant, places)
                    if also is not None and not (single and batch.repeated[0]):
                        await also(connection, batch.job_ids[0], batch.generations[0])
                    if dependent or max(batch.generations) > 1:
                        await batch.make_edges(connection, _given_as(requests, definitions))
                    if batch.lines:
                        admitted = await release_and_admit(connection, {}, batch.lines)
                        batch.created.update(Counter(batch.created) + admitted.lanes)
                    created = RunsCreated(batch.created, with_parents=int(dependent))  # the HELD ones are admitted
                    await RUNS_CREATED.happened(connection, [created], effects)
                    await attempt.check(connection, tenant)
                    attempt.batch = batch
        effects.publish(self._signals)
        if fresh:
            self._lines.committed(tenant, fresh)
        self._count(len(definitions) - sum(batch.repeated))
        if handed:  # instead of the signal that they are ready
            self._signals.lists_changed.publish(tenant, (JOBS, RUNS, QUEUES), handed)
        self._signals.ready.publish(batch.created)
        self._signals.admission.publish(admitted.again)
        admitted.publish(self._signals)
        if batch.soonest is not None and batch.soonest < self._clock.now() + timedelta(seconds=5):
            self._signals.due.publish()
        return Submitted(
            batch.job_ids,
            batch.repeated,
            batch.generations,
            batch.unique,
            needs=self._needs(compress(lane_ids, map(not_, batch.repeated))),
        )

    def _count(self, accepted: int) -> None:
        metrics.submitted.inc(accepted)

    def _needs(self, lane_ids: Iterable[int]) -> set[WorkerNeeds]:
        lanes = map(self._lanes.peek, set(lane_ids))
        return {WorkerNeeds(lane.queue, lane.task, lane.labels) for lane in lanes if lane is not None}

    async def _lane_ids(
        self, connection: Connection, tenant: TenantId, definitions: Sequence[JobDefinition]
    ) -> list[int]:
        lanes: list[int] = []
        missing: list[LaneKey] = []
        known = self._lanes.known
        slices = TimeSlices()
        for start in range(0, len(definitions), CHUNK):
            for item in definitions[start : start + CHUNK]:
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


async def _check_parents(
    connection: Connection,
    tenant: TenantId,
    requests: Sequence[JobRequest],
    definitions: Sequence[JobDefinition],
    *,
    single: bool,
) -> None:
    items = [
        Dependant(item.job_id or "", item, given_as=field)
        for item, field in zip(definitions, _given_as(requests, definitions), strict=True)
    ]
    try:
        await check_parents(connection, tenant, items, {item.job_id for item in items})
    except Refused as refused:
        raise refused.of_submission(refused.place, single=single) from None


def _given_as(requests: Sequence[JobRequest], definitions: Sequence[JobDefinition]) -> list[str]:
    """How each request names the field."""
    if not requests:
        return ["depends_on"] * len(definitions)
    return ["depends_on" if request.dependencies is None else "dependencies" for request in requests]


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
