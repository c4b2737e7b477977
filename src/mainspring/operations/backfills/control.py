"""Backfills as people use them: create, read, pause, resume, cancel, change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.domain.backfills import (
    JOB_PAUSED,
    BackfillState,
    FireRange,
    check_concurrency,
    check_no_references,
    check_past,
    check_recurring,
    count_in,
    first_cursor,
    is_over,
    not_recurring,
    read_order,
    read_range,
)
from mainspring.domain.errors import Conflict, InvalidInput, NotFound
from mainspring.domain.job import spec_from_text
from mainspring.domain.refusals import cancelled
from mainspring.domain.tags import backfill_tag, changed_meanwhile, check_tag
from mainspring.domain.texts import shown
from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.kernel.clock import DatabaseClock
from mainspring.kernel.ids import uuid7
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.backfills.effects import backfill_ended
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.computations import Computations
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.effects import Effects
from mainspring.operations.lookup import id_in, no_job, own_run, refuse_step, states_in
from mainspring.operations.paging.cursors import encode_cursor, run_cursor
from mainspring.operations.paging.search import searching
from mainspring.operations.read.one_time import fired_job
from mainspring.operations.signals import Signals
from mainspring.store import backfills, jobs
from mainspring.store.backfills import BackfillRow, LockedBackfill, NewBackfill
from mainspring.store.jobs import JobRow, schedule_from_text
from mainspring.store.pool import Connection, Store
from mainspring.wire.backfills import BackfillList, BackfillRequest, BackfillView

_MOST_OF_JOB = 100  # that have not ended
_LONGEST_ID = 1000
_CANCELLED = "its backfill was cancelled"
_UNFINISHED = (BackfillState.RUNNING, BackfillState.PAUSED)


class BackfillControl:
    def __init__(self, store: Store, signals: Signals, clock: DatabaseClock, computations: Computations) -> None:
        self._store = store
        self._signals = signals
        self._clock = clock
        self._computations = computations

    async def create(self, caller: Caller, job_id: str, request: BackfillRequest) -> BackfillView:
        """Create a backfill. Its runs are created after the answer, in batches."""
        tenant = caller.tenant
        concurrency, newest_first = check_concurrency(request.concurrency), read_order(request.order)
        async with self._store.reads.acquire() as connection:
            row = await jobs.get(connection, tenant, job_id)
            if row is None:
                await refuse_step(connection, tenant, job_id, await own_run(connection, tenant, job_id))
                if await fired_job(connection, tenant, job_id) is None:
                    raise no_job(job_id)
                raise not_recurring(job_id)
            schedule = schedule_from_text(row.schedule_text)
            await load_rules(connection, tenant, [schedule])
        check_recurring(job_id, schedule)
        check_no_references(job_id, row.payload_text, spec_from_text(row.spec_text))
        _check_status(row)
        chosen = read_range(request.from_, request.to, self._clock.now())
        total = await self._computations.run(tenant, count_in, schedule, chosen)
        new = NewBackfill(
            uuid7(), job_id, row.generation, chosen, newest_first, concurrency, total,
            first_cursor(chosen, newest_first=newest_first), row.schedule_text,
        )  # fmt: skip
        async with self._store.change() as connection:
            await self._insert(connection, caller, row, chosen, new)
        self._signals.backfills.publish(())
        return await self.backfill(caller, str(new.backfill_id))

    async def _insert(
        self, connection: Connection, caller: Caller, row: JobRow, chosen: FireRange, new: NewBackfill
    ) -> None:
        locked = await jobs.lock(connection, caller.tenant, row.job_id)
        if locked is None or (locked.version, locked.generation) != (row.version, row.generation):
            raise changed_meanwhile(f"job {row.job_id!r}")
        _check_status(locked)
        check_past(chosen, locked.now)
        if await backfills.unfinished(connection, caller.tenant, row.job_id) >= _MOST_OF_JOB:
            raise Conflict(
                f"job {row.job_id!r} has {_MOST_OF_JOB} backfills that have not ended", code="too_many_backfills",
                hint=f"wait for them, or cancel some; see GET /v1/backfills?job={row.job_id}",
            )  # fmt: skip
        await backfills.insert(connection, caller.tenant, new)
        after = {
            "job_id": new.job_id, "from": chosen.start, "to": chosen.end, "concurrency": new.concurrency,
            "total": new.total,
        }  # fmt: skip
        await record(connection, caller, "backfill", new.backfill_id, None, after)

    async def backfill(self, caller: Caller, backfill_id: str) -> BackfillView:
        async with self._store.reads.acquire() as connection:
            row = await backfills.get(connection, caller.tenant, id_in(backfill_id, _missing))
        if row is None:
            raise _missing(backfill_id)
        return _view(row)

    async def backfills(
        self, caller: Caller, job: str | None, states: Sequence[str], cursor: str | None, limit: int
    ) -> BackfillList:
        """Newest first."""
        if job is not None and ("\x00" in job or len(job) > _LONGEST_ID):
            raise InvalidInput("the job is not valid", code="invalid_parameter", field="job", expected="a job_id")
        numbers = states_in(states, BackfillState, "a backfill", [state.word for state in BackfillState])
        async with searching(self._store, caller.tenant, "backfills") as connection:
            rows = await backfills.page(connection, caller.tenant, run_cursor(cursor), job, numbers, limit + 1)
        more = len(rows) > limit
        following = encode_cursor(str(rows[limit - 1].backfill_id)) if more else None
        return BackfillList([_view(row) for row in rows[:limit]], following)

    async def pause(self, caller: Caller, backfill_id: str, if_match: str | None = None) -> BackfillView:
        """No more runs are created. Those that exist continue."""
        return await self._change(caller, backfill_id, BackfillState.PAUSED, "paused", if_match)

    async def resume(self, caller: Caller, backfill_id: str, if_match: str | None = None) -> BackfillView:
        return await self._change(caller, backfill_id, BackfillState.RUNNING, "resumed", if_match)

    async def cancel(
        self, caller: Caller, backfill_id: str, *, running: bool, if_match: str | None = None
    ) -> BackfillView:
        """No more runs are created, and those that no worker has end. `running`: the others are told to stop."""
        tenant = caller.tenant
        async with self._store.change() as connection:
            row = after = await self._lock(connection, caller, backfill_id, if_match)
            ended = False
            if row.state == BackfillState.COMPLETED:
                raise is_over(BackfillState.COMPLETED, row.backfill_id, "cancelled")
            if row.state != BackfillState.CANCELLED:
                after = await _write(connection, row, BackfillState.CANCELLED)
                ended = not row.live
            live = await backfills.lock_runs(connection, tenant, row.live)
            chosen = [run for run in live if running or run.state != StoredState.RUNNING]
            effects = await cancel(connection, chosen, _CANCELLED) if chosen else Effects()
            before, now = ({"state": BackfillState(one.state).word} for one in (row, after))
            await record(connection, caller, "backfill", row.backfill_id, before, {**now, "running": running})
            if ended:
                await backfill_ended(connection, after, effects)
        effects.publish(self._signals)
        self._signals.backfills.publish(())
        return await self.backfill(caller, backfill_id)

    async def change(
        self, caller: Caller, backfill_id: str, concurrency: int, if_match: str | None = None
    ) -> BackfillView:
        """If more runs are alive than `concurrency`, no more are created until fewer are."""
        check_concurrency(concurrency)
        async with self._store.change() as connection:
            row = await self._lock(connection, caller, backfill_id, if_match)
            if row.state not in _UNFINISHED:
                raise is_over(BackfillState(row.state), row.backfill_id, "changed")
            if not await backfills.set_concurrency(connection, caller.tenant, row.backfill_id, concurrency):
                raise changed_meanwhile("the backfill")
            before, after = {"concurrency": row.concurrency}, {"concurrency": concurrency}
            await record(connection, caller, "backfill", row.backfill_id, before, after)
        self._signals.backfills.publish(())
        return await self.backfill(caller, backfill_id)

    async def _change(
        self, caller: Caller, backfill_id: str, state: BackfillState, what: str, if_match: str | None
    ) -> BackfillView:
        async with self._store.change() as connection:
            row = await self._lock(connection, caller, backfill_id, if_match)
            if row.state not in _UNFINISHED:
                raise is_over(BackfillState(row.state), row.backfill_id, what)
            if row.state != state:
                await _write(connection, row, state)
                before, after = ({"state": BackfillState(one).word} for one in (row.state, state))
                await record(connection, caller, "backfill", row.backfill_id, before, after)
        self._signals.backfills.publish(())
        return await self.backfill(caller, backfill_id)

    async def _lock(
        self, connection: Connection, caller: Caller, backfill_id: str, if_match: str | None
    ) -> LockedBackfill:
        """Lock the backfill, and its job before it. Raises VersionMismatch if it has another tag."""
        found = await backfills.get(connection, caller.tenant, id_in(backfill_id, _missing))
        if found is None:
            raise _missing(backfill_id)
        await jobs.lock(connection, caller.tenant, found.job_id)
        row = await backfills.lock(connection, caller.tenant, found.backfill_id)
        if row is None:
            raise _missing(backfill_id)
        check_tag("backfill", backfill_tag(BackfillState(row.state).word, row.concurrency), if_match)
        return row


async def _write(connection: Connection, row: LockedBackfill, state: BackfillState) -> LockedBackfill:
    """Change the state. The process that continues takes a new slice. Returns the backfill as it is now."""
    after = msgspec.structs.replace(row, state=int(state), reason=None)
    await backfills.advance(
        connection, row, after, keep_slice=False, ended=state is BackfillState.CANCELLED and not row.live
    )
    return after


def _check_status(row: JobRow) -> None:
    if row.status == StoredJobStatus.CANCELLED:
        raise cancelled(row.job_id, one_time=False)


def _missing(text: str) -> NotFound:
    return NotFound(f"there is no backfill {shown(text)}", hint="see GET /v1/backfills")


def _view(row: BackfillRow) -> BackfillView:
    return BackfillView(
        id=str(row.backfill_id),
        job_id=row.job_id,
        generation=row.generation,
        state=BackfillState(row.state).word,
        reason=_reason(row),
        from_=row.from_at,
        to=row.to_at,
        order="newest" if row.newest_first else "oldest",
        concurrency=row.concurrency,
        total=row.total,
        existing=row.existing,
        created=row.created,
        running=row.running,
        succeeded=row.succeeded,
        failed=row.failed,
        cancelled=row.cancelled,
        skipped=row.skipped,
        remaining=row.total - row.existing - row.created,
        created_at=row.created_at,
        updated_at=row.updated_at,
        ended_at=row.ended_at,
        etag=backfill_tag(BackfillState(row.state).word, row.concurrency),
    )


def _reason(row: BackfillRow) -> str | None:
    if row.state in _UNFINISHED and row.job_status == StoredJobStatus.PAUSED:
        return JOB_PAUSED
    if row.state == BackfillState.RUNNING and row.waits_for is not None:
        return f"waiting for backfill {row.waits_for} of the same job"
    return row.reason
