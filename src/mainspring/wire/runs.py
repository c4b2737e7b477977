"""Messages to clients about runs, queues, workers and dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from mainspring.wire.formats import Moment
from mainspring.wire.gates import GateView
from mainspring.wire.states import (
    AttemptOutcomeWord,
    CreatorWord,
    JobEventWord,
    JobStatusWord,
    PriorityWord,
    RunStateWord,
    TimelineStateWord,
    Trigger,
    WorkerStateWord,
)
from mainspring.wire.usage import UsageView


class ProgressView(msgspec.Struct):
    """The progress that a running attempt reports: a fraction from 0 to 1, and a message."""

    fraction: float | None
    message: str | None


class Creator(msgspec.Struct):
    """Who created a job or a run: a token, with its id and name."""

    kind: CreatorWord
    id: str
    name: str


class RunView(msgspec.Struct):
    """A run as clients see it. Durations are in seconds. attempt_number: how many attempts have started; 0 before the
    first one. executor: the name of the worker executor_id, as long as that is known (a day after the worker's end).
    modified_time: of a run that is RUNNING, when its worker was last heard; of others, their last change. losses: how
    many of its attempts were lost with their worker. snoozes: how many of them asked to come back later. Each loss and
    each snooze raises max_attempts by one. payload_dropped: the run has succeeded, and its payload was not kept
    (`keep_payload`). idempotency_key: what its task passes to services that de-duplicate. generation: of the
    job, when the run was created. backfill_id: the backfill that has created it. workflow_run_id: of the run of a step,
    the workflow run that it belongs to (GET /v1/workflow-runs/{run_id}); of a workflow run, its own id. step: the name
    of the step. index: of a member of a mapped step. usage: what the processes of its last attempt have used; null if
    it had none, as an async or thread task. etag: for If-Match. lag_from: from when its start lag counts, which is
    scheduled_for, the creation of a one-time job whose time had passed by then, or that of a run by hand, a replay or a
    run of a backfill. created_by: the token that ran its job by hand, or else the one that created the job; null for
    steps and jobs of SQL."""

    run_id: str
    job_id: str
    name: str
    task: str
    queue: str
    priority: PriorityWord
    status: RunStateWord
    reason: str | None
    trigger: Trigger
    scheduled_for: datetime
    ready_at: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    duration: float | None
    modified_time: datetime
    executor_id: str | None
    attempt_number: int
    max_attempts: int
    fence: int
    error_message: str | None
    log_url: str | None
    result: Any
    payload: Any = None
    progress: ProgressView | None = None
    replay_of: str | None = None
    losses: int = 0
    snoozes: int = 0
    executor: str | None = None
    created_at: datetime | None = None
    lag_from: datetime | None = None
    payload_dropped: bool = False
    idempotency_key: str = ""
    generation: int = 1
    backfill_id: str | None = None
    workflow_run_id: str | None = None
    step: str | None = None
    index: int | None = None
    usage: UsageView | None = None
    created_by: Creator | None = None
    etag: str = ""


class RunBrief(msgspec.Struct):
    """A run as its job shows it. The fields are those of a run. In lists an error is cut after 2,000 characters."""

    run_id: str
    status: RunStateWord
    reason: str | None
    trigger: Trigger
    scheduled_for: datetime
    created_at: datetime
    start_time: datetime | None
    end_time: datetime | None
    duration: float | None
    attempt_number: int
    max_attempts: int
    error_message: str | None


class RunList(msgspec.Struct):
    """A page of runs. `searched_to`: the page is short because a filter matches few of very many runs; those that were
    created since then have been searched, and `next` continues there."""

    runs: list[RunView]
    next: str | None = None
    searched_to: datetime | None = None


class RunListRow(msgspec.Struct):
    """A run as a list with `view=row` shows it: without payload and result. The fields are those of a run. An error is
    cut after 200 characters."""

    run_id: str
    job_id: str
    name: str
    task: str
    queue: str
    status: RunStateWord
    reason: str | None
    trigger: Trigger
    scheduled_for: datetime
    created_at: datetime | None
    lag_from: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    duration: float | None
    attempt_number: int
    max_attempts: int
    error_message: str | None
    executor_id: str | None
    executor: str | None
    progress: ProgressView | None
    generation: int
    workflow_run_id: str | None
    step: str | None
    created_by: Creator | None


class RunRows(msgspec.Struct):
    """The response to `GET /v1/runs?view=row`."""

    runs: list[RunListRow]
    next: str | None = None
    searched_to: datetime | None = None


class JobStatus(msgspec.Struct):
    """The response to `GET /v1/jobs/{id}/status`. error_message: the error of the last attempt of the latest run."""

    job_id: str
    status: JobStatusWord
    latest_run: RunView | None
    error_message: str | None = None


class JobTimelineEntry(msgspec.Struct, omit_defaults=True):
    """One step in the life of a job. event: RUN for each of its runs, at the time at which it was created; CREATED; the
    last of CHANGED, PAUSED and CANCELLED; MISSED for fires that did not run, as a range with count and reason. Of
    earlier generations only RUN and MISSED are shown."""

    at: datetime
    event: JobEventWord
    generation: int
    run: RunBrief | None = None
    version: int | None = None
    reason: str | None = None
    first: datetime | None = None
    last: datetime | None = None
    count: int | None = None


class JobTimeline(msgspec.Struct):
    """One page of the timeline of a job."""

    entries: list[JobTimelineEntry]
    next: str | None = None


class Why(msgspec.Struct):
    """The response to `GET /v1/runs/{id}/why`: one sentence."""

    run_id: str
    status: RunStateWord
    why: str


class TimelineEntry(msgspec.Struct):
    """One step in the history of a run. In addition to the states of runs there are SUBMITTED, FIRED, RETURNED, LOST
    and SNOOZED (ends of attempts that another attempt followed), CANCEL_REQUESTED, REPLAYED, and LEFT_OUT for attempts
    that are not shown, because there were too many. `duration` is that of the ended attempt, and `usage` what its
    processes used, without samples."""

    at: datetime
    state: TimelineStateWord
    attempt: int | None = None
    worker_id: str | None = None
    worker_name: str | None = None
    node_id: str | None = None
    reason: str | None = None
    error: str | None = None
    duration: float | None = None
    usage: UsageView | None = None


class QueueView(msgspec.Struct):
    """A queue: waiting and running runs, the age of the oldest waiting run, the runs that ended per second over the
    last minute, and how many of these succeeded and failed. paused: no run of it starts, and `paused_why` says whether
    the queue, the tenant or everything is paused, and by whom. limits: what was set for this queue, with its use now;
    null if nothing was. held: the runs that wait for room in a limit, or in a quota of the tenant (held_by_quota).
    version: for If-Match. behind: only in the answer for one queue, sentences that say why runs wait; none if nothing
    keeps them."""

    name: str
    depth: int
    scheduled: int
    running: int
    oldest_seconds: float | None
    rate: float
    workers: int
    succeeded: int = 0
    failed: int = 0
    held: int = 0
    paused: bool = False
    paused_why: str | None = None
    limits: GateView | None = None
    version: int = 1
    held_by_quota: int = 0
    behind: list[str] | UnsetType = UNSET


class QueueList(msgspec.Struct, omit_defaults=True):
    """left_out: how many queues the list does not show, because there are too many. taken_at: when the runs were
    counted; left out if that was for this request. With very many runs they are counted every few seconds."""

    queues: list[QueueView]
    left_out: int = 0
    taken_at: datetime | None = None


class WorkerView(msgspec.Struct):
    """A worker. running: how many runs it has started. holding: how many runs it holds in all, including those. shared:
    it takes runs of every tenant, and both numbers count the runs of all tenants. left_out: fields that are empty in a
    list because they are large; GET /v1/workers/{worker_id} shows them. etag: for If-Match."""

    worker_id: str
    name: str
    state: WorkerStateWord
    queues: list[str]
    tasks: list[str]
    slots: int
    running: int
    labels: dict[str, str]
    version: str
    registered_at: datetime
    last_beat_at: datetime | None
    shared: bool = False
    holding: int = 0
    left_out: list[str] = []
    etag: str = ""


class WorkerList(msgspec.Struct, omit_defaults=True):
    """more: there are workers that the list does not show, because there are too many."""

    workers: list[WorkerView]
    more: bool = False


class AttemptView(msgspec.Struct):
    """One attempt of a run and its outcome: FAILED, LOST with its worker, SNOOZED, or RETURNED unstarted."""

    attempt: int
    outcome: AttemptOutcomeWord
    worker_id: str | None
    worker_name: str | None
    started_at: datetime | None
    ended_at: datetime
    error: str | None


class DeadLetterView(msgspec.Struct):
    """A run that failed after its last attempt. `tries` is only present when a single dead letter is requested. etag:
    for If-Match."""

    run_id: str
    job_id: str
    name: str
    task: str
    queue: str
    attempts: int
    error_message: str | None
    payload: Any
    scheduled_for: datetime
    died_at: datetime
    reason: str | None = None
    replay_of: str | None = None
    generation: int = 1
    tries: list[AttemptView] | None = None
    etag: str = ""


class DeadLetterList(msgspec.Struct):
    dead_letters: list[DeadLetterView]
    next: str | None = None


class ReplayRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/dead-letters/{id}:replay` and `/v1/runs/{id}:retry`. It may be empty. A payload replaces
    that of the run."""

    payload: msgspec.Raw = msgspec.Raw()


class DeadLetterChoice(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /v1/dead-letters:replay` and `:discard`: which dead letters. At least one filter must be given,
    or `all` must be true. since and until are compared with `died_at`. limit is at most 100,000. payload is only for
    replays."""

    job: str | None = None
    task: str | None = None
    queue: str | None = None
    error: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    all: bool = False
    limit: int | None = None
    payload: msgspec.Raw = msgspec.Raw()


class Replayed(msgspec.Struct):
    """run_ids: the first 1,000 new runs. left: how many were not replayed, by reason. more: the limit was reached, and
    further dead letters match."""

    replayed: int
    run_ids: list[str]
    left: dict[str, int] = {}
    more: bool = False


class Discarded(msgspec.Struct):
    discarded: int
    more: bool = False


class Health(msgspec.Struct):
    status: str
    version: str


class Readiness(msgspec.Struct):
    status: str
    checks: dict[str, str]
