"""Why runs of a queue wait, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.texts import sentence
from mainspring.domain.worker_state import WorkerState
from mainspring.operations.limits.gate_views import closed_in_words
from mainspring.store.gates import GateState
from mainspring.store.workers import WorkerRow
from mainspring.wire.runs import QueueView


def behind(
    view: QueueView,
    gates: Sequence[GateState],
    takers: Sequence[WorkerRow],
    untaken: Sequence[tuple[str, int]],
) -> list[str]:
    """What keeps the waiting runs of the queue, most important first. `gates`: those before its runs. `takers`: the
    workers that take from it. `untaken`: how many of its runs no worker takes, by the reason."""
    if not view.depth and not view.held:
        return []
    found = []
    if view.paused_why is not None:
        found.append(view.paused_why)
    if not takers:
        found.append("no worker takes from this queue")
    elif all(worker.state != WorkerState.LIVE for worker in takers):
        found.append("every worker that takes from this queue is draining")
    found += [f"{_runs(number)} for a worker: {reason}" for reason, number in untaken]
    if (closed := closed_in_words(gates)) is not None:
        found.append(closed)
    if by_limits := view.held - view.held_by_quota:
        found.append(f"{_runs(by_limits)} for room in a limit of their job or task")
    live = [worker for worker in takers if worker.state == WorkerState.LIVE]
    slots, held = sum(worker.slots for worker in live), sum(worker.holding for worker in live)
    if live and held >= slots:
        whose = "worker that takes" if len(live) == 1 else f"{len(live)} workers that take"
        found.append(f"all {slots} slots of the {whose} from this queue are busy")
    return [sentence(text) for text in found]


def _runs(number: int) -> str:
    return "1 run waits" if number == 1 else f"{number} runs wait"
