"""Run now: a manual run of a job, in addition to its schedule.

The job's row is locked, so that the overlap rule is decided as in a fire. A one-time job that has fired has no row. Its
manual run repeats the run that it has become, under a lock of its own. With an idempotency key the key is taken first:
a second request with it waits for the first one, and then gets the same run.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import msgspec

from mainspring.domain.dependencies import has_references
from mainspring.domain.errors import InvalidInput, key_reused
from mainspring.domain.intake.canonical import canonical_json
from mainspring.domain.intake.rerun import payload_dropped, with_payload
from mainspring.domain.job import JobDefinition, Overlap, stored_spec
from mainspring.domain.refusals import cancelled
from mainspring.domain.tags import changed_meanwhile, check_version
from mainspring.domain.texts import check_line
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.domain.workflows.references import may_refer
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.ownership import check_own
from mainspring.operations.dependencies.newest_results import with_newest_results
from mainspring.operations.lifecycle.fire import FireEffects, cancel_earlier, run_again, run_now
from mainspring.operations.limits.effects import admit_woken
from mainspring.operations.lookup import load_lane, no_job, own_run, refuse_step, run_definition
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.store import dead_letters, fired_jobs, history, idempotency_keys, jobs
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.fires import Changed, Repeat
from mainspring.store.history import EndedRun, Run
from mainspring.store.jobs import LockedJob, schedule_from_text
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.wire.jobs import RunNowRequest

_LONGEST_ID = 200  # a longer one could not be stored with its key
_OWN_PAYLOAD = "leave the payload out for the job's own"
_SOON = timedelta(seconds=5)


class RanNow(msgspec.Struct, frozen=True):
    """`repeated`: the run exists already, by the idempotency key of the request."""

    run_id: UUID
    repeated: bool


class RunsMade(msgspec.Struct, frozen=True):
    """`due`: the job fires soon, and must be read again."""

    fired: FireEffects
    due: bool


class ManualRuns:
    def __init__(
        self,
        store: Store,
        lanes: LaneRegistry,
        signals: Signals,
        clock: DatabaseClock,
        signatures: SignatureRegistry,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._signals = signals
        self._clock = clock
        self._signatures = signatures

    async def run_now(
        self, caller: Caller, job_id: str, request: RunNowRequest, if_version: int | None = None
    ) -> RanNow:
        """Create a manual run, with another payload if one is given. The run is SKIPPED if the job does not overlap and
        a run of it is alive."""
        if request.idempotency_key is not None:
            check_line(request.idempotency_key, "idempotency_key")
        if len(job_id) > _LONGEST_ID:
            raise no_job(job_id)
        digest = hashlib.sha256(canonical_json(bytes(memoryview(request.payload)))).digest()
        return await despite_deadlocks(partial(self._run_now, caller, job_id, request, digest, if_version))

    async def _run_now(
        self, caller: Caller, job_id: str, request: RunNowRequest, digest: bytes, if_version: int | None
    ) -> RanNow:
        async with self._store.change() as connection:
            ran, fired = await self.run_now_in(caller, connection, job_id, request, digest, if_version)
        if fired is not None:
            self.publish(fired)
        return ran

    async def run_now_in(
        self,
        caller: Caller,
        connection: Connection,
        job_id: str,
        request: RunNowRequest,
        digest: bytes = b"",
        if_version: int | None = None,
    ) -> tuple[RanNow, RunsMade | None]:
        """Run a job now in the caller's transaction. The caller passes the new runs to `publish` after the commit."""
        tenant = caller.tenant
        key, run_id = request.idempotency_key, uuid7()
        await dead_letters.lock_ids(connection, tenant, [job_id])  # no new generation begins meanwhile
        generation = await jobs.newest_generation(connection, tenant, job_id) or 1
        if key is not None:
            known = await idempotency_keys.take_run_now(connection, tenant, job_id, generation, key, digest, run_id)
            if known is not None:
                if known.body_hash != digest:
                    raise key_reused(key)
                return RanNow(known.run_id, repeated=True), None
        row = await jobs.lock(connection, tenant, job_id)
        check_version("job", generation if row is None else row.version, if_version)
        if row is not None:
            check_own(caller, row.created_by, f"job {job_id!r}")
            fired = await self._run(connection, caller, row, run_id, request.payload)
        else:
            fired = await self._run_again(connection, caller, job_id, generation, run_id, request.payload)
        await admit_woken(connection, fired)  # the answer tells the status of the run
        own = {"payload": request.payload} if memoryview(request.payload) else {}
        await record(connection, caller, "job", job_id, None, {"run_id": run_id, **own})
        # A one-time job has a new row, and its fire is prepared from that.
        due = row is not None and row.next_fire_at is not None and row.next_fire_at < row.now + _SOON
        return RanNow(run_id, repeated=False), RunsMade(fired, due)

    def publish(self, made: RunsMade) -> None:
        """After the commit: publish the runs, which wakes workers that wait."""
        self._signals.ready.publish(made.fired.created)
        made.fired.publish(self._signals)
        if made.due:
            self._signals.due.publish()

    async def _run(
        self, connection: Connection, caller: Caller, row: LockedJob, run_id: UUID, payload: msgspec.Raw
    ) -> FireEffects:
        tenant, job_id = row.tenant_id, row.job_id
        if row.status == StoredJobStatus.CANCELLED:
            raise cancelled(job_id, one_time=schedule_from_text(row.schedule_text).one_time)
        changed: Changed | None = None
        if memoryview(payload) or may_refer(row.payload_text):
            lane = await load_lane(self._lanes, connection, row.lane_id)
            definition = jobs.definition_of(row, lane)
            if memoryview(payload):
                changed = self._with_payload(tenant, job_id, definition, payload, row.now)
            elif has_references(definition):
                changed = (await with_newest_results(connection, tenant, definition), row.spec_text)
        fired = await run_now(connection, tenant, job_id, run_id, f"manual:{run_id}", changed, caller.created_by)
        if fired is None:
            raise changed_meanwhile(f"job {job_id!r}")
        if row.overlap == Overlap.CANCEL_PREVIOUS:
            await cancel_earlier(connection, tenant, job_id, [run_id], fired)
        return fired

    async def _run_again(
        self,
        connection: Connection,
        caller: Caller,
        job_id: str,
        generation: int,
        run_id: UUID,
        payload: msgspec.Raw,
    ) -> FireEffects:
        """A repeat of a one-time job that has fired."""
        tenant = caller.tenant
        await jobs.lock_fired(connection, tenant, [job_id])
        own = await own_run(connection, tenant, job_id)
        await refuse_step(connection, tenant, job_id, own)
        original = own or await fired_jobs.fire_of(connection, tenant, job_id, generation)
        if original is None:  # it is no longer in the history, but a repeat of it may be
            original = next(iter(await history.runs_of_job(connection, tenant, job_id, None, 1, generation)), None)
        if original is None:
            raise no_job(job_id)
        if _was_cancelled(original):
            raise cancelled(job_id, one_time=True)
        definition = run_definition(original, await load_lane(self._lanes, connection, original.lane_id))
        definition = msgspec.structs.replace(definition, spec=msgspec.structs.replace(definition.spec, repeat=None))
        dropped = isinstance(original, EndedRun) and original.payload_dropped
        text, spec = definition.payload, stored_spec(definition, job_id)
        if memoryview(payload):
            text, spec = self._with_payload(tenant, job_id, definition, payload, self._clock.now(), dropped=dropped)
        elif dropped:
            raise payload_dropped(original.run_id)
        item = Repeat(
            job_id=job_id,
            generation=original.generation,
            run_id=run_id,
            trigger=f"replay:{original.run_id}",
            lane_id=original.lane_id,
            max_attempts=original.max_attempts - original.losses - original.snoozes,
            name=original.name,
            one_at_a_time=definition.overlap is Overlap.SKIP,
            own=None if own is None else own.run_id,
            payload=text,
            spec=spec,
            created_by=caller.created_by,
        )
        return await run_again(connection, tenant, item)

    def _with_payload(
        self,
        tenant: TenantId,
        job_id: str,
        stored: JobDefinition,
        payload: msgspec.Raw,
        now: datetime,
        *,
        dropped: bool = False,
    ) -> Changed:
        try:
            item = with_payload(stored, payload, now, dropped=dropped)
            self._signatures.check(tenant, item.task, item.payload)
        except InvalidInput as error:
            if bytes(memoryview(payload)).strip() == b"null":  # some clients send it for what is not given
                error.hint = _OWN_PAYLOAD if error.hint is None else f"{error.hint}; {_OWN_PAYLOAD}"
            raise
        return item.payload, stored_spec(item, job_id)


def _was_cancelled(run: Run) -> bool:
    return run.state == StoredState.CANCELLED or (not isinstance(run, EndedRun) and run.cancel_requested_at is not None)
