"""Jobs, runs, workers and dead letters as clients see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec

from mainspring.domain.backfills import backfill_of
from mainspring.domain.job import JobDefinition, Priority, Spec, spec_to_show
from mainspring.domain.run_key import idempotency_key
from mainspring.domain.schedules.schedule import NOW, Schedule, ScheduleKind
from mainspring.domain.showing import NEVER_RAN, backing_off, show_job, snoozed_until
from mainspring.domain.start_lag import LATE, lag_from
from mainspring.domain.tags import dead_letter_tag, run_tag, worker_tag
from mainspring.domain.transitions import JobStatus, RunState, StoredJobStatus, StoredState, shown_state
from mainspring.domain.worker_state import WorkerState
from mainspring.domain.workflows.flow import RERUN_TRIGGER, WORKFLOW_TASK, flow_of
from mainspring.kernel.ids import EVERY_TENANT, uuid7_time
from mainspring.kernel.public_url import link_to
from mainspring.operations.lookup import run_definition
from mainspring.operations.read.one_time import FiredJob, created_at, status_of
from mainspring.operations.read.why import ASSIGNED, FOR_A_SLOT, FOR_OTHERS, HELD_BY_A_LIMIT, held_by, waits_in_words
from mainspring.store.dead_letters import DeadLetterRow
from mainspring.store.dependencies import WaitRow
from mainspring.store.fired_jobs import BriefRun, brief_of, with_cut_error
from mainspring.store.history import EndedRun, LiveRun, Run
from mainspring.store.jobs import JobRow
from mainspring.store.lanes import Lane
from mainspring.store.limit_reads import LineOfLimit
from mainspring.store.shown_definitions import definition_to_show
from mainspring.store.waits import OpenWait
from mainspring.store.workers import WorkerRow
from mainspring.wire.jobs import JobView
from mainspring.wire.runs import AttemptView, Creator, DeadLetterView, ProgressView, RunBrief, RunView, WorkerView
from mainspring.wire.usage import usage_view


class _OfJob(Protocol):
    """A row that belongs to a job. job_id is null if it equals run_id."""

    @property
    def run_id(self) -> UUID: ...
    @property
    def job_id(self) -> str | None: ...


class RunFacts(msgspec.Struct, frozen=True):
    """What the rows of runs do not say: when workers were last heard, their names, when the last attempts of runs that
    back off ended, the lines in which runs are HELD, the jobs for which runs WAIT, what steps wait for without a slot,
    and when jobs whose only fire was late were created."""

    heard: Mapping[UUID, datetime] = {}
    names: Mapping[UUID, str] = {}
    ends: Mapping[UUID, datetime] = {}
    lines: Mapping[int, LineOfLimit] = {}
    waits: Mapping[UUID, Sequence[WaitRow]] = {}
    jobs_created: Mapping[str, datetime] = {}
    open_waits: Mapping[UUID, OpenWait] = {}


_NO_FACTS = RunFacts()


def job_view(row: JobRow, lane: Lane, latest: BriefRun | None = None, status: JobStatus | None = None) -> JobView:
    """A job that has a jobs row. `status` is the status of a one-time job that was missed."""
    definition, problem = definition_to_show(row, lane)
    status = status or JobStatus(StoredJobStatus(row.status).name)
    return show_job(
        definition,
        job_id=row.job_id,
        status=status,
        next_fire_at=row.next_fire_at,
        last_fired_for=row.last_fired_for,
        shard=row.shard,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        latest_run=None if latest is None else brief_view(latest),
        error_message=problem or _job_error(status, latest),
        generation=row.generation,
        pruned=row.pruned,
        created_by=_creator(row),
        runs_left=row.runs_left,
    )


def fired_job_view(job: FiredJob, lane: Lane, *, listed: bool = False) -> JobView:
    """A one-time job that has fired. `listed`: long errors are cut."""
    row, deciding = job.fired, job.deciding
    latest = with_cut_error(brief_of(deciding)) if listed else brief_of(deciding)
    spec, problem = spec_to_show(row.spec_text)
    definition = fired_definition(row, lane, spec)
    status = status_of(deciding)
    return show_job(
        definition,
        job_id=job.job_id,
        status=status,
        next_fire_at=None,
        last_fired_for=row.scheduled_for,
        shard=None,
        version=row.generation,  # the row that had the version is gone
        created_at=job.created_at,
        updated_at=_last_change(deciding, None),
        latest_run=brief_view(latest),
        error_message=_job_error(status, latest) or problem,
        generation=row.generation,
        created_by=_creator(row),
    )


def fired_definition(fired: Run, lane: Lane, spec: Spec | None = None) -> JobDefinition:
    """The definition of a one-time job that has become the run `fired`, with `spec` instead of its own. Raises
    Unreadable."""
    definition = run_definition(fired, lane, spec)
    at = definition.spec.requested_at or fired.scheduled_for
    schedule = Schedule(kind=ScheduleKind.AT, at=at) if fired.trigger == "at" else NOW
    return msgspec.structs.replace(definition, schedule=schedule)


def _job_error(status: JobStatus, latest: BriefRun | None) -> str | None:
    """The error of the latest run. A run that failed without one, e.g. because its time was over, has a reason."""
    failed = status is JobStatus.FAILED
    if latest is None:
        return NEVER_RAN if failed else None
    return latest.error or (latest.reason if failed or latest.state == StoredState.FAILED else None)


def run_view(
    row: Run, lane: Lane, *, lacking: str | None = None, facts: RunFacts = _NO_FACTS, samples: bool = False
) -> RunView:
    """A run, live or ended. `lacking`: why no live worker can take a queued run. `samples`: with those of its usage."""
    executor = None if row.worker_id is None else facts.names.get(row.worker_id)
    if isinstance(row, EndedRun):
        return _ended_run_view(row, lane, executor, facts, samples=samples)
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
        reason=_why_not_ready(row, state, facts) or _why_waiting(row, state, lacking),
        trigger=_trigger(row),
        scheduled_for=row.scheduled_for,
        ready_at=row.ready_at,
        start_time=started,
        end_time=None,
        duration=(row.now - started).total_seconds() if started else None,
        modified_time=_last_change(row, facts),
        executor_id=str(row.worker_id) if row.worker_id else None,
        attempt_number=_started(row),
        max_attempts=row.max_attempts,
        fence=row.fence,
        error_message=row.last_error,
        log_url=_log_url(row),
        result=None,
        payload=raw(row.payload_text),
        progress=_progress(row),
        replay_of=_replay_of(row),
        losses=row.losses,
        executor=executor,
        created_at=created_at(row),
        lag_from=_lag_from(row, facts),
        snoozes=row.snoozes,
        idempotency_key=_key(row),
        generation=row.generation,
        backfill_id=backfill_of(row.trigger),
        created_by=_creator(row),
        usage=usage_view(row.usage_text, samples=samples),
        etag=run_tag(row.state, row.fence),
        **_of_workflow(row, lane),
    )


def _ended_run_view(row: EndedRun, lane: Lane, executor: str | None, facts: RunFacts, *, samples: bool) -> RunView:
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
        duration=_took(row),
        modified_time=row.ended_at,
        executor_id=str(row.worker_id) if row.worker_id else None,
        attempt_number=_started(row),
        max_attempts=row.max_attempts,
        fence=row.fence,
        error_message=row.error,
        log_url=_log_url(row),
        result=raw(row.result_text),
        payload=raw(row.payload_text),
        replay_of=_replay_of(row),
        losses=row.losses,
        executor=executor,
        created_at=created_at(row),
        lag_from=_lag_from(row, facts),
        snoozes=row.snoozes,
        payload_dropped=row.payload_dropped,
        idempotency_key=_key(row),
        generation=row.generation,
        backfill_id=backfill_of(row.trigger),
        created_by=_creator(row),
        usage=usage_view(row.usage_text, samples=samples),
        etag=run_tag(row.state, row.fence),
        **_of_workflow(row, lane),
    )


def _lag_from(row: Run, facts: RunFacts) -> datetime:
    created = None
    if row.trigger == "at":
        created = uuid7_time(row.run_id) if row.job_id is None else facts.jobs_created.get(row.job_id)
    return lag_from(row.scheduled_for, row.trigger, created_at(row), created)


def fired_late(row: Run) -> bool:
    """Whether the creation of its job decides from when its start lag counts, and its id does not tell it."""
    late = created_at(row) - row.scheduled_for > timedelta(seconds=LATE)
    return row.trigger == "at" and row.job_id is not None and late


def _of_workflow(row: Run, lane: Lane) -> dict[str, Any]:
    """The place of a run in its workflow, if it belongs to one."""
    if lane.task == WORKFLOW_TASK or (row.trigger or "").startswith(RERUN_TRIGGER):
        return {"workflow_run_id": str(flow_of(row.trigger) or row.run_id)}
    flow = flow_of(row.trigger)
    if flow is None:
        return {}
    return {"workflow_run_id": flow, "step": row.name}


def brief_view(row: BriefRun) -> RunBrief:
    """A run with fewer fields than `run_view` shows."""
    ended = row.ended_at is not None
    state = RunState(StoredState(row.state).name) if ended else brief_state(row)
    started = row.started_at if ended or state is RunState.RUNNING else None
    duration = _took(row) if ended else None if started is None else (row.now - started).total_seconds()
    return RunBrief(
        run_id=str(row.run_id),
        status=state.value,
        reason=row.reason if ended else _why_waiting(row, state, None, known=False),
        trigger=_trigger(row),
        scheduled_for=row.scheduled_for,
        created_at=created_at(row),
        start_time=started,
        end_time=row.ended_at,
        duration=duration,
        attempt_number=_started(row),
        max_attempts=row.max_attempts,
        error_message=row.error,
    )


def brief_state(row: BriefRun) -> RunState:
    return shown_state(row.state, row.ready_at, row.started_at, row.now)


def _took(row: EndedRun | BriefRun) -> float | None:
    return None if row.ran_ms is None or row.started_at is None else round(row.ran_ms / 1000, 6)


def _started(row: Run | BriefRun) -> int:
    """How many attempts have started. A claim counts the attempt that it begins, before the worker has started it."""
    held = row.state in (StoredState.RUNNING, StoredState.CANCELLED) and row.worker_id is not None
    return row.attempt - 1 if held and row.started_at is None else row.attempt


def _last_change(row: Run, facts: RunFacts | None) -> datetime:
    """The last change of a run. For a run that has started, this is when its worker was last heard. It rises as long as
    the worker is alive."""
    if isinstance(row, EndedRun):
        return row.ended_at
    if row.state == StoredState.RUNNING and row.worker_id is not None:
        changed = row.started_at or row.claimed_at or row.ready_at
        if facts is None or row.started_at is None or row.worker_id not in facts.heard:
            return changed
        return max(changed, facts.heard[row.worker_id])
    if row.ready_at <= row.now:
        return row.ready_at
    return (facts.ends.get(row.run_id) if facts is not None else None) or created_at(row)


def _why_not_ready(row: LiveRun, state: RunState, facts: RunFacts) -> str | None:
    """What a run that is HELD or WAITING waits for."""
    if state is RunState.HELD:
        return held_by(None if row.held_key is None else facts.lines.get(row.held_key))
    if state is RunState.WAITING and row.run_id in facts.waits:
        return waits_in_words(facts.waits[row.run_id])
    if state is RunState.WAITING and row.run_id in facts.open_waits:
        return facts.open_waits[row.run_id].in_words
    return None


def _why_waiting(row: LiveRun | BriefRun, state: RunState, lacking: str | None, *, known: bool = True) -> str | None:
    """`known`: whether it is known that no worker lacks."""
    if row.cancel_requested_at is not None:
        what = "steps" if row.state == StoredState.WAITING else "processes"
        return f"cancel requested; waiting for its {what} to end"
    if state is RunState.SCHEDULED and row.snoozed and row.ready_at is not None:
        return snoozed_until(row.ready_at)
    if state is RunState.SCHEDULED:
        return backing_off(row.attempt, row.max_attempts, row.losses, row.snoozes)
    if state is RunState.HELD:
        return HELD_BY_A_LIMIT
    if state is RunState.WAITING:
        return FOR_OTHERS
    if state is RunState.QUEUED:
        return ASSIGNED if row.state == StoredState.RUNNING else lacking or (FOR_A_SLOT if known else None)
    return None


def worker_view(row: WorkerRow) -> WorkerView:
    return WorkerView(
        worker_id=str(row.worker_id),
        name=row.name,
        state=WorkerState(row.state).name,
        queues=row.queues,
        tasks=row.tasks,
        slots=row.slots,
        running=min(row.running, row.slots),  # others have ended, and their report is on its way
        holding=row.holding,
        labels=row.labels,
        version=row.version,
        registered_at=row.registered_at,
        last_beat_at=row.last_beat_at,
        shared=row.tenant_id == EVERY_TENANT,
        left_out=row.left_out,
        etag=worker_tag(row.state),
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
        generation=row.generation,
        tries=attempts,
        etag=dead_letter_tag(row.attempts),
    )


def job_id_of(row: _OfJob) -> str:
    """The column job_id is null if it equals run_id."""
    return str(row.run_id) if row.job_id is None else row.job_id


def _creator(row: JobRow | Run) -> Creator | None:
    return None if row.created_by is None else Creator("token", str(row.created_by), row.creator or "")


def _trigger(row: Run | BriefRun) -> str:
    return "schedule" if row.trigger in (None, "at") else row.trigger


def _key(row: Run) -> str:
    return idempotency_key(job_id_of(row), row.scheduled_for, spec_to_show(row.spec_text)[0].repeat, row.generation)


def _log_url(row: Run) -> str | None:
    """The address of the output of its attempts. None for a run that never started."""
    return link_to(f"/v1/runs/{row.run_id}/logs") if _started(row) > 0 else None


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
