"""Messages about runs, queues, workers and dead letters: what clients see."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class ProgressView(msgspec.Struct):
    """How far a running attempt says it has come: a share from 0 to 1, and words."""

    fraction: float | None
    message: str | None


class RunView(msgspec.Struct):
    """A run as clients see it; durations in seconds."""

    run_id: str
    job_id: str
    name: str
    task: str
    queue: str
    priority: str
    status: str
    reason: str | None
    trigger: str
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


class RunList(msgspec.Struct):
    runs: list[RunView]
    next: str | None = None


class JobStatus(msgspec.Struct):
    """Answer to `GET /v1/jobs/{id}/status`."""

    job_id: str
    status: str
    latest_run: RunView | None


class Why(msgspec.Struct):
    """Answer to `GET /v1/runs/{id}/why`: one sentence."""

    run_id: str
    status: str
    why: str


class QueueView(msgspec.Struct):
    """What waits, what runs, the age of the oldest, and runs ended per second over the last minute."""

    name: str
    depth: int
    scheduled: int
    running: int
    oldest_seconds: float | None
    rate: float
    workers: int


class QueueList(msgspec.Struct):
    queues: list[QueueView]


class WorkerView(msgspec.Struct):
    worker_id: str
    name: str
    state: str
    queues: list[str]
    tasks: list[str]
    slots: int
    running: int
    labels: dict[str, str]
    version: str
    registered_at: datetime
    last_beat_at: datetime | None


class WorkerList(msgspec.Struct):
    workers: list[WorkerView]


class DeadLetterView(msgspec.Struct):
    """A run that failed for good, with what is needed to understand it."""

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


class DeadLetterList(msgspec.Struct):
    dead_letters: list[DeadLetterView]
    next: str | None = None


class Health(msgspec.Struct):
    status: str
    version: str


class Readiness(msgspec.Struct):
    status: str
    checks: dict[str, str]
