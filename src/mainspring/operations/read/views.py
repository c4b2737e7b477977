"""Jobs, runs, workers and dead letters as clients see them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from mainspring.domain.job import JobDefinition, Priority, spec_from_text
from mainspring.domain.schedules.schedule import NOW, Schedule, ScheduleKind
from mainspring.domain.showing import show_job
from mainspring.domain.transitions import JobStatus, RunState, StoredJobStatus, StoredState, shown_state
from mainspring.domain.worker_state import WorkerState
from mainspring.kernel.ids import EVERY_TENANT
from mainspring.operations.read.why import ASSIGNED, FOR_A_SLOT
from mainspring.store.dead_letters import DeadLetterRow
from mainspring.store.history import EndedRun, LiveRun, Run
from mainspring.store.jobs import JobRow, definition_of
from mainspring.store.lanes import Lane
from mainspring.store.workers import WorkerRow
from mainspring.wire.jobs import JobView
from mainspring.wire.runs import AttemptView, DeadLetterView, ProgressView, RunView, WorkerView


class _OfJob(Protocol):
    """A row that belongs to a job. job_id is null if it equals run_id."""

    @property
    def run_id(self) -> UUID: ...
    @property
    def job_id(self) -> str | None: ...


def job_view(row: JobRow, lane: Lane) -> JobView:
    """A job that has a jobs row."""
    definition = definition_of(row, lane)
    return show_job(
        definition,
        job_id=row.job_id,
        status=JobStatus(StoredJobStatus(row.status).name),
        next_fire_at=row.next_fire_at,
        last_fired_for=row.last_fired_for,
        shard=row.shard,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        pruned=row.pruned,
    )


def fired_job_view(row: Run, lane: Lane) -> JobView:
    """A one-time job that has become a run, live or ended."""
    scheduled_for = row.scheduled_for
    schedule = Schedule(kind=ScheduleKind.AT, at=scheduled_for) if row.trigger == "at" else NOW
    if isinstance(row, EndedRun):
        status = JobStatus.CANCELLED if row.state == StoredState.CANCELLED else JobStatus.COMPLETED
        updated_at = row.ended_at
    else:
        # The run is being stopped, so the job will not run again.
        status = JobStatus.SCHEDULED if row.cancel_requested_at is None else JobStatus.CANCELLED
        updated_at = row.started_at or row.claimed_at or row.ready_at
    definition = JobDefinition(
        task=lane.task,
        name=row.name,
        payload=row.payload_text,
        queue=lane.queue,
        priority=Priority(lane.priority),
        schedule=schedule,
        spec=spec_from_text(row.spec_text),
        required_labels=lane.required_labels,
    )
    return show_job(
        definition,
        job_id=job_id_of(row),
        status=status,
        next_fire_at=None,
        last_fired_for=scheduled_for,
        shard=None,
        version=1,
        created_at=uuid7_time(row.run_id),
        updated_at=updated_at,
    )


def run_view(row: Run, lane: Lane, *, lacking: str | None = None) -> RunView:
    """A run, live or ended. `lacking`: why no live worker can take a queued run."""
    if isinstance(row, EndedRun):
        return _ended_run_view(row, lane)
    state = shown_state(row.state, row.ready_at, row.started_at, row.now)
    started = row.started_at if state is RunState.RUNNING else None
    return RunView(
        run_id=str(row.run_id),
        job_id=job_id_of(row),
        name=row.name or lane.task,
        task=lane.task,
        queue=lane.queue,
        priority=Priority(lane.priority).word,
        status=state.value,
        reason=_why_waiting(row, state, lacking),
        trigger=_trigger(row),
        scheduled_for=row.scheduled_for,
        ready_at=row.ready_at,
        start_time=started,
        end_time=None,
        duration=(row.now - started).total_seconds() if started else None,
        modified_time=row.started_at or row.claimed_at or row.ready_at,
        executor_id=str(row.worker_id) if row.worker_id else None,
        attempt_number=row.attempt,
        max_attempts=row.max_attempts,
        fence=row.fence,
        error_message=row.last_error,
        log_url=_log_url(row),
        result=None,
        payload=raw(row.payload_text),
        progress=_progress(row),
        replay_of=_replay_of(row),
        losses=row.losses,
    )


def _ended_run_view(row: EndedRun, lane: Lane) -> RunView:
    ran = row.ran_ms
    return RunView(
        run_id=str(row.run_id),
        job_id=job_id_of(row),
        name=row.name or lane.task,
        task=lane.task,
        queue=lane.queue,
        priority=Priority(lane.priority).word,
        status=StoredState(row.state).name,
        reason=row.reason,
        trigger=_trigger(row),
        scheduled_for=row.scheduled_for,
        ready_at=None,
        start_time=row.started_at,
        end_time=row.ended_at,
        duration=None if ran is None or row.started_at is None else round(ran / 1000, 6),
        modified_time=row.ended_at,
        executor_id=str(row.worker_id) if row.worker_id else None,
        attempt_number=row.attempt,
        max_attempts=row.max_attempts,
        fence=row.fence,
        error_message=row.error,
        log_url=_log_url(row),
        result=raw(row.result_text),
        payload=raw(row.payload_text),
        replay_of=_replay_of(row),
        losses=row.losses,
    )


def _why_waiting(row: LiveRun, state: RunState, lacking: str | None) -> str | None:
    if row.cancel_requested_at is not None:
        return "cancel requested; waiting for its processes to end"
    if state is RunState.SCHEDULED:
        lost = f", {row.losses} of them lost" if row.losses else ""
        return f"backing off after attempt {row.attempt} of {row.max_attempts}{lost}"
    if state is RunState.QUEUED:
        return ASSIGNED if row.state == StoredState.RUNNING else lacking or FOR_A_SLOT
    return None


def worker_view(row: WorkerRow) -> WorkerView:
    return WorkerView(
        worker_id=str(row.worker_id),
        name=row.name,
        state=WorkerState(row.state).name,
        queues=row.queues,
        tasks=row.tasks,
        slots=row.slots,
        running=row.running,
        holding=row.holding,
        labels=row.labels,
        version=row.version,
        registered_at=row.registered_at,
        last_beat_at=row.last_beat_at,
        shared=row.tenant_id == EVERY_TENANT,
        left_out=row.left_out,
    )


def dead_letter_view(row: DeadLetterRow, lane: Lane, attempts: list[AttemptView] | None = None) -> DeadLetterView:
    return DeadLetterView(
        run_id=str(row.run_id),
        job_id=job_id_of(row),
        name=row.name or lane.task,
        task=lane.task,
        queue=lane.queue,
        attempts=row.attempts,
        error_message=row.error,
        payload=raw(row.payload_text),
        scheduled_for=row.scheduled_for,
        died_at=row.died_at,
        reason=row.reason,
        replay_of=_replay_of(row),
        tries=attempts,
    )


def job_id_of(row: _OfJob) -> str:
    """The column job_id is null if it equals run_id."""
    return str(row.run_id) if row.job_id is None else row.job_id


def _trigger(row: Run) -> str:
    return "schedule" if row.trigger in (None, "at") else row.trigger


def _log_url(row: Run) -> str | None:
    """The address of the output of its attempts. None for a run that never started."""
    return f"/v1/runs/{row.run_id}/logs" if row.attempt > 0 else None


def _progress(row: LiveRun) -> ProgressView | None:
    if row.progress is None and row.progress_text is None:
        return None
    return ProgressView(row.progress, row.progress_text)


def _replay_of(row: Run | DeadLetterRow) -> str | None:
    kind, _, run_id = (row.trigger or "").partition(":")
    return run_id if kind == "replay" else None


def raw(text: str | None) -> Any:
    """JSON text that the encoder copies unchanged."""
    return None if text is None else msgspec.Raw(text)


def uuid7_time(run_id: UUID) -> datetime:
    return datetime.fromtimestamp((run_id.int >> 80) / 1000, UTC)
