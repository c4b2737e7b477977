"""Workflow runs that were started: their states, and the ids of their step runs.

The runs of a workflow run's steps have ids with the same first 96 bits, the prefix. The last 32 bits are the number of
the run. So all of them are one range of the primary key.
"""

from __future__ import annotations

from enum import IntEnum
from uuid import UUID

from mainspring.domain.workflows.rules import JOIN_BLOCK

STEP_TRIGGER = "step:"  # step:<workflow run>:<number>
RERUN_TRIGGER = "rerun:"  # rerun:<workflow run>:<number of the rerun>
WORKFLOW_TASK = "mainspring.workflow"  # of the lanes of workflow runs; no worker takes from them
WAIT_TASK = "mainspring.wait"  # of steps that wait: no worker takes them either
SERVER_TASKS = frozenset({WORKFLOW_TASK, WAIT_TASK})
CANCELLED_WHILE_IT_RAN = "cancelled while it ran"  # of a workflow run, or a mapped step, if no reason is given
_LAST_32_BITS = (1 << 32) - 1
_FIRST_OF_MAPS = JOIN_BLOCK // 2  # joins of members have the numbers from here on


class FlowState(IntEnum):
    """STARTING: its step runs are being created. CANCELLING, TIMING_OUT: those that are left are being cancelled, and
    its own run ends CANCELLED or FAILED with the last of them. STOPPING: an older server has ended its own run
    before."""

    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    ENDED = 4
    CANCELLING = 5
    TIMING_OUT = 6


BEING_STOPPED = (FlowState.STOPPING, FlowState.CANCELLING, FlowState.TIMING_OUT)
ALIVE = frozenset(FlowState) - {FlowState.STOPPING, FlowState.ENDED}  # its own run has not ended


class FanoutState(IntEnum):
    """READY: its members are not known yet. CLOSED: no more of them are created."""

    READY = 1
    EXPANDING = 2
    CLOSED = 3


def flow_of(trigger: str | None) -> str | None:
    """The workflow run to which a run with this trigger belongs. None if it is not of a step or a rerun."""
    kind, _, rest = (trigger or "").partition(":")
    return rest.partition(":")[0] if f"{kind}:" in (STEP_TRIGGER, RERUN_TRIGGER) else None


def prefix_of(some_id: UUID) -> UUID:
    return UUID(int=some_id.int & ~_LAST_32_BITS)


def number_of(run_id: UUID) -> int:
    return run_id.int & _LAST_32_BITS


def run_in(prefix: UUID, number: int) -> UUID:
    """The id of the step run with this number."""
    return UUID(int=prefix.int | number)


def last_in(prefix: UUID) -> UUID:
    return UUID(int=prefix.int | _LAST_32_BITS)


def map_join(block: int, number: int) -> int:
    """The join of the members of a mapped step: the nth one of the workflow run."""
    return block * JOIN_BLOCK + _FIRST_OF_MAPS + number


def is_of_map(join_id: int) -> bool:
    return join_id % JOIN_BLOCK >= _FIRST_OF_MAPS


def is_final(join_id: int) -> bool:
    """Whether it is the first join of its block: of a workflow run, it counts the ends of all steps."""
    return join_id % JOIN_BLOCK == 0


def ends_a_container(join_id: int) -> bool:
    """Whether one run waits for it: a workflow run or a mapped step, which ends when all that it counts has ended."""
    return is_of_map(join_id) or is_final(join_id)


def step_job_id(workflow_id: str, step: str) -> str:
    """The job of the runs of a step. The id of another job has no @."""
    return f"{step}@{workflow_id}"


def workflow_of(job_id: str) -> str | None:
    """The workflow to whose steps the runs of this job belong. None if it is another job."""
    step, at, workflow_id = job_id.partition("@")
    return workflow_id if step and at and workflow_id else None
