"""The jobs and runs of a box."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mainspring.domain.job import STILL_ALIVE, JobDefinition
from mainspring.domain.run_key import idempotency_key
from mainspring.domain.schedules.misfire import Missed
from mainspring.domain.schedules.nominal_times import latest, nominal_of
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.domain.start_lag import lag_from
from mainspring.domain.transitions import JobStatus, RunState
from mainspring.sdk.tasks.context import Context

_OF_RUN = {
    RunState.SCHEDULED: JobStatus.SCHEDULED,
    RunState.QUEUED: JobStatus.SCHEDULED,
    RunState.HELD: JobStatus.SCHEDULED,
    RunState.RUNNING: JobStatus.RUNNING,
    RunState.SUCCESS: JobStatus.COMPLETED,
    RunState.FAILED: JobStatus.FAILED,
    RunState.SKIPPED: JobStatus.FAILED,
    RunState.CANCELLED: JobStatus.CANCELLED,
}
_LIVE = frozenset({RunState.SCHEDULED, RunState.HELD, RunState.QUEUED, RunState.RUNNING})


@dataclass(slots=True, eq=False)
class BoxRun:
    """One run in a box. `status` can be compared with strings: `run.status == "SUCCESS"`.

    `attempt` counts the attempts, `losses` those that were lost with their worker, `snoozes` those that asked to come
    back later. `errors` has one line for each failed attempt, and `error` is the last one. `exception` is what the last
    failed attempt raised. `result` is the result after JSON encoding, as a client would see it. `logs` and `progress`
    are what the task reported through its context.
    """

    run_id: str
    job_id: str
    task: str
    scheduled_for: datetime
    status: RunState
    definition: JobDefinition = field(repr=False)
    created_at: datetime = field(repr=False)
    job_created_at: datetime = field(repr=False)
    trigger: str = "schedule"
    generation: int = 1
    ready_at: datetime | None = field(default=None, repr=False)
    attempt: int = 0
    result: Any = None
    errors: list[str] = field(default_factory=list, repr=False)
    reason: str | None = None
    exception: BaseException | None = None
    logs: list[str] = field(default_factory=list, repr=False)
    progress: tuple[float | None, str | None] | None = field(default=None, repr=False)
    started_at: datetime | None = field(default=None, repr=False)
    first_started_at: datetime | None = field(default=None, repr=False)
    ended_at: datetime | None = field(default=None, repr=False)
    losses: int = 0
    snoozes: int = 0
    cancel_requested: bool = field(default=False, repr=False)
    cancel_reason: str | None = field(default=None, repr=False)
    context: Context | None = field(default=None, repr=False)

    @property
    def error(self) -> str | None:
        """The error of the last failed attempt, such as "ValueError: no such account". None if the run succeeded."""
        return self.errors[-1] if self.errors and self.status is not RunState.SUCCESS else None

    @property
    def max_attempts(self) -> int:
        """Each loss and each snooze grants another attempt."""
        return self.definition.spec.retry.max_attempts + self.losses + self.snoozes

    @property
    def live(self) -> bool:
        """Whether the run has not ended."""
        return self.status in _LIVE

    @property
    def payload_dropped(self) -> bool:
        """Whether a server would not keep the payload of this run, which has succeeded."""
        payload = self.definition.payload
        too_large = payload is not None and len(payload.encode()) > self.definition.spec.keep_payload
        return self.status is RunState.SUCCESS and too_large

    @property
    def idempotency_key(self) -> str:
        """The key that the task passes to services that de-duplicate."""
        return idempotency_key(self.job_id, self.scheduled_for, self.definition.spec.repeat, self.generation)

    @property
    def nominal_for(self) -> datetime:
        """Its nominal time: before jitter."""
        return nominal_of(self.definition.schedule, self.scheduled_for)

    @property
    def lag_from(self) -> datetime:
        """From when its start lag counts."""
        once = self.definition.schedule.kind is ScheduleKind.AT
        trigger = ("at" if once else None) if self.trigger == "schedule" else self.trigger
        return lag_from(self.scheduled_for, trigger, self.created_at, self.job_created_at)

    @property
    def replay_of(self) -> str | None:
        """The id of the run that this one repeats, if it is a replay."""
        kind, _, run_id = self.trigger.partition(":")
        return run_id if kind == "replay" else None


@dataclass(slots=True, eq=False)
class BoxJob:
    """A job of a box. If several jobs fire at the same time, the one with the lowest `number` is first. `arming` is the
    number of the valid entry in the calendar; entries with other numbers are outdated."""

    job_id: str
    number: int
    definition: JobDefinition
    created_at: datetime
    updated_at: datetime
    status: JobStatus = JobStatus.SCHEDULED
    next_fire: datetime | None = None
    paused_from: datetime | None = None
    last_fired_for: datetime | None = None
    last_nominal_for: datetime | None = None
    version: int = 1
    arming: int = 0
    runs: list[BoxRun] = field(default_factory=list)
    live: int = 0
    missed: list[tuple[Missed, datetime, int]] = field(default_factory=list)  # with time and generation
    generation: int = 1
    runs_left: int | None = None

    @property
    def dealt_with(self) -> datetime | None:
        """No nominal time up to this one fires any more."""
        return latest(self.last_nominal_for, self.last_fired_for)

    @property
    def has_fired(self) -> bool:
        """Whether this is a one-time job whose time has come."""
        waits = self.next_fire is not None or self.paused_from is not None
        return self.definition.schedule.one_time and self.last_fired_for is not None and not waits

    @property
    def latest_run(self) -> BoxRun | None:
        """Its newest run. Of a one-time job that has fired, the run that its status tells of."""
        if self.has_fired:
            return max(reversed(self.runs), key=_weight, default=None)  # of equal ones the newest
        return self.runs[-1] if self.runs else None

    @property
    def shown_status(self) -> JobStatus:
        """The status as a client of a server sees it."""
        if not self.has_fired:
            return self.status
        run = self.latest_run
        if run is None or run.reason == STILL_ALIVE:
            return JobStatus.FAILED
        return JobStatus.CANCELLED if run.live and run.cancel_requested else _OF_RUN[run.status]


def _weight(run: BoxRun) -> tuple[bool, bool, bool, bool]:
    """Which run of a one-time job decides."""
    return run.live, run.live and not run.cancel_requested, run.status is RunState.RUNNING, run.reason != STILL_ALIVE
