"""The states of runs and jobs, and the transitions between them. The state diagram in the docs is generated from it.

SQL takes the numbers of the states from here (store/queries.py). The statement `end_runs` takes the transitions that it
may make from here. Every other statement that writes runs declares its transitions. tests/store/test_moves.py compares
them with this table, and with what the statement does to a run in each state. `job_may_follow` checks changes of jobs.

A run that waits for its next attempt is stored as QUEUED with a `ready_at` in the future. It is shown as SCHEDULED
until then. No statement has to change its state at that time. A claimed run is stored as RUNNING. It is shown as QUEUED
until its worker tells that it has started, which it does for runs that last longer than a moment.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, IntFlag

from mainspring.wire.states import JobState
from mainspring.wire.states import RunState as RunState

JobStatus = JobState


UNKNOWN_STATE = -1  # of a run that is not in the history any more


class StoredState(IntEnum):
    """The number in `runs.state` and `run_history.state`."""

    QUEUED = 1
    RUNNING = 2
    WAITING = 3
    HELD = 4
    SUCCESS = 10
    FAILED = 11
    CANCELLED = 12
    SKIPPED = 13


SHOWN_SCHEDULED = 0  # no run is stored with it; SQL shows it for one that backs off
SHOWN_ASSIGNED = 5  # nor with it: the fragment listed_state shows it for one that is claimed and has not started


class StoredJobStatus(IntEnum):
    """The number in `jobs.status`."""

    SCHEDULED = 1
    PAUSED = 2
    CANCELLED = 3
    COMPLETED = 4


class Follows(IntFlag):
    """The bits in `runs.follows`: what follows the end of a run. The column is null if nothing follows.

    EDGES    joins count it (`runs.feeds`)
    STEP     it is kept with its workflow run
    RESULT   so is its result
    FLOW     it is a workflow run
    JOBS     other jobs depend on its job
    LAST     it is a step that no other step waits for
    STOPS    its workflow run is being stopped, and ends with the last of these
    WAIT     it waits without a slot (table `waits`)
    CHILD    a step of another workflow run waits for it (table `child_runs`)
    """

    EDGES = 1
    LIMIT = 2
    NOTICE = 4
    BACKFILL = 8
    STEP = 16
    RESULT = 32
    FLOW = 64
    JOBS = 128
    LAST = 256
    STOPS = 512
    WAIT = 1024
    CHILD = 2048


ENDED = frozenset({StoredState.SUCCESS, StoredState.FAILED, StoredState.CANCELLED, StoredState.SKIPPED})
LIVE = frozenset(StoredState) - ENDED

_S = StoredState
TRANSITIONS: dict[StoredState, dict[StoredState, str]] = {
    _S.WAITING: {
        _S.QUEUED: "its rule is met",
        _S.HELD: "its rule is met, and it has limits",
        _S.SUCCESS: "the last of its steps or members has ended, or what it waited for has come",
        _S.FAILED: "one of its steps or members failed, its time was over, or an upstream failure fails it",
        _S.SKIPPED: "its rule cannot be met",
        _S.CANCELLED: "cancelled while waiting",
    },
    _S.HELD: {
        _S.QUEUED: "the limit has room",
        _S.FAILED: "its run_timeout passed while it was held",
        _S.SKIPPED: "it was not started in time",
        _S.CANCELLED: "cancelled while held",
    },
    _S.QUEUED: {
        _S.RUNNING: "claimed by a worker",
        _S.WAITING: "its steps begin",
        _S.HELD: "its circuit breaker opened",
        _S.FAILED: "its run_timeout passed while it waited",
        _S.SKIPPED: "it was not started in time",
        _S.CANCELLED: "cancelled before it started",
    },
    _S.RUNNING: {
        _S.QUEUED: "failed with tries left, snoozed, rescued from a lost worker, or handed back unstarted",
        _S.HELD: "it is tried again, and gives up its slots meanwhile",
        _S.WAITING: "the service that it has called answers later",
        _S.SUCCESS: "reported",
        _S.FAILED: "reported without tries left, lost too often, or lost under at-most-once",
        _S.CANCELLED: "its worker confirmed that it is gone",
    },
}
INITIAL_STATES = frozenset({_S.QUEUED, _S.RUNNING, _S.WAITING, _S.HELD, _S.SKIPPED})

_J = StoredJobStatus
JOB_TRANSITIONS: dict[StoredJobStatus, dict[StoredJobStatus, str]] = {
    _J.SCHEDULED: {_J.PAUSED: "pause", _J.CANCELLED: "delete", _J.COMPLETED: "its schedule has ended"},
    _J.PAUSED: {_J.SCHEDULED: "resume", _J.CANCELLED: "delete"},
    _J.COMPLETED: {_J.SCHEDULED: "a new schedule", _J.CANCELLED: "delete"},
    _J.CANCELLED: {_J.SCHEDULED: "resume of a job that recurs"},
}


def may_follow(before: StoredState, after: StoredState) -> bool:
    return after in TRANSITIONS.get(before, {})


def job_may_follow(before: StoredJobStatus, after: StoredJobStatus) -> bool:
    return after in JOB_TRANSITIONS[before]


def shown_state(state: int, ready_at: datetime | None, started_at: datetime | None, now: datetime) -> RunState:
    """The state as users see it. A claimed run is shown as QUEUED until it is known to have started. A workflow run and
    a mapped step wait for their steps and members: they are shown as RUNNING. The fragment shown_state in
    store/sql/fragments.sql says the same in SQL."""
    if state in (StoredState.QUEUED, StoredState.HELD) and ready_at is not None and ready_at > now:
        return RunState.SCHEDULED
    if state == StoredState.RUNNING and started_at is None:
        return RunState.QUEUED
    if state == StoredState.WAITING and started_at is not None:
        return RunState.RUNNING
    return RunState(StoredState(state).name)


def shown_of_listed(state: int, *, quota_holds: bool) -> int:
    """The number of the state that users see, from that of the fragment listed_state. `quota_holds`: whether a quota of
    the tenant holds what is ready."""
    if state == SHOWN_ASSIGNED:
        return StoredState.QUEUED
    return StoredState.HELD if quota_holds and state == StoredState.QUEUED else state


def mermaid() -> str:
    """The state diagram for the docs."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state.name}" for state in sorted(INITIAL_STATES)]
    for before, following in TRANSITIONS.items():
        lines += [f"    {before.name} --> {after.name}: {why}" for after, why in following.items()]
    lines += [f"    {state.name} --> [*]" for state in sorted(ENDED)]
    return "\n".join(lines)
