"""Workflows as steps: a step that runs another workflow, and waits for that run, its child."""

from __future__ import annotations

from enum import IntEnum

MOST_LEVELS = 10  # of workflows in each other
PARENT_TRIGGER = "parent:"  # parent:<workflow run>:<number of the step run>


class ChildState(IntEnum):
    """The number in `child_runs.state`. TO_START: the child is to be created. RUNNING: it is alive. ENDED: the step is
    to end as it has. TO_CANCEL: the step has ended otherwise, and the child is to be cancelled. OVER: nothing is to
    do."""

    TO_START = 1
    RUNNING = 2
    ENDED = 3
    TO_CANCEL = 4
    OVER = 5


def parent_of(trigger: str | None) -> str | None:
    """The workflow run whose step has started a run with this trigger. None if it is not such a run."""
    found = (trigger or "").removeprefix(PARENT_TRIGGER)
    return None if found == (trigger or "") else found.partition(":")[0]
