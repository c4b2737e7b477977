"""The engine of a box: fires jobs and runs tasks in the order of a simulated clock.

Schedules, misfires and retries are decided by the domain, as in a server. The engine has a calendar of fires, a queue
of ready runs, and the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any

import msgspec

from mainspring.domain.intake.recurrence import never_fires
from mainspring.domain.job import (
    DUE_TOGETHER,
    ONE_AFTER_ANOTHER,
    REPLACED,
    STILL_ALIVE,
    JobDefinition,
    Overlap,
)
from mainspring.domain.schedules.misfire import limited, missed_through, plan_fires
from mainspring.domain.schedules.nominal_times import first_fire, latest, nominal_of
from mainspring.domain.schedules.schedule import ScheduleKind, for_job
from mainspring.domain.showing import backing_off, snoozed_until
from mainspring.domain.transitions import JobStatus, RunState
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.sdk.errors import GiveUp, Retry
from mainspring.sdk.tasks.task import Task
from mainspring.sdk.testing.attempt import AttemptFailure, Steps, WorkerLost, run_attempt
from mainspring.sdk.testing.event_queue import EventQueue
from mainspring.sdk.testing.records import BoxJob, BoxRun
from mainspring.sdk.testing.verdicts import verdict_of, verdict_of_snooze

MOST_AT_ONCE = 100_000


class Engine:
    """Jobs, runs and the clock of a box. It only advances when it is driven.

    `waiting` are the live runs whose task is known. `ended` are the ended runs in the order of their ends.
    """

    def __init__(self, tasks: Mapping[str, Task[Any, Any]], start: datetime, seed: int, *, raise_errors: bool) -> None:
        self.now = start
        self.jobs: dict[str, BoxJob] = {}
        self.runs: dict[str, BoxRun] = {}
        self.ended: list[BoxRun] = []
        self.waiting: dict[str, BoxRun] = {}
        self.dead: dict[str, BoxRun] = {}
        self.replays: dict[str, BoxRun] = {}
        self._tasks = tasks
        self._start = start
        self._random = Random(seed)
        self._raise_errors = raise_errors
        self._numbers = count(1)
        self._events = EventQueue(self._numbers)
        self._busy_at = start
        self._busy = 0

    # -- the clock

    def wall(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return (self.now - self._start).total_seconds()

    # -- time

    def next_moment(self) -> datetime | None:
        """When something happens next. None if nothing will."""
        moment = self._events.next_moment()
        return None if moment is None else max(self.now, moment)

    def until(self, target: datetime) -> Steps[None]:
        """Everything until `target`. Sets the clock to `target`."""
        while (moment := self.next_moment()) is not None and moment <= target:
            yield from self.step()
        self.now = max(self.now, target)

    def step(self) -> Steps[None]:
        """The next event: one fire, or one attempt of one run."""
        if (moment := self.next_moment()) is None:
            return
        self.now = moment
        self._check_runs_at_this_time()
        if (job := self._events.due_job(moment)) is not None:
            self._fire(job)
        elif (run := self._events.ready_run(moment)) is not None and not self._held(run):
            yield from self._try(run)

    def _check_runs_at_this_time(self) -> None:
        if self._busy_at != self.now:
            self._busy_at, self._busy = self.now, 0
        self._busy += 1
        if self._busy > MOST_AT_ONCE:
            raise RuntimeError(f"more than {MOST_AT_ONCE} runs at {self.now.isoformat()}: does a task submit itself?")

    # -- jobs

    def add(self, definition: JobDefinition) -> BoxJob:
        """Create a job. An immediate job gets its run at once. With the id of an ended job it is the next generation of
        that, with its runs and missed fires."""
        job_id = definition.job_id or self.new_id()
        definition = msgspec.structs.replace(
            definition, schedule=for_job(definition.schedule, DEFAULT_TENANT, job_id, self.now)
        )
        schedule = definition.schedule
        first = schedule.at if schedule.kind is ScheduleKind.AT else first_fire(schedule, self.now, self.now)
        if first is None and schedule.recurring:
            raise never_fires(schedule)
        before = self.jobs.get(job_id)
        job = BoxJob(job_id, len(self.jobs), definition, self.now, self.now, runs_left=schedule.max_runs)
        if before is not None:
            self.arm(before, None)
            job.number, job.version, job.generation = before.number, before.version + 1, before.generation + 1
            job.runs, job.missed, job.live = before.runs, before.missed, before.live
            job.arming = before.arming  # the calendar may still have an entry of the same job and time
        self.jobs[job_id] = job
        if schedule.kind is ScheduleKind.NOW:
            self._create_run(job, self.now, run_id=job_id if definition.job_id is None else None)
            job.last_fired_for = self.now
        else:
            self.arm(job, first)
        return job

    def arm(self, job: BoxJob, moment: datetime | None) -> None:
        """Set the job's next fire to `moment`. It replaces the previous one."""
        self._events.arm(job, moment)

    def resume(self, job: BoxJob) -> None:
        """Resume the job. Fires during the pause are missed. A one-time job whose time has passed fires."""
        moment, job.paused_from = job.paused_from, None
        job.status = JobStatus.SCHEDULED
        if job.definition.schedule.recurring and moment is not None and moment <= self.now:
            self.miss(job, moment)
            moment = self.next_fire(job, self.now)
        self._continue(job, moment)

    def revive(self, job: BoxJob) -> None:
        """Resume a cancelled job. The fires since the cancel are missed."""
        job.status = JobStatus.SCHEDULED
        moment = self.next_fire(job, job.updated_at)
        if moment is not None and moment <= self.now:
            self.miss(job, moment, "cancelled")
            moment = self.next_fire(job, self.now)
        self._continue(job, moment)

    def following(self, job: BoxJob) -> datetime | None:
        """The next fire of the job. If it is paused: the one that would follow if it were resumed now."""
        moment = job.next_fire or job.paused_from
        late = job.status is JobStatus.PAUSED and job.definition.schedule.recurring
        return self.next_fire(job, self.now) if late and moment is not None and moment <= self.now else moment

    def next_fire(self, job: BoxJob, after: datetime) -> datetime | None:
        """The next fire of the job, unless its schedule has made all its runs."""
        if job.runs_left == 0:
            return None
        dealt_with = job.dealt_with
        if dealt_with is None and job.definition.schedule.jitter is not None:
            dealt_with = job.created_at  # jitter can hold up a time from before the job
        return first_fire(job.definition.schedule, after, dealt_with)

    def _continue(self, job: BoxJob, moment: datetime | None) -> None:
        """A job that has no further fire has ended."""
        self.arm(job, moment)
        if moment is None and job.definition.schedule.recurring:
            job.status = JobStatus.COMPLETED

    def miss(self, job: BoxJob, first: datetime | None, reason: str = "paused") -> None:
        """Record the fires from `first` on as missed: a pause held them back, or the job is paused or deleted now."""
        if first is not None and first <= self.now:
            (missed,) = missed_through(job.definition.schedule, first, self.now, reason)
            job.missed.append((missed, self.now, job.generation))
            job.last_nominal_for = latest(job.last_nominal_for, nominal_of(job.definition.schedule, missed.last))

    def fire_due(self, job: BoxJob) -> None:
        """Before a change: fire what is due by the definition of before it. A changed schedule may begin with a time
        that has come, and another change may follow at once."""
        while job.next_fire is not None and job.next_fire <= self.now:
            self._fire(job)

    def _fire(self, job: BoxJob) -> None:
        assert job.next_fire is not None
        schedule, misfire = job.definition.schedule, job.definition.spec.misfire
        plan = plan_fires(schedule, job.next_fire, self.now, misfire, job.dealt_with)
        plan = limited(plan, job.runs_left)
        if job.runs_left is not None:
            job.runs_left -= len(plan.runs)
        job.missed += [(missed, self.now, job.generation) for missed in plan.missed]
        alone = job.live == 0
        for number, moment in enumerate(plan.runs):
            self.fire_for(job, moment, because=DUE_TOGETHER if alone and number else STILL_ALIVE)
        job.last_fired_for, job.last_nominal_for = plan.through, latest(job.last_nominal_for, plan.dealt_with)
        self.arm(job, plan.next_fire)
        if plan.next_fire is None and (job.definition.schedule.recurring or not plan.runs):
            job.status = JobStatus.COMPLETED

    def fire_for(
        self,
        job: BoxJob,
        scheduled_for: datetime,
        trigger: str = "schedule",
        because: str = STILL_ALIVE,
        definition: JobDefinition | None = None,
    ) -> BoxRun:
        """Create a run of the job. If an earlier one is live the overlap rule decides: the new one is skipped, waits
        for it, runs beside it, or replaces it."""
        skipped = job.live > 0 and job.definition.overlap is Overlap.SKIP
        run = self._create_run(
            job, scheduled_for, trigger=trigger, skipped=because if skipped else None, definition=definition
        )
        if job.definition.overlap is Overlap.CANCEL_PREVIOUS:
            for earlier in [one for one in job.runs if one.live and one is not run]:
                self.cancel(earlier, REPLACED)
        return run

    # -- runs

    def replay(self, ended: BoxRun, run_id: str, definition: JobDefinition) -> BoxRun:
        """Create a run with the same job and fire time."""
        self.dead.pop(ended.run_id, None)
        job, trigger = self.jobs[ended.job_id], f"replay:{ended.run_id}"
        run = self.replays[ended.run_id] = self._create_run(
            job,
            ended.scheduled_for,
            trigger=trigger,
            run_id=run_id,
            definition=definition,
            generation=ended.generation,
        )
        return run

    def cancel(self, run: BoxRun, reason: str | None = None) -> None:
        if run.status is RunState.RUNNING:
            run.cancel_requested, run.cancel_reason = True, reason
            if run.context is not None:
                run.context.cancel()
        else:
            waited = "while it waited for its next attempt" if run.attempt else "before it started"
            self.end(run, RunState.CANCELLED, reason or f"cancelled {waited}")

    def _create_run(
        self,
        job: BoxJob,
        scheduled_for: datetime,
        *,
        trigger: str = "schedule",
        run_id: str | None = None,
        skipped: str | None = None,
        definition: JobDefinition | None = None,
        generation: int | None = None,
    ) -> BoxRun:
        definition = definition or job.definition
        run = BoxRun(
            run_id=run_id or self.new_id(),
            job_id=job.job_id,
            task=definition.task,
            scheduled_for=scheduled_for,
            status=RunState.QUEUED,
            definition=definition,
            created_at=self.now,
            trigger=trigger,
            generation=generation or job.generation,
            job_created_at=job.created_at,
        )
        self.runs[run.run_id] = run
        job.runs.append(run)
        job.live += 1
        if skipped:
            self.end(run, RunState.SKIPPED, skipped)
            return run
        if run.task in self._tasks:
            self.waiting[run.run_id] = run
        if not self._held(run):
            self._admit(run)
        return run

    def _held(self, run: BoxRun) -> bool:
        """Whether the overlap rule lets the run wait for an earlier run of its job. It is HELD then."""
        job = self.jobs[run.job_id]
        if job.live == 1 or job.definition.overlap not in ONE_AFTER_ANOTHER:
            return False
        earlier = next((one for one in job.runs if one.live and one.run_id < run.run_id), None)
        if earlier is None:
            return False
        run.status, run.ready_at = RunState.HELD, None
        run.reason = "waiting for an earlier run of its job to end (overlap)"
        if earlier.status is RunState.SCHEDULED:
            run.reason = f"waiting for run {earlier.run_id}, which is before it and cannot start yet (overlap)"
        return True

    def admit_held(self, job: BoxJob) -> None:
        """Let the runs start that no earlier run holds up any more: one has ended, or the overlap rule has changed."""
        for run in [one for one in job.runs if one.status is RunState.HELD]:
            if not self._held(run):
                self._admit(run)

    def _admit(self, run: BoxRun) -> None:
        """The run may start as soon as a worker has time."""
        run.status, run.reason = RunState.QUEUED, None
        if run.task in self._tasks:
            self._events.queue(run, self.now)
        else:
            run.reason = f"no worker offers task {run.task}"

    def _try(self, run: BoxRun) -> Steps[None]:
        run.status, run.reason, run.ready_at = RunState.RUNNING, None, None
        run.attempt += 1
        run.started_at = self.now
        run.first_started_at = run.first_started_at or self.now
        failure = yield from run_attempt(self._tasks[run.task], run)
        if failure is not None and failure.snooze is None:
            run.errors.append(failure.error)
            run.exception = failure.exception
        if run.cancel_requested:
            self.end(run, RunState.CANCELLED, run.cancel_reason or "cancelled on request")
        elif failure is None:
            self.end(run, RunState.SUCCESS, None)
        elif failure.snooze is not None:
            self._snooze_or_end(run, failure.snooze)
        else:
            self._retry_or_end(run, failure)
            intended = isinstance(failure.exception, Retry | GiveUp | WorkerLost)
            if self._raise_errors and failure.exception and not intended:
                raise failure.exception

    def _retry_or_end(self, run: BoxRun, failure: AttemptFailure) -> None:
        """Retry a failed or lost run, or end it."""
        verdict = verdict_of(run, failure, self._random.random)
        if verdict.delay is None:
            self.end(run, RunState.FAILED, verdict.reason)
            self.dead[run.run_id] = run
        elif verdict.delay == 0.0:
            run.status = RunState.QUEUED
            self._events.queue(run, self.now)
        else:
            run.status = RunState.SCHEDULED
            run.reason = backing_off(run.attempt, run.max_attempts, run.losses, run.snoozes)
            self._events.queue(run, self.now + timedelta(seconds=verdict.delay))

    def _snooze_or_end(self, run: BoxRun, seconds: float) -> None:
        """Let a run that asked for it start later, or end it."""
        verdict = verdict_of_snooze(run, seconds, self.now)
        if verdict.delay is None:
            self.end(run, RunState.FAILED, verdict.reason)
            self.dead[run.run_id] = run
            return
        run.snoozes += 1
        run.status = RunState.SCHEDULED
        until = self.now + timedelta(seconds=verdict.delay)
        run.reason = snoozed_until(until)
        self._events.queue(run, until)

    def end(self, run: BoxRun, status: RunState, reason: str | None) -> None:
        """Complete the run. A run that waited for it follows."""
        run.status, run.reason, run.ended_at, run.ready_at = status, reason, self.now, None
        self.ended.append(run)
        self.waiting.pop(run.run_id, None)
        job = self.jobs[run.job_id]
        job.live -= 1
        job.updated_at = self.now
        one_time = job.definition.schedule.one_time and run.generation == job.generation
        if one_time and job.status is JobStatus.SCHEDULED and job.next_fire is None:
            job.status = JobStatus.CANCELLED if status is RunState.CANCELLED else JobStatus.COMPLETED
        if job.live and job.definition.overlap in ONE_AFTER_ANOTHER:
            self.admit_held(job)

    def new_id(self) -> str:
        """A UUID with the time of the box. It is the same each time the test runs."""
        stamp = f"{int(self.now.astimezone(UTC).timestamp() * 1000):012x}"
        return f"{stamp[:8]}-{stamp[8:]}-7000-8000-{next(self._numbers):012x}"
