"""Judges the health of jobs, and tells of runs that start late, run too long or miss their deadline. One server at a
time does so, under an advisory lock.

The transactions of runs do nothing for this. What ended is read from the history by watermark, as for rollups and
notifications. Live runs with limits of time are found by the indexes of what was created, became ready or was claimed
since the last round, and are watched in a table of their own. What a round has found is stored in the transaction that
moves the watermarks, so nothing is told twice.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import quote

import asyncpg
import msgspec

from mainspring.domain.durations import format_duration
from mainspring.domain.health import (
    CANCEL,
    DEADLINE_MISSED,
    Exceeded,
    HealthState,
    RunSoFar,
    Told,
    exceeded,
    learned_limit,
    look_again,
)
from mainspring.domain.job import Spec, spec_to_show
from mainspring.domain.notify.messages import one_line
from mainspring.domain.run_key import rfc3339
from mainspring.domain.transitions import StoredState
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId, first_uuid7
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.lifecycle.cancel import cancel
from mainspring.operations.lifecycle.dispatch import finish
from mainspring.operations.notify.matching import subject_of_run
from mainspring.operations.signals import Signals
from mainspring.store import health, rollups
from mainspring.store.health import (
    Delay,
    EndedJob,
    EndedTimedRun,
    LongRun,
    NewHealth,
    TimedRun,
    TimedRunChange,
    Watermarks,
)
from mainspring.store.pool import AWAY, Connection, Store

log = get_logger("health")

_SECOND, _MINUTE, _HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
_OVERLAP = timedelta(seconds=15)  # a run may be committed so long after its id was made
_BATCH = 2000
_LONG = 200
_TURN = 5.0  # seconds of rounds in a row, when it has to catch up
_PRUNE_EVERY = 3600.0
_LONGEST_REASON = 300
_encode = msgspec.json.Encoder().encode
_Late = dict[tuple[TenantId, str, int], str]  # by job and generation


class HealthKeeper:
    name = "health_keeper"
    interval = 5.0
    look_every = 30.0  # seconds between looks at runs that take long and jobs that are silent

    def __init__(self, store: Store, signals: Signals, clock: Clock) -> None:
        self._store = store
        self._signals = signals
        self._clock = clock
        self._slice = _MINUTE  # what a round reads of the history at most
        self._looked_at: float | None = None
        self._pruned_at: float | None = None

    async def run_once(self) -> int:
        """Returns how many events of runs were found."""
        began, told = self._clock.monotonic(), 0
        while True:
            found, behind = await self._less_if_it_fails()
            told += found
            if not behind or self._clock.monotonic() - began > _TURN:
                break
        await self._cancel()
        return told

    async def _less_if_it_fails(self) -> tuple[int, bool]:
        """A round. If there is too much to read, statements take too long, or PostgreSQL ends the transaction because
        there is so much to work on between two of them."""
        try:
            done = await self._round()
        except (asyncpg.PostgresError, *AWAY):
            self._slice = max(self._slice / 8, _SECOND)
            raise
        self._slice = min(self._slice * 2, _HOUR)
        return done

    async def _round(self) -> tuple[int, bool]:
        """How many events there were, and whether there is more to read."""
        async with self._store.reads.acquire() as connection:
            now, horizon = await rollups.horizon(connection)
            async with connection.transaction():
                if not await health.lock(connection):
                    return 0, False
                start = await health.watermarks(connection)
                late = _Late()
                delays = await self._ended(connection, start, horizon, now)
                since = min(start.looked_until, now) - _OVERLAP
                await health.watch(connection, first_uuid7(since), since)
                more = await self._due(connection, late)
                delays += more
                if self._is_time_to_look():
                    delays += await self._long(connection, late)
                    await health.set_silent(connection)
                if late:
                    await health.set_late(connection, late)
                if delays:
                    await health.note_delays(connection, delays)
                end = _end(start, horizon, now, self._slice)
                if not await health.move(connection, start, Watermarks(end, now)):
                    raise RuntimeError("the watermark of the health of jobs has moved under the lock")
                await self._prune(connection, end)
        return len(delays), len(more) >= _BATCH or (horizon is not None and end < horizon)

    async def _ended(
        self, connection: Connection, start: Watermarks, horizon: datetime | None, now: datetime
    ) -> list[Delay]:
        """Judge what has ended since `start`."""
        end, delays = _end(start, horizon, now, self._slice), list[Delay]()
        if end <= start.ended_until:
            return delays
        slices = TimeSlices()
        over: dict[tuple[TenantId, str, int], tuple[datetime, str]] = {}
        if runs := await health.ended_watched(connection, start.ended_until, end):
            for run in runs:
                if slices.over:
                    await slices.pause()
                spec = spec_to_show(run.spec_text)[0]
                found = list(exceeded(spec, _progress(run, run.ended_at, run.ran, ended=True), run.told))
                delays += [_delay(run, spec, one) for one in found]
                if found and run.job_id is not None and run.state == StoredState.SUCCESS:
                    key = run.tenant_id, run.job_id, run.generation
                    over[key] = max(over.get(key, (run.ended_at, "")), (run.ended_at, found[-1].reason))
            await health.unwatch(connection, [run.run_id for run in runs])
        ended = await health.ended_jobs(connection, start.ended_until, end)
        changes = list[NewHealth]()
        for job in ended:
            if slices.over:
                await slices.pause()
            if (new := _judged(job, over.get((job.tenant_id, job.job_id, job.generation)))) is not None:
                changes.append(new)
        if changes:
            await health.set_health(connection, changes)
        return delays

    async def _due(self, connection: Connection, late: _Late) -> list[Delay]:
        """Look at the live runs of which a limit may be exceeded now."""
        delays, changes = list[Delay](), list[TimedRunChange]()
        slices = TimeSlices()
        for run in await health.due(connection, _BATCH):
            if slices.over:
                await slices.pause()
            if run.state is None or run.due_from is None:
                changes.append(TimedRunChange(run.run_id, run.told, None))
                continue
            spec, progress = spec_to_show(run.spec_text)[0], _progress(run, run.now, None, ended=False)
            told, to_cancel = run.told, False
            for one in exceeded(spec, progress, run.told):
                told |= int(one.what)
                delays.append(_delay(run, spec, one))
                if run.job_id is not None and run.generation is not None:
                    late[run.tenant_id, run.job_id, run.generation] = one.reason
                if one.what is Told.DEADLINE_MISSED and spec.on_deadline == CANCEL:
                    to_cancel = True
            changes.append(TimedRunChange(run.run_id, told, look_again(spec, progress, told), to_cancel))
        if changes:
            await health.set_watched(connection, changes)
        return delays

    async def _long(self, connection: Connection, late: _Late) -> list[Delay]:
        """Runs that take much longer than the last ones of their job, which does not say how long they should take."""
        runs = await health.running_long(connection, _LONG)
        learned = {(run.tenant_id, run.job_id): run.usual for run in runs}
        if stale := {(run.tenant_id, run.job_id, run.generation) for run in runs if run.stale}:
            learned |= await health.learn(connection, sorted(stale))
        too_long, delays = list[LongRun](), list[Delay]()
        for run in runs:
            usual = learned.get((run.tenant_id, run.job_id))
            if usual is None or run.ran <= learned_limit(usual):
                continue
            words = f"its run for {rfc3339(run.due_from)} runs for {format_duration(round(run.ran))}"
            reason = f"{words}; the last ones took {format_duration(round(usual, 1))} at most"
            delays.append(_delay(run, spec_to_show(run.spec_text)[0], Exceeded(Told.RAN_TOO_LONG, reason)))
            late[run.tenant_id, run.job_id, run.generation] = reason
            too_long.append(run)
        if too_long:
            await health.watch_long(connection, too_long)
        return delays

    async def _cancel(self) -> None:
        """Cancel the runs that missed their deadline and whose job asks for that."""
        while True:
            async with self._store.change() as connection:
                runs = await health.to_cancel(connection, _BATCH)
                if not runs:
                    return
                effects = await cancel(connection, runs, DEADLINE_MISSED)
                await health.cancels_requested(connection, [run.run_id for run in runs])
            await finish(effects, self._store, self._signals)

    def _is_time_to_look(self) -> bool:
        moment = self._clock.monotonic()
        if self._looked_at is not None and moment - self._looked_at < self.look_every:
            return False
        self._looked_at = moment
        return True

    async def _prune(self, connection: Connection, ended_until: datetime) -> None:
        moment = self._clock.monotonic()
        if self._pruned_at is None or moment - self._pruned_at > _PRUNE_EVERY:
            self._pruned_at = moment
            await health.prune(connection, ended_until)


def _end(start: Watermarks, horizon: datetime | None, now: datetime, most: timedelta) -> datetime:
    """Up to where a round reads the history. If the clock was set back, it begins anew."""
    if now < start.ended_until - _MINUTE:
        return now
    if horizon is None:
        return start.ended_until
    return max(start.ended_until, min(horizon, start.ended_until + most))


def _progress(run: TimedRun | EndedTimedRun, at: datetime, ran: float | None, *, ended: bool) -> RunSoFar:
    assert run.due_from is not None
    # A claim counts the attempt before the worker has started it.
    begun = run.began_at is not None or run.attempt > 1 or (run.attempt == 1 and run.state != StoredState.RUNNING)
    first = run.began_at if run.attempt == 1 else None
    running = ended or run.state == StoredState.RUNNING
    return RunSoFar(run.due_from, at, ended, begun, first, run.began_at if running else None, ran)


def _judged(job: EndedJob, over: tuple[datetime, str] | None) -> NewHealth | None:
    """The new health of a job. None if nothing changes. over: its last run that ended too late or took too long."""
    key = job.tenant_id, job.job_id, job.generation
    if job.failures and job.failed_from is not None:
        goes_on = job.state == HealthState.FAILING and job.succeeded_at is None and job.since is not None
        failures = job.failures + (job.failures_before if goes_on else 0)
        reason = one_line(job.words or "it failed", _LONGEST_REASON)
        since = job.since if goes_on and job.since is not None else job.failed_from
        return NewHealth(*key, HealthState.FAILING, since, reason, failures)
    if job.succeeded_at is None:
        return None
    if over is not None and over[0] >= job.succeeded_at:
        since = job.since if job.state == HealthState.LATE and job.since is not None else job.succeeded_at
        return NewHealth(*key, HealthState.LATE, since, over[1])
    if job.state == HealthState.HEALTHY or (job.late and job.state == HealthState.LATE):
        return None
    return NewHealth(*key, HealthState.HEALTHY, job.succeeded_at)


def _delay(run: TimedRun | EndedTimedRun | LongRun, spec: Spec, one: Exceeded) -> Delay:
    subject = subject_of_run(run.job_id, run.task or "", run.queue or "")
    page = f"/ui/runs/{run.run_id}" if run.job_id is None else f"/ui/jobs/{quote(run.job_id, safe='')}"
    return Delay(
        tenant_id=run.tenant_id, event=one.what.event, subject=subject,
        job_id=run.job_id, task=run.task, queue=run.queue, path=page, reason=one.reason,
        notify_text=_encode(spec.notify).decode() if spec.notify else None,
        own=any(one.what.event in rule.on for rule in spec.notify or ()),
        labels_text=_encode(spec.labels).decode() if spec.labels else None,
    )  # fmt: skip
