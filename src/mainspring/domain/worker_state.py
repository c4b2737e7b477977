"""The states of a worker incarnation. LOST and STOPPED are final."""

from __future__ import annotations

from enum import IntEnum


class WorkerState(IntEnum):
    """The number in `workers.state`."""

    LIVE = 1
    DRAINING = 2
    LOST = 3
    STOPPED = 4


WORKER_LABEL = "mainspring.worker"  # a label that every worker has: its id
