"""Jobs and runs of a box as a server's clients would see them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mainspring.domain.job import Priority
from mainspring.domain.schedule import ScheduleKind
from mainspring.sdk.testing.records import BoxJob, BoxRun
from mainspring.wire.execution import RunSetup
from mainspring.wire.jobs import JobView, MisfireView, RetryRuleView, RetryView
from mainspring.wire.runs import DeadLetterView, ProgressView, RunView

WORKER = "box"


def job_view(job: BoxJob) -> JobView:
    definition = job.definition
    spec, schedule = definition.spec, definition.schedule
    setup = spec.setup or RunSetup()
    retry = spec.retry
    rules = [
        RetryRuleView(rule.then, rule.errors, rule.exit_codes, rule.http_statuses, rule.after) for rule in retry.rules
    ]
    return JobView(
        job_id=job.job_id,
        name=definition.name or definition.task,
        task=definition.task,
        command=spec.command,
        http=setup.http,
        schedule_type=schedule.kind.value,
        schedule=schedule.words(),
        status=job.status.value,
        schedule_time=schedule.at,
        cron_expression=schedule.cron,
        timezone=schedule.timezone if schedule.kind is ScheduleKind.CRON else None,
        every=schedule.every,
        payload=_raw(definition.payload),
        max_retries=retry.max_attempts - 1,
        retry=RetryView(retry.max_attempts, retry.backoff, retry.base, retry.cap, retry.jitter, rules),
        timeout=spec.timeout,
        run_timeout=spec.run_timeout,
        kill_grace=setup.kill_grace,
        env=setup.env or {},
        limits=setup.limits,
        sandbox=setup.sandbox,
        required_labels=definition.required_labels or {},
        misfire=MisfireView(*msgspec.structs.astuple(spec.misfire)),
        overlap=definition.overlap.word,
        delivery=spec.delivery.value,
        idempotency_key=spec.idempotency_key,
        owner=spec.owner,
        description=spec.description,
        labels=spec.labels or {},
        queue=definition.queue,
        priority=Priority(definition.priority).word,
        next_fire_at=job.next_fire,
        last_fired_for=job.last_fired_for,
        shard_id=None,
        version=job.version,
        created_at=job.created_at,
        updated_at=job.updated_at,
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
        start_time=run.started_at,
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
        payload=_raw(run.definition.payload),
        progress=None if ended or run.progress is None else ProgressView(*run.progress),
        replay_of=run.replay_of,
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
    )


def _raw(text: str | None) -> Any:
    return None if text is None else msgspec.Raw(text.encode())
