"""The states of jobs and runs, as clients see them."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """SCHEDULED: it backs off before its next attempt. QUEUED: it waits for a worker, or to be started by one. WAITING
    and HELD are reserved. The last four are ends."""

    SCHEDULED = "SCHEDULED"
    WAITING = "WAITING"
    HELD = "HELD"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


class JobState(StrEnum):
    """SCHEDULED: it has yet to fire, or will fire again; a one-time job also while its run waits or backs off. RUNNING
    and FAILED are states of one-time jobs only. A one-time job is FAILED too if it did not run in time (SKIPPED or
    missed). COMPLETED: a one-time job has succeeded, or the schedule of a recurring one has ended."""

    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
