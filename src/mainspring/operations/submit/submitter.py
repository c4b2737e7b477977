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
from mainspring.domain.intake.unique import unique_key
from mainspring.domain.job import JobDefinition, has_limits
from mainspring.domain.limits import Slot
from mainspring.domain.worker_needs import WorkerNeeds, needs_of
from mainspring.kernel import metrics
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import TenantId
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.calendars.rules import CalendarBook, hold_rules
from mainspring.operations.dependencies.edges import Dependant, Refused, check_edges, check_parents
from mainspring.operations.lifecycle.dispatch import RUNS_CREATED
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import RunsCreated
from mainspring.operations.limits.admission import Admitted, release_and_admit
from mainspring.operations.limits.depths import Depths
from mainspring.operations.limits.limit_declarer import LimitDeclarer
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.offers import OfferRegistry
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.operations.signatures.slow_checks import prepare_checks
from mainspring.operations.submit.batch import CHUNK, MAX_ERRORS, SubmitBatch, is_plain
from mainspring.operations.submit.submit_batching import SubmitBatcher
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.dependencies import lock_graph
from mainspring.store.lanes import LaneKey, LaneRegistry, lane_key
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
    ) -> None:
        self._store = store
        self._depths = depths
        self._offers = offers
        self._lanes = lanes
        self._signals = signals
        self._clock = clock
        self._signatures = signatures
        self._batcher = SubmitBatcher(self._store_plain)
        self._taking = asyncio.Semaphore(_TAKING_AT_ONCE)
        self._lines = LimitDeclarer(lambda: clock.timestamp())
        self._calendars = CalendarBook(store, clock)

    async def submit(self, caller: Caller, request: JobRequest) -> Submitted:
        tenant, definition = caller.tenant, await self.check(caller, request)
        if is_plain(definition):
            self._depths.admit(tenant, [definition])
            job_id = await self._batcher.add(tenant, definition)
            warnings = await self._offers.warnings(caller, (needs_of(definition),))
            return Submitted([job_id], [False], [1], [None], warnings)
        store = partial(self._store_all, tenant, [request], [definition], single=True)
        return await self._with_warnings(caller, await despite_deadlocks(store))

    async def validate(self, caller: Caller, request: JobRequest) -> JobDefinition:
        """The definition of the job that this request would create. Raises what its creation would raise, except for
        ids and keys that are taken and queues that are full. Nothing is stored."""
        definition = await self.check(caller, request)
        await self._would_follow(caller.tenant, [request], definition)
        return definition

    async def validate_defined(self, caller: Caller, definition: JobDefinition) -> None:
        """The same for a job that is defined already."""
        if definition.schedule.calendar is not None:
            await self._calendars.resolved(caller.tenant, [definition], single=True)
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
        if definition.schedule.calendar is not None:
            definition = (await self._calendars.resolved(caller.tenant, [definition], single=True))[0]
        return definition

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
        resolved = await self._calendars.resolved(tenant, definitions, single=False)
        store = partial(self._store_all, tenant, requests, resolved, single=False)
        return await self._with_warnings(caller, await despite_deadlocks(store))

    async def _with_warnings(self, caller: Caller, done: Submitted) -> Submitted:
        return msgspec.structs.replace(done, warnings=await self._offers.warnings(caller, done.needs))

    async def submit_defined(
        self, caller: Caller, definition: JobDefinition, digest: bytes | None, also: Also
    ) -> Submitted:
        """Store a job that is defined already. digest: the hash of its request. `also` is called with its id and
        generation in the transaction that stores it, unless the job exists already."""
        tenant = caller.tenant
        if definition.schedule.calendar is not None:
            definition = (await self._calendars.resolved(tenant, [definition], single=True))[0]
        digests = {} if digest is None else {0: digest}
        return await despite_deadlocks(
            partial(self._store_all, tenant, (), [definition], single=True, digests=digests, also=also)
        )

    async def _store_plain(self, tenant: TenantId, definitions: Sequence[JobDefinition]) -> list[str]:
        return (await self._store_all(tenant, (), definitions, single=True)).job_ids

    async def _store_all(
        self,
        tenant: TenantId,
        requests: Sequence[JobRequest],
        definitions: Sequence[JobDefinition],
        *,
        single: bool,
        digests: dict[int, bytes] | None = None,
        also: Also | None = None,
    ) -> Submitted:
        if not definitions:
            return Submitted([], [], [], [])
        plain = also is None and all(map(is_plain, definitions))
        admitted, effects = Admitted(), Effects()
        fresh: list[Slot] = []
        # Before the transaction: it must not stand still for long.
        if digests is None:
            digests = {} if plain else await _digests(requests, definitions)
        limited = not plain and any(map(has_limits, definitions))
        dependent = not plain and any(map(parents_of, definitions))
        unique_keys = {} if plain else await _unique_keys(definitions)
        async with nullcontext() if plain else self._taking, self._store.hot.acquire() as connection:
            if dependent:  # before anything is stored, its lane included
                await _check_parents(connection, tenant, requests, definitions, single=single)
            lane_ids = await self._lane_ids(connection, tenant, definitions)
            batch = SubmitBatch(tenant, digests, definitions, lane_ids, self._clock.now(), single=single, plain=plain)
            if unique_keys:
                batch.merge_into(self._lanes, unique_keys)
            if batch.one_statement:
                if requests:
                    self._depths.admit(tenant, definitions)
                await batch.insert(connection)  # a statement is its own transaction
                await RUNS_CREATED.happened(connection, [RunsCreated(batch.created)], effects)
            else:
                await batch.plan_ahead()
                async with connection.transaction():
                    if dependent:
                        await lock_graph(connection, tenant)
                    await batch.take_keys_and_ids(connection)
                    await hold_rules(connection, tenant, batch.new_definitions())
                    if requests or also is not None:  # those of the batcher are admitted one by one
                        self._depths.admit(tenant, batch.new_definitions())
                    if limited:
                        fresh, loose = await self._lines.declare(connection, tenant, batch.slots())
                        if loose:
                            raise batch.contradiction(loose)
                    await batch.insert(connection)
                    if also is not None and not batch.repeated[0]:
                        await also(connection, batch.job_ids[0], batch.generations[0])
                    if dependent or max(batch.generations) > 1:
                        await batch.make_edges(connection, _given_as(requests, definitions))
                    if batch.lines:
                        admitted = await release_and_admit(connection, {}, batch.lines)
                        batch.created.update(Counter(batch.created) + admitted.lanes)
                    created = RunsCreated(batch.created, with_parents=int(dependent))  # the HELD ones are admitted
                    await RUNS_CREATED.happened(connection, [created], effects)
        effects.publish(self._signals)
        if fresh:
            self._lines.committed(tenant, fresh)
        metrics.submitted.inc(len(definitions) - sum(batch.repeated))
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
