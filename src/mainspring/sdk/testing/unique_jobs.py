"""The keys of unique jobs in a box. The rules are those of a server: operations/submit/unique.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.intake.unique import (
    KEEP,
    KEPT,
    LATER,
    QUEUED,
    REPLACE,
    REPLACED,
    RUNNING,
    SCHEDULED,
    has_started,
    pushed,
    unique_key,
    with_work_of,
)
from mainspring.domain.job import JobDefinition, has_limits, line_of
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.domain.transitions import JobStatus, RunState
from mainspring.sdk.testing.engine import Engine
from mainspring.sdk.testing.records import BoxJob, BoxRun
from mainspring.wire.jobs import JobCreated


@dataclass(slots=True)
class _Key:
    job: BoxJob
    states: list[str]
    until: datetime


class UniqueJobs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._keys: dict[bytes, _Key] = {}

    def take(self, definition: JobDefinition, job: BoxJob) -> None:
        """The new job has the key of its definition."""
        unique = definition.spec.unique
        if unique is not None:
            until = self._engine.now + timedelta(seconds=unique.for_)
            self._keys[unique_key(definition)] = _Key(job, unique.while_, until)

    def merged(self, new: JobDefinition) -> JobCreated | None:
        """Merge a submission into the job that has its key. None if none has. Raises Conflict."""
        unique = new.spec.unique
        key = None if unique is None else self._keys.get(unique_key(new))
        if unique is None or key is None or key.until <= self._engine.now or not _states(key.job) & {*key.states}:
            return None
        job, answer = key.job, KEPT
        if unique.else_ != KEEP:
            run = None if _waits(job) else _waiting_run(job)
            if run is None and not _waits(job):
                raise has_started(job.job_id, unique.else_)
            if unique.else_ == REPLACE:
                answer = REPLACED
                self._replace(job, run, new)
            else:
                answer = LATER
                self._push(job, run, new, key.until)
        return JobCreated(job.job_id, job.generation, answer)

    def _replace(self, job: BoxJob, run: BoxRun | None, new: JobDefinition) -> None:
        line = line_of(job.definition, job.job_id) if has_limits(job.definition) else None
        job.definition = with_work_of(job.definition, new, job.job_id, line)
        job.version, job.updated_at = job.version + 1, self._engine.now
        if run is not None:
            run.definition = job.definition

    def _push(self, job: BoxJob, run: BoxRun | None, new: JobDefinition, until: datetime) -> None:
        if run is not None:
            self._engine.push(run, pushed(run.ready_at, new.schedule, until))
            return
        current = job.next_fire or job.paused_from
        at = pushed(current, new.schedule, until)
        if at == current:
            return
        schedule = msgspec.structs.replace(job.definition.schedule, kind=ScheduleKind.AT, at=at)
        job.definition = msgspec.structs.replace(job.definition, schedule=schedule)
        job.version, job.updated_at = job.version + 1, self._engine.now
        if job.status is JobStatus.PAUSED:
            job.paused_from = at
        else:
            self._engine.arm(job, at)


def _waits(job: BoxJob) -> bool:
    """Whether its time has not come."""
    return job.status in (JobStatus.SCHEDULED, JobStatus.PAUSED) and not job.has_fired


def _states(job: BoxJob) -> set[str]:
    """The states of the job, as the field `unique` names them."""
    states = {SCHEDULED} if _waits(job) else set()
    for run in job.runs:
        if run.live and run.generation == job.generation:
            states.add(RUNNING if run.status is RunState.RUNNING else QUEUED)
    return states


def _waiting_run(job: BoxJob) -> BoxRun | None:
    """Its run that has not started. One that was created by hand does not count."""
    for run in job.runs:
        own = run.generation == job.generation and run.trigger == "schedule"
        if own and run.live and run.attempt == 0 and run.status is not RunState.RUNNING:
            return run
    return None
