"""Jobs and runs of a box as the clients of a server would see them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.job import Priority
from mainspring.domain.showing import NEVER_RAN, show_job
from mainspring.domain.tags import dead_letter_tag
from mainspring.domain.transitions import JobStatus, RunState
from mainspring.sdk.testing.records import BoxJob, BoxRun
from mainspring.wire.jobs import JobView
from mainspring.wire.runs import DeadLetterView, ProgressView, RunBrief, RunView

WORKER = "box"


def job_view(job: BoxJob) -> JobView:
    latest = job.latest_run
    return show_job(
        job.definition,
        job_id=job.job_id,
        status=job.shown_status,
        next_fire_at=job.next_fire,
        last_fired_for=job.last_fired_for,
        shard=None,
        version=job.version,
        created_at=job.created_at,
        updated_at=job.updated_at,
        latest_run=None if latest is None else brief_view(latest),
        error_message=job_error(job),
        generation=job.generation,
        runs_left=job.runs_left,
    )


def job_error(job: BoxJob) -> str | None:
    """The error of the latest run. A run that failed without one has a reason."""
    latest, failed = job.latest_run, job.shown_status is JobStatus.FAILED
    if latest is None:
        return NEVER_RAN if failed else None
    return latest.error or (latest.reason if failed or latest.status is RunState.FAILED else None)


def brief_view(run: BoxRun) -> RunBrief:
    whole = run_view(run)
    assert whole.created_at is not None
    return RunBrief(
        run_id=whole.run_id,
        status=whole.status,
        reason=None if run.status is RunState.QUEUED else whole.reason,
        trigger=whole.trigger,
        scheduled_for=whole.scheduled_for,
        created_at=whole.created_at,
        start_time=whole.start_time,
        end_time=whole.end_time,
        duration=whole.duration,
        attempt_number=whole.attempt_number,
        max_attempts=whole.max_attempts,
        error_message=whole.error_message,
    )


def run_view(run: BoxRun) -> RunView:
    ended = not run.live
    return RunView(
        run_id=run.run_id,
        job_id=run.job_id,
        name=run.definition.name or run.task,
        task=run.task,
        queue=run.definition.queue,
        priority=Priority(run.definition.priority).word,
        status=run.status.value,
        reason=run.reason,
        trigger=run.trigger,
        scheduled_for=run.scheduled_for,
        ready_at=run.ready_at,
        start_time=run.started_at if ended or run.status is RunState.RUNNING else None,
        end_time=run.ended_at,
        duration=0.0 if ended and run.started_at else None,
        modified_time=run.ended_at or run.started_at or run.created_at,
        executor_id=WORKER if run.attempt else None,
        attempt_number=run.attempt,
        max_attempts=run.max_attempts,
        fence=run.attempt,
        error_message=run.error,
        log_url=None,
        result=run.result,
        payload=None if run.payload_dropped else _raw(run.definition.payload),
        progress=None if ended or run.progress is None else ProgressView(*run.progress),
        replay_of=run.replay_of,
        losses=run.losses,
        executor=WORKER if run.attempt else None,
        created_at=run.created_at,
        lag_from=run.lag_from,
        snoozes=run.snoozes,
        payload_dropped=run.payload_dropped,
        idempotency_key=run.idempotency_key,
        generation=run.generation,
        etag=f"{run.status.value.lower()}-{run.attempt}",
    )


def dead_letter_view(run: BoxRun) -> DeadLetterView:
    assert run.ended_at is not None
    died_at: datetime = run.ended_at
    return DeadLetterView(
        run_id=run.run_id,
        job_id=run.job_id,
        name=run.definition.name or run.task,
        task=run.task,
        queue=run.definition.queue,
        attempts=run.attempt,
        error_message=run.error,
        payload=_raw(run.definition.payload),
        scheduled_for=run.scheduled_for,
        died_at=died_at,
        reason=run.reason,
        replay_of=run.replay_of,
        generation=run.generation,
        etag=dead_letter_tag(run.attempt),
    )


def _raw(text: str | None) -> Any:
    return None if text is None else msgspec.Raw(text.encode())
