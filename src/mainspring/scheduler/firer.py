"""The firer: turns due jobs into runs, in batches, by compare-and-set under this node's leases.

A job that makes its batch fail is found by bisection and set aside for a minute. So one bad job never blocks the others
of its shard. A job that another transaction has locked, or that has changed since the due-scan, is left out of its
batch. If it is still due, a separate task fires it as it is now, and waits for its lock if necessary (held_jobs.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import asyncpg
import msgspec

from mainspring.domain.errors import Unreadable
from mainspring.domain.job import Overlap, spec_from_text
from mainspring.domain.schedules.calendar_rules import RulesNotLoaded
from mainspring.domain.schedules.misfire import ON_TIME, FirePlan, MisfirePolicy, limited, plan_fires
from mainspring.kernel import metrics
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.kernel.ids import parse_uuid, uuid7
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.calendars.rules import load_rules
from mainspring.operations.lifecycle.fire import FireEffects, fire_one_time, fire_recurring
from mainspring.operations.signals import Signals
from mainspring.scheduler.due_loader import Wheel
from mainspring.scheduler.due_queue import DueQueue
from mainspring.scheduler.held_jobs import HeldJobs
from mainspring.store import fires
from mainspring.store.deadlocks import despite_deadlocks
from mainspring.store.fires import DueJob, JobKey
from mainspring.store.jobs import schedule_from_text
from mainspring.store.pool import AWAY, Connection, Store

log = get_logger("firer")

BATCH = 500
_MAX_BATCHES = 2  # in progress at once: one is prepared here while PostgreSQL executes the other
_SET_ASIDE = 60.0
_LATE = timedelta(hours=1)
_HAS_CALENDAR, _HAS_JITTER = '"calendar_rules"', '"jitter"'  # what is not given is not stored
LOCK_TIMEOUT = "500ms"  # how long a fire waits for the lock of one job before the next one
Fire = Callable[[Sequence[DueJob], list[DueJob]], Awaitable[int]]
Planned = list[tuple[DueJob, FirePlan]]


class Firer:
    def __init__(
        self,
        store: Store,
        wheel: Wheel,
        queue: DueQueue,
        held: Callable[[], Mapping[int, int]],
        node_id: UUID,
        signals: Signals,
        clock: Clock,
        database_clock: DatabaseClock,
        look_ahead: float,
    ) -> None:
        self._store = store
        self._wheel = wheel
        self._queue = queue
        self._held = held
        self._node_id = node_id
        self._signals = signals
        self._clock = clock
        self._database_clock = database_clock
        self._look_ahead = look_ahead
        self._firing: set[JobKey] = set()
        self._aside: dict[JobKey, float] = {}
        self.held_jobs = HeldJobs(self._fire_free, self._fire_waiting, BATCH)

    def in_flight(self, key: JobKey) -> bool:
        """Whether the job is being fired, is locked by another transaction, or was set aside after a failure."""
        if key in self._firing or key in self.held_jobs:
            return True
        until = self._aside.get(key)
        if until is None:
            return False
        if until > self._clock.monotonic():
            return True
        del self._aside[key]
        return False

    async def fire(self, due: Sequence[DueJob], more: Callable[[], Sequence[DueJob]] = tuple) -> int:
        """Fire all jobs in `due` that no other transaction has locked. `more` returns what is due by now. It is asked
        after each batch, so that a critical job does not wait for all batches that were due before. Return how many
        runs were created."""
        # All jobs are marked first, so that a concurrent due-scan does not load jobs that wait here for their batch.
        self._add(due)
        created = 0
        failures: list[BaseException] = []  # since the last batch that was fired
        batches: set[asyncio.Task[int]] = set()
        try:
            while True:
                while len(batches) + len(failures) < _MAX_BATCHES and len(self._queue):
                    batches.add(asyncio.create_task(self._fire_batch(self._queue.take(BATCH))))
                if not batches:
                    break
                ended, batches = await asyncio.wait(batches, return_when=asyncio.FIRST_COMPLETED)
                failures += [failure for batch in ended if (failure := batch.exception()) is not None]
                fired = [batch.result() for batch in ended if batch.exception() is None]
                created += sum(fired)
                if fired:
                    for failure in failures:
                        log.warning("a batch failed: it is left to the next scan", error=repr(failure))
                    failures.clear()
                    self._add(more())
        finally:
            for batch in batches:
                batch.cancel()
            await asyncio.gather(*batches, return_exceptions=True)
            self._firing.difference_update(job.key for job in self._queue)
            self._queue.clear()  # after an error: the due-scan brings them back
        if failures:
            raise failures[0]
        return created

    def _add(self, due: Sequence[DueJob]) -> None:
        self._firing.update(job.key for job in due)
        self._queue.add(due)

    async def _fire_batch(self, batch: Sequence[DueJob]) -> int:
        try:
            created, held = await self._fire_free(batch)
            self.held_jobs.add(held)  # before they are no longer in `_firing`
        finally:
            self._firing.difference_update(job.key for job in batch)
        return created

    async def _fire_free(self, batch: Sequence[DueJob]) -> tuple[int, list[DueJob]]:
        """Fire the jobs that no other transaction has locked. Returns how many runs were created, and the other jobs
        that are due, as they are now."""
        now = self._database_clock.now()
        once, again = _split(batch, now)
        created, left = 0, list[DueJob]()
        if once:
            created += await self._bisect(once, self._fire_once, left)
        if again:
            created += await self._bisect(again, self._fire_again, left)
        metrics.fired.inc(created)
        if not left:
            self._observe_lag(batch)
            return created, []
        # They are locked, have changed, are gone, or are not ours any more.
        async with self._store.hot.acquire() as connection:
            held = await fires.still_due(connection, self._node_id, self._leases_for(left), left, now)
        keys = {job.key for job in held}
        self._observe_lag([job for job in batch if job.key not in keys])
        return created, held

    async def _fire_waiting(self, job: DueJob) -> int:
        """Fire one job if it is still due, and wait for its lock. Raises LockNotAvailableError when that takes too
        long."""
        created = await self._bisect([job], self._fire_locked, [])
        metrics.fired.inc(created)
        return created

    def _observe_lag(self, batch: Sequence[DueJob]) -> None:
        now = self._database_clock.timestamp()
        for job in batch:
            # The time of a job may have passed when it was created.
            since = max(job.next_fire_at, job.created_at or job.next_fire_at)
            metrics.fire_lag.observe(max(0.0, now - since.timestamp()))

    async def _bisect(self, batch: Sequence[DueJob], fire: Fire, left: list[DueJob]) -> int:
        """Fire a batch, and add the jobs that did not fire to `left`."""
        try:
            return await despite_deadlocks(partial(fire, batch, left))
        except (*AWAY, asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            raise  # the database is unavailable, or locks are in the way; the next due-scan loads the jobs again
        except (asyncpg.PostgresError, ValueError, OverflowError) as error:
            if len(batch) == 1:
                self._set_aside(batch[0], error)
                return 0
        middle = len(batch) // 2
        return await self._bisect(batch[:middle], fire, left) + await self._bisect(batch[middle:], fire, left)

    async def _fire_once(self, batch: Sequence[DueJob], left: list[DueJob]) -> int:
        leases = self._leases_for(batch)
        due = [job for job in batch if job.shard in leases]
        if not due:
            return 0
        async with self._store.hot.acquire() as connection:
            fired = await fire_one_time(connection, self._node_id, leases, _due_once(due))
        self._publish(fired)
        if fired.gone < len(due):
            left += due  # those that have fired are gone, so `still_due` does not find them
        return fired.total

    async def _fire_again(self, batch: Sequence[DueJob], left: list[DueJob]) -> int:
        leases = self._leases_for(batch)
        now = self._database_clock.now()
        planned = await self._plan_all([job for job in batch if job.shard in leases], now)
        if not planned:
            return 0
        overlap = any(job.overlap != Overlap.ALLOW for job, _ in planned)
        async with self._store.hot.acquire() as connection:
            fired = await fire_recurring(connection, self._node_id, leases, due_again(planned), overlap=overlap)
        self._publish(fired)
        for index in fired.moved:
            self._rearm(*planned[index], now)
        if len(fired.moved) < len(planned):
            moved = set(fired.moved)
            left += [job for index, (job, _) in enumerate(planned) if index not in moved]
        return fired.total

    async def _fire_locked(self, batch: Sequence[DueJob], _left: list[DueJob]) -> int:
        """Lock the jobs, and fire those that are due, as they are now."""
        leases = self._leases_for(batch)
        if not leases:
            return 0
        async with self._store.hot.acquire() as connection, connection.transaction():
            now = self._database_clock.now()
            due = await fires.await_due(connection, self._node_id, leases, batch, now, LOCK_TIMEOUT)
            once, again = _split(due, now)
            planned = await self._plan_all(again, now, connection)
            moved: list[int] = []
            parts: list[FireEffects] = []
            if once:
                parts.append(await fire_one_time(connection, self._node_id, leases, _due_once(once), locked=True))
            if planned:
                fired = await fire_recurring(
                    connection, self._node_id, leases, due_again(planned), overlap=True, locked=True
                )
                parts.append(fired)
                moved = fired.moved
        for part in parts:
            self._publish(part)
        self._observe_lag(due)
        for index in moved:
            self._rearm(*planned[index], now)
        return sum(part.total for part in parts)

    def _publish(self, fired: FireEffects) -> None:
        self._signals.ready.publish(fired.created)
        fired.publish(self._signals)

    async def _plan_all(self, batch: Sequence[DueJob], now: datetime, connection: Connection | None = None) -> Planned:
        """Plan each job. The rules of calendars that are not known here are loaded first."""
        unread: list[DueJob] = []
        planned = await self._plan_each(batch, now, unread)
        if unread:
            if connection is None:
                async with self._store.hot.acquire() as own:
                    await _load_rules(own, unread)
            else:
                await _load_rules(connection, unread)
            planned += await self._plan_each(unread, now)
        return planned

    async def _plan_each(self, batch: Sequence[DueJob], now: datetime, unread: list[DueJob] | None = None) -> Planned:
        """Plan each job. Those whose calendar is not known are added to `unread`."""
        planned = []
        # A plan takes 60 µs. Jobs that are due together mostly have a few schedules, so each is planned once.
        plans: dict[tuple[str, str | None, datetime, int | None, datetime | None], FirePlan] = {}
        slices = TimeSlices()
        for job in batch:
            kind = (job.schedule_text, job.spec_text, job.next_fire_at, job.runs_left, _dealt_with(job))
            try:
                if kind not in plans:
                    if slices.over:  # some calendars take 40 ms
                        await slices.pause()
                    plans[kind] = await _planned(job, now)
                planned.append((job, plans[kind]))
            except RulesNotLoaded as error:
                if unread is None:
                    self._set_aside(job, error)
                else:
                    unread.append(job)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the others must fire
                self._set_aside(job, error)
        return planned

    def _set_aside(self, job: DueJob, error: Exception) -> None:
        log.error(
            "job set aside: it cannot be fired",
            tenant=job.tenant_id,
            job=job.job_id,
            error=repr(error),
            seconds=_SET_ASIDE,
        )
        self._aside[job.key] = self._clock.monotonic() + _SET_ASIDE

    def _leases_for(self, batch: Sequence[DueJob]) -> dict[int, int]:
        held = self._held()
        return {shard: held[shard] for shard in sorted({job.shard for job in batch}) if shard in held}

    def _rearm(self, job: DueJob, plan: FirePlan, now: datetime) -> None:
        """Put the job back into the wheel if its next fire is inside the window, before the next scan. This is only
        done for jobs that fired. A paused or deleted job would otherwise return for ever."""
        following = plan.next_fire
        if following is not None and (following - now).total_seconds() <= self._look_ahead:
            left = None if job.runs_left is None else job.runs_left - len(plan.runs)
            again = msgspec.structs.replace(
                job, next_fire_at=following, runs_left=left, last_nominal_for=plan.dealt_with
            )
            self._wheel.add(again.key, again, following.timestamp())


async def _load_rules(connection: Connection, jobs: Sequence[DueJob]) -> None:
    for tenant in sorted({job.tenant_id for job in jobs}):
        texts = {job.schedule_text for job in jobs if job.tenant_id == tenant}
        await load_rules(connection, tenant, map(schedule_from_text, texts))


def _run_id(job: DueJob) -> UUID:
    """The run of a one-time job with a generated id has the same id."""
    return (parse_uuid(job.job_id) if job.id_generated else None) or uuid7()


def _split(batch: Sequence[DueJob], now: datetime) -> tuple[list[DueJob], list[DueJob]]:
    """The jobs that become their runs, and the others."""
    once: list[DueJob] = []
    again: list[DueJob] = []
    for job in batch:
        (once if _becomes_run(job, now) else again).append(job)
    return once, again


def _due_once(due: Sequence[DueJob]) -> list[fires.DueOnce]:
    return [
        fires.DueOnce(
            job.tenant_id, job.job_id, job.version, job.next_fire_at, _run_id(job), job.written_by, _replaces(job)
        )
        for job in due
    ]


def due_again(planned: Planned) -> list[fires.DueAgain]:
    return [
        fires.DueAgain(job.tenant_id, job.job_id, job.version, job.next_fire_at, plan, job.generation, _replaces(job))
        for job, plan in planned
    ]


def _replaces(job: DueJob) -> bool:
    return job.overlap == Overlap.CANCEL_PREVIOUS


def _becomes_run(job: DueJob, now: datetime) -> bool:
    """Whether the job is a one-time job that becomes its run. One that is later than its misfire policy allows has no
    run and no next fire: it is missed and completed, as planned."""
    return job.one_time and not _too_late(job, now)


def _too_late(job: DueJob, now: datetime) -> bool:
    """Whether a one-time job is later than its misfire policy allows. The default allows any time."""
    if job.spec_text is None or now - job.next_fire_at <= ON_TIME:
        return False
    try:
        return not plan_of(job, now).runs
    except (Unreadable, ValueError, OverflowError):
        return False  # what cannot be read is found when it is fired


async def _planned(job: DueJob, now: datetime) -> FirePlan:
    """In a thread if the job is late and has a calendar: its fires are counted part by part of each day."""
    if now - job.next_fire_at > _LATE and _HAS_CALENDAR in job.schedule_text:
        return await asyncio.to_thread(plan_of, job, now)
    return plan_of(job, now)


def plan_of(job: DueJob, now: datetime, misfire: MisfirePolicy | None = None) -> FirePlan:
    """What the job fires at `now`. The rules of its calendar are known. `misfire`: instead of the policy of the job."""
    misfire = misfire or spec_from_text(job.spec_text).misfire
    schedule, due = schedule_from_text(job.schedule_text), job.next_fire_at
    return limited(plan_fires(schedule, due, max(now, due), misfire, _dealt_with(job)), job.runs_left)


def _dealt_with(job: DueJob) -> datetime | None:
    """Up to which nominal time all are dealt with. Without jitter the next fire is always after it."""
    return job.last_nominal_for if _HAS_JITTER in job.schedule_text else None
