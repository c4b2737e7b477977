"""Shows jobs, and why runs wait, to clients. The server and the test box of the SDK share this code."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.domain.breakers import Breaker
from mainspring.domain.dependencies import rule_of
from mainspring.domain.intake.kind_checks import calls_in
from mainspring.domain.job import NO_LONGER_DECLARED, JobDefinition, Priority, plain_values
from mainspring.domain.limits import read_name
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedules.schedule import ScheduleKind
from mainspring.domain.schedules.words import explain
from mainspring.domain.tags import breaker_tag
from mainspring.domain.transitions import JobStatus
from mainspring.kernel.config import MAX_PAYLOAD_BYTES
from mainspring.wire.execution import RunSetup
from mainspring.wire.jobs import JobView, MisfireView, RetryRuleView, RetryView
from mainspring.wire.limits import BreakerView, CircuitBreakerView, ConcurrencyView, RateLimitView
from mainspring.wire.runs import Creator, RunBrief
from mainspring.wire.schedules import DstView

NEVER_RAN = "missed: it did not run within what its misfire policy allows"  # the error of a one-time job


def show_job(
    definition: JobDefinition,
    *,
    job_id: str,
    status: JobStatus,
    next_fire_at: datetime | None,
    last_fired_for: datetime | None,
    shard: int | None,
    version: int,
    created_at: datetime,
    updated_at: datetime,
    latest_run: RunBrief | None = None,
    error_message: str | None = None,
    generation: int = 1,
    pruned: bool = False,
    runs_left: int | None = None,
    created_by: Creator | None = None,
) -> JobView:
    """The view of a job: its definition and its current status. pruned: the job is paused because no code declares it
    any more."""
    spec, schedule = definition.spec, definition.schedule
    setup = spec.setup or RunSetup()
    return JobView(
        job_id=job_id,
        name=definition.name or definition.task,
        task=definition.task,
        command=spec.command,
        **calls_in(setup),
        schedule_type=schedule.kind.value,
        schedule=schedule.words(),
        status=status.value,
        schedule_time=schedule.at,
        cron_expression=schedule.cron,
        timezone=schedule.timezone
        if schedule.kind in (ScheduleKind.CRON, ScheduleKind.RRULE) or schedule.calendar
        else None,
        every=schedule.every,
        rrule=schedule.rrule,
        exdates=list(schedule.exdates or ()),
        jitter=schedule.jitter,
        start=schedule.start,
        end=schedule.end,
        max_runs=schedule.max_runs,
        runs_left=runs_left,
        schedule_in_words=explain(schedule),
        dst=None if schedule.gap is None and schedule.fold is None else DstView(schedule.gap, schedule.fold),
        payload=None if definition.payload is None else msgspec.Raw(definition.payload),
        max_retries=spec.retry.max_attempts - 1,
        retry=_retry_view(spec.retry),
        timeout=spec.timeout,
        kill_grace=setup.kill_grace,
        env=setup.env or {},
        limits=setup.limits,
        sandbox=setup.sandbox,
        run_as=setup.run_as,
        required_labels=definition.required_labels or {},
        secrets=setup.secrets or [],
        keep_payload=_shown_size(spec.keep_payload),
        misfire=MisfireView(*msgspec.structs.astuple(spec.misfire)),
        overlap=definition.overlap.word,
        delivery=spec.delivery.value,
        idempotency_key=spec.idempotency_key,
        unique=spec.unique,
        calendar=schedule.calendar,
        calendar_version=schedule.calendar_version,
        outside=None if schedule.calendar is None else schedule.outside or "skip",
        after=list(schedule.after or ()),
        depends_on=spec.depends_on or [],
        rule=rule_of(definition),
        on_upstream_failure=None if spec.depends_on is None else spec.on_upstream_failure or "skip",
        notify=spec.notify or [],
        owner=spec.owner,
        description=spec.description,
        labels=spec.labels or {},
        search=spec.search or [],
        queue=definition.queue,
        priority=Priority(definition.priority).word,
        next_fire_at=next_fire_at,
        last_fired_for=last_fired_for,
        shard_id=shard,
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        latest_run=latest_run,
        error_message=error_message,
        generation=generation,
        declared_by=definition.declared_by,
        created_by=created_by,
        pause_reason=NO_LONGER_DECLARED if pruned else None,
        concurrency=[
            ConcurrencyView(item.limit, item.key, item.per, "strict" if item.strict else "priority")
            for item in spec.concurrency or ()
        ],
        rate_limit=[RateLimitView(item.rate, item.burst, item.key, item.per) for item in spec.rate_limit or ()],
        circuit_breaker=None
        if spec.circuit_breaker is None
        else CircuitBreakerView(*msgspec.structs.astuple(spec.circuit_breaker)),
        workflow_version=spec.workflow,
        **plain_values(spec),
    )


def breaker_view(breaker_id: int, name: str, state: Breaker, failures: int, open_for: float, held: int) -> BreakerView:
    of = read_name(name)
    return BreakerView(
        breaker_id=breaker_id,
        job_id=of.of if of.kind == "job" else None,
        task=of.of if of.kind == "task" else None,
        state=state.word,
        failed=state.failed,
        failures=failures,
        open_for=open_for,
        opened_at=state.opened_at,
        probe_at=state.next_at,
        probe=None if state.probe is None else str(state.probe),
        held=held,
        etag=breaker_tag(state.failed, state.opened_at),
    )


def _shown_size(kept: int) -> bool | int:
    """True and false are shown as they were given, a size as its number of bytes."""
    return kept if 0 < kept < MAX_PAYLOAD_BYTES else kept > 0


def backing_off(attempt: int, max_attempts: int, losses: int, snoozes: int) -> str:
    """The reason of a run that waits for its next attempt after a failure or a loss, or for its first one."""
    if attempt == 0:
        return "pushed to a later time by another submission (unique)"
    lost = f", {losses} of them lost" if losses else ""
    snoozed = f", {snoozes} of them snoozed" if snoozes else ""
    return f"backing off after attempt {attempt} of {max_attempts}{lost}{snoozed}"


def snoozed_until(moment: datetime) -> str:
    """The reason of a run that waits because its task called `ctx.snooze`."""
    return f"snoozed until {moment:%Y-%m-%dT%H:%M:%SZ}"


def _retry_view(retry: RetryPolicy) -> RetryView:
    rules = [
        RetryRuleView(rule.then, rule.errors, rule.exit_codes, rule.http_statuses, rule.after) for rule in retry.rules
    ]
    return RetryView(retry.max_attempts, retry.backoff, retry.base, retry.cap, retry.jitter, rules)
