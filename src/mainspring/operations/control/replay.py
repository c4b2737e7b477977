"""Replay: an ended run runs again, as a new run for the same fire time.

A replay has its own run_id, all its attempts, and the same scheduled_for. A replay of a run that did not succeed also
has the same idempotency key, so effects that were recorded under this key are not repeated. A repeat of a success, or
with another payload, has a key of its own (domain/run_key.py). Dead letters are locked first, then their jobs, each in
key order. The next statement decides what the jobs allow, as in every fire. A run is repeated at most once (table
replays); a replay can itself be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.errors import Conflict, InvalidInput, MainspringError, NotFound, PayloadTooLarge
from mainspring.domain.intake.request import parse_time
from mainspring.domain.intake.rerun import repeated
from mainspring.domain.job import ONE_AFTER_ANOTHER, Overlap, spec_from_text, stored_spec
from mainspring.domain.tags import changed_meanwhile, check_tag, dead_letter_tag, run_tag
from mainspring.domain.texts import check_prose
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import TenantId, uuid7, uuid7_batch
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.lifecycle.discard import discard
from mainspring.operations.lifecycle.dispatch import RUNS_CREATED
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lifecycle.events import RunsCreated
from mainspring.operations.lookup import load_lane, run_definition
from mainspring.operations.paging.search import DeadLetterQuery, search_in_words
from mainspring.operations.read.dead_letters import dead_letter_filter
from mainspring.operations.read.views import job_id_of
from mainspring.operations.signals import Signals
from mainspring.operations.signatures.signature_registry import SignatureRegistry
from mainspring.store import dead_letters, history
from mainspring.store.dead_letters import AllowedRun, DeadLetterFilter, JobsOfRuns, LockedLetter
from mainspring.store.history import EndedRun
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Connection, Store
from mainspring.wire.runs import DeadLetterChoice, Discarded, Replayed

_BATCH = 500
_BATCH_CHANGED = 50  # these are read and written with their payloads of up to 256 KiB each
_MOST = 100_000
_IDS_SHOWN = 1000
_NAMES = ("job", "task", "queue", "error", "since", "until")
_CANCELLED = "its job is CANCELLED"
_ALIVE = "a run of its job is alive, and the job runs one at a time"

Changed = tuple[str | None, str | None]


class Repeated(msgspec.Struct):
    """The result for some dead letters: the new runs by lane, what follows, and why the rest was left. `refusal` is the
    first error of a payload that does not fit, `refusing` the last job that does not allow another run."""

    replayed: list[UUID] = []
    created: Counter[int] = msgspec.field(default_factory=Counter)
    effects: Effects = msgspec.field(default_factory=Effects)
    left: Counter[str] = msgspec.field(default_factory=Counter)
    refused: list[tuple[UUID, str]] = []
    refusal: MainspringError | None = None
    refusing: AllowedRun | None = None


class Replayer:
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

    async def replay(self, caller: Caller, run_id: UUID, payload: msgspec.Raw, if_match: str | None = None) -> UUID:
        """Repeat one dead letter, with another payload if one is given. Return the id of the new run."""
        tenant = caller.tenant
        async with self._store.change() as connection:
            letters = await dead_letters.lock(connection, tenant, [run_id], whole=bool(memoryview(payload)))
            if not letters:
                raise await _gone(connection, tenant, run_id)
            check_tag("dead letter", dead_letter_tag(letters[0].attempts), if_match)
            done = await self._replay(connection, caller, letters, payload)
            await _audit(connection, caller, run_id, done, payload)
        if done.refusal is not None:
            raise done.refusal
        for reason in done.left:
            raise _refused(run_id, reason, done.refusing)
        self.publish(done)
        return done.replayed[0]

    async def retry_run(self, caller: Caller, run_id: UUID, payload: msgspec.Raw, if_match: str | None = None) -> UUID:
        """Repeat any ended run. If it is a dead letter, the dead letter is removed. An ended run does not change, so
        its tag need not be compared again under a lock."""
        tenant = caller.tenant
        async with self._store.reads.acquire() as connection:
            if if_match is not None and (found := await history.find_run(connection, tenant, run_id)) is not None:
                check_tag("run", run_tag(found.state, found.fence), if_match)
            # In this order, because a run that ends meanwhile becomes a dead letter in the same statement.
            if await history.live_run(connection, tenant, run_id) is not None:
                raise _alive(run_id)
            if await dead_letters.get(connection, tenant, run_id) is None:
                async with connection.transaction():
                    done = await self._repeat_ended(connection, caller, run_id, payload)
                    await _audit(connection, caller, run_id, done, payload)
                self.publish(done)
                return done.replayed[0]
        return await self.replay(caller, run_id, payload)

    async def retry_in(self, caller: Caller, connection: Connection, run_id: UUID) -> Repeated:
        """Retry a run with its own payload in the caller's transaction. The caller passes the result to `publish` after
        the commit."""
        tenant = caller.tenant
        if await history.live_run(connection, tenant, run_id) is not None:
            raise _alive(run_id)
        letters = await dead_letters.lock(connection, tenant, [run_id], whole=False)
        if not letters:
            return await self._repeat_ended(connection, caller, run_id, msgspec.Raw())
        done = await self._replay(connection, caller, letters, msgspec.Raw())
        if done.refusal is not None:
            raise done.refusal
        for reason in done.left:
            raise _refused(run_id, reason, done.refusing)
        return done

    async def replay_in(self, caller: Caller, connection: Connection, run_ids: Sequence[UUID]) -> Repeated:
        """Repeat dead letters in a transaction. Those that may not be repeated, or do not exist any more, are in
        `refused`."""
        tenant = caller.tenant
        letters = await dead_letters.lock(connection, tenant, run_ids, whole=False)
        done = await self._replay(connection, caller, letters, msgspec.Raw()) if letters else Repeated()
        for run_id in set(run_ids) - {letter.run_id for letter in letters}:
            done.refused.append((run_id, (await _gone(connection, tenant, run_id)).detail))
        return done

    async def replay_all(self, caller: Caller, choice: DeadLetterChoice) -> Replayed:
        """Repeat the chosen dead letters in batches. Each batch is a transaction of its own. Dead letters that a
        changed payload does not fit are left. If it fits none of them, this raises an error."""
        query = _query(choice)
        with search_in_words("dead letters", query):
            chosen = await dead_letter_filter(self._lanes, caller, query)
            return await self._replay_chosen(caller, choice, chosen)

    async def _replay_chosen(self, caller: Caller, choice: DeadLetterChoice, chosen: DeadLetterFilter) -> Replayed:
        tenant = caller.tenant
        most = choice.limit or _MOST
        total, after = Repeated(), None
        begun, changed = await self._begun(), bool(memoryview(choice.payload))
        at_a_time = _BATCH_CHANGED if changed else _BATCH
        while (room := most - len(total.replayed)) > 0:
            batch = Repeated()
            async with self._store.change() as connection:
                run_ids = await dead_letters.some(connection, tenant, chosen, after, begun, min(at_a_time, room))
                if not run_ids:
                    break
                letters = await dead_letters.lock(connection, tenant, run_ids, whole=changed)
                if letters:
                    batch = await self._replay(connection, caller, letters, choice.payload)
                if batch.replayed and not total.replayed:  # one entry for all of them
                    await record(connection, caller, "dead_letters", "", None, choice)
            self.publish(batch)
            total.replayed += batch.replayed
            total.left += batch.left
            total.refusal = total.refusal or batch.refusal
            after = run_ids[-1]
        if total.refusal is not None and not total.replayed:
            raise total.refusal
        ids = [str(replay_id) for replay_id in total.replayed[:_IDS_SHOWN]]
        return Replayed(len(total.replayed), ids, dict(total.left), more=await self._more(tenant, chosen, after, begun))

    async def discard(self, caller: Caller, run_id: UUID, if_match: str | None = None) -> Discarded:
        """Discard one dead letter. Its run stays in the history."""
        tenant = caller.tenant
        async with self._store.change() as connection:
            if if_match is not None:
                for letter in await dead_letters.lock(connection, tenant, [run_id], whole=False):
                    check_tag("dead letter", dead_letter_tag(letter.attempts), if_match)
            if not await discard(connection, tenant, [run_id]):
                raise await _gone(connection, tenant, run_id)
            await record(connection, caller, "run", run_id, None, {"discarded": True})
        return Discarded(1)

    async def discard_all(self, caller: Caller, choice: DeadLetterChoice) -> Discarded:
        if memoryview(choice.payload):
            raise InvalidInput(
                "a payload cannot be given to discard dead letters", field="payload", hint="leave it out"
            )
        query = _query(choice)
        with search_in_words("dead letters", query):
            return await self._discard_chosen(caller, await dead_letter_filter(self._lanes, caller, query), choice)

    async def _discard_chosen(self, caller: Caller, chosen: DeadLetterFilter, choice: DeadLetterChoice) -> Discarded:
        tenant = caller.tenant
        most = choice.limit or _MOST
        discarded, seen, after = 0, 0, None
        begun = await self._begun()
        while seen < most:
            async with self._store.reads.acquire() as connection, connection.transaction():
                run_ids = await dead_letters.some(connection, tenant, chosen, after, begun, min(_BATCH, most - seen))
                if not run_ids:
                    break
                some = await discard(connection, tenant, run_ids)
                if some and not discarded:  # one entry for all of them
                    await record(connection, caller, "dead_letters", "", None, choice)
                discarded += some
            seen, after = seen + len(run_ids), run_ids[-1]
        return Discarded(discarded, more=await self._more(tenant, chosen, after, begun))

    # --- helpers

    async def _replay(
        self, connection: Connection, caller: Caller, letters: Sequence[LockedLetter], payload: msgspec.Raw
    ) -> Repeated:
        """Repeat locked dead letters if their jobs allow it."""
        tenant, done = caller.tenant, Repeated()
        jobs = await dead_letters.lock_jobs(connection, tenant, sorted({job_id_of(letter) for letter in letters}))
        items: list[dead_letters.Replay] = []
        begun: set[str] = set()
        for letter, replay_id in zip(letters, uuid7_batch(len(letters)), strict=True):
            job_id = job_id_of(letter)
            job = jobs.allowed.get(job_id)
            reason = _objection(jobs, letter, begun_here=job_id in begun)
            if reason is not None:
                done.left[reason] += 1
                done.refused.append((letter.run_id, reason))
                done.refusing = job
                continue
            try:
                changed = await self._changed(connection, tenant, letter, replay_id, payload, job)
            except (InvalidInput, PayloadTooLarge) as error:
                done.left[error.detail] += 1
                done.refused.append((letter.run_id, error.detail))
                done.refusal = done.refusal or error
                continue
            begun.add(job_id)
            jobs.live.add((job_id, letter.generation))
            one_at_a_time = job is not None and job.one_at_a_time
            items.append(dead_letters.Replay(letter.run_id, replay_id, one_at_a_time, changed))
        if items:
            rows = await dead_letters.replay(connection, tenant, items, caller.created_by)
            if len(rows) != len(items):  # they are locked, so this should not happen
                raise changed_meanwhile("dead letters")
            done.replayed = [item.replay_id for item in items]
            done.created.update(row.lane_id for row in rows if row.held_key is None)
            held_in = [row.held_key for row in rows if row.held_key is not None]
            await RUNS_CREATED.happened(connection, [RunsCreated(done.created, held_in)], done.effects)
        return done

    async def _repeat_ended(
        self, connection: Connection, caller: Caller, run_id: UUID, payload: msgspec.Raw
    ) -> Repeated:
        """Repeat an ended run that is not a dead letter, or no longer one."""
        tenant, replay_id = caller.tenant, uuid7()
        try:
            async with connection.transaction():
                row = await self._ended(connection, tenant, run_id)
                job_id = job_id_of(row)
                jobs = await dead_letters.lock_jobs(connection, tenant, [job_id])
                job = jobs.allowed.get(job_id)
                reason = _objection(jobs, row, begun_here=False)
                if reason is not None:
                    # The live run may be the repeat that another request has made meanwhile.
                    if (made := await dead_letters.replay_of(connection, tenant, run_id)) is not None:
                        raise _repeated(run_id, made)
                    raise _refused(run_id, reason, job)
                changed = await self._changed(connection, tenant, row, replay_id, payload, job)
                one_at_a_time = job is not None and job.one_at_a_time
                item = dead_letters.Replay(run_id, replay_id, one_at_a_time, changed)
                created = await dead_letters.repeat(connection, tenant, item, caller.created_by)
                if created is None:
                    raise NotFound(f"run {run_id} no longer exists", hint="see GET /v1/runs")
                held_in = [] if created.held_key is None else [created.held_key]
                done = Repeated([replay_id], Counter([] if held_in else [created.lane_id]))
                await RUNS_CREATED.happened(connection, [RunsCreated(done.created, held_in)], done.effects)
        except asyncpg.UniqueViolationError:
            raise _repeated(run_id, await dead_letters.replay_of(connection, tenant, run_id)) from None
        return done

    def publish(self, done: Repeated) -> None:
        """After the commit: publish the new runs, which wakes workers that wait."""
        self._signals.ready.publish(done.created)
        done.effects.publish(self._signals)

    async def _ended(self, connection: Connection, tenant: TenantId, run_id: UUID) -> EndedRun:
        row = await history.ended_run(connection, tenant, run_id)
        if row is None:
            raise NotFound(f"there is no run {run_id}", hint="see GET /v1/runs")
        replay_id = await dead_letters.replay_of(connection, tenant, run_id)
        if replay_id is not None:
            raise _repeated(run_id, replay_id)
        return row

    async def _changed(
        self,
        connection: Connection,
        tenant: TenantId,
        row: LockedLetter | EndedRun,
        replay_id: UUID,
        payload: msgspec.Raw,
        job: AllowedRun | None,
    ) -> Changed | None:
        """Payload and spec of a repeat with a key of its own: that of a success, or with another payload, which is
        checked as at intake. None if the repeat has the key and the definition of `row`. The overlap rule of the job as
        it is now counts."""
        ended = row if isinstance(row, EndedRun) else None
        succeeded = ended is not None and ended.state == StoredState.SUCCESS
        in_line = job is not None and job.overlap in ONE_AFTER_ANOTHER
        if not succeeded and not memoryview(payload) and not in_line:
            return None
        lane = await load_lane(self._lanes, connection, row.lane_id)
        definition = run_definition(row, lane)
        changed = repeated(
            definition,
            payload,
            self._clock.now(),
            run_id=str(row.run_id),
            new_id=str(replay_id),
            succeeded=succeeded,
            dropped=ended is not None and ended.payload_dropped,
        )
        if changed is None:
            if not in_line:
                return None
            changed = definition
        elif memoryview(payload):
            self._signatures.check(tenant, changed.task, changed.payload)
        if in_line and changed.overlap not in ONE_AFTER_ANOTHER:
            changed = msgspec.structs.replace(changed, overlap=Overlap.QUEUE)
        return changed.payload, stored_spec(changed, job_id_of(row))

    async def _begun(self) -> datetime:
        async with self._store.reads.acquire() as connection:
            moment: datetime = await connection.fetchval("select clock_timestamp()")
        return moment

    async def _more(self, tenant: TenantId, chosen: DeadLetterFilter, after: UUID | None, begun: datetime) -> bool:
        async with self._store.reads.acquire() as connection:
            return bool(after and await dead_letters.some(connection, tenant, chosen, after, begun, 1))


def _query(choice: DeadLetterChoice) -> DeadLetterQuery:
    if not choice.all and all(getattr(choice, name) is None for name in _NAMES):
        raise InvalidInput(
            "no dead letters are chosen",
            field="$",
            expected=f"at least one of {', '.join(_NAMES)}",
            hint='for all of them: {"all": true}',
        )
    for name in _NAMES:
        if (text := getattr(choice, name)) is not None:
            check_prose(text, name)
    if choice.limit is not None and not 1 <= choice.limit <= _MOST:
        raise InvalidInput(f"{choice.limit} is out of range", field="limit", expected=f"from 1 to {_MOST}")
    return DeadLetterQuery(
        choice.job,
        choice.task,
        choice.queue,
        choice.error,
        None if choice.since is None else parse_time(choice.since, "since"),
        None if choice.until is None else parse_time(choice.until, "until"),
    )


def _objection(jobs: JobsOfRuns, run: LockedLetter | EndedRun, *, begun_here: bool) -> str | None:
    """Why this run may not be repeated, or None. The job as it is now decides, which may be a later generation. A
    one-time job that has fired has no row: the overlap rule that the run carries decides, and no run starts beside one
    of another generation."""
    job_id = job_id_of(run)
    job = jobs.allowed.get(job_id)
    if job is None:
        live = {generation for live_id, generation in jobs.live if live_id == job_id}
        return _ALIVE if (live if _overlap(run) is Overlap.SKIP else live - {run.generation}) else None
    if job.cancelled:
        return _CANCELLED
    return _ALIVE if job.alive or (begun_here and job.one_at_a_time) else None


def _overlap(run: LockedLetter | EndedRun) -> Overlap:
    if isinstance(run, EndedRun):
        return spec_from_text(run.spec_text).overlap
    return Overlap.SKIP if run.overlap is None else Overlap(run.overlap)


async def _audit(connection: Connection, caller: Caller, run_id: UUID, done: Repeated, payload: msgspec.Raw) -> None:
    if done.replayed:
        own = {"payload": payload} if memoryview(payload) else {}
        await record(connection, caller, "run", run_id, None, {"replayed_as": done.replayed[0], **own})


async def _gone(connection: Connection, tenant: TenantId, run_id: UUID) -> MainspringError:
    """The error for a dead letter that does not exist, or no longer exists."""
    replay_id = await dead_letters.replay_of(connection, tenant, run_id)
    if replay_id is not None:
        return _repeated(run_id, replay_id)
    return NotFound(f"there is no dead letter {run_id}", hint="see GET /v1/dead-letters")


def _alive(run_id: UUID) -> Conflict:
    return Conflict(
        f"run {run_id} has not ended", code="run_alive", hint="cancel it first, or wait for its own retries"
    )


def _refused(run_id: UUID, reason: str, job: AllowedRun | None) -> Conflict:
    if reason == _CANCELLED:
        assert job is not None  # only the row of a job is CANCELLED
        hint = "submit a new job with POST /v1/jobs"
        if not job.one_time:
            hint = f"revive the job with POST /v1/jobs/{job.job_id}:resume, then repeat the run"
        elif not job.id_generated:
            hint = f"create job {job.job_id!r} again with POST /v1/jobs, then repeat the run"
        return Conflict(f"run {run_id} cannot be repeated: {reason}", code="job_cancelled", hint=hint)
    return Conflict(
        f"run {run_id} cannot be repeated: {reason}", code="overlap", hint="try again when that one has ended"
    )


def _repeated(run_id: UUID, replay_id: UUID | None) -> Conflict:
    return Conflict(f"run {run_id} was repeated as run {replay_id}", code="replayed", hint="repeat that one")
