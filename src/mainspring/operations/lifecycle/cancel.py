"""Cancel: end waiting runs, and request the end of running ones."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.transitions import Follows, StoredState
from mainspring.domain.workflows.flow import CANCELLED_WHILE_IT_RAN
from mainspring.operations.lifecycle.dispatch import CONTAINERS_STOPPED, release, runs_ended
from mainspring.operations.lifecycle.effects import Effects, RunChanges, apply_changes
from mainspring.operations.lifecycle.events import ContainerStopped
from mainspring.store import runs
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending, LockedRun


async def cancel(
    connection: Connection, live: Sequence[LockedRun], reason: str | None = None, *, of_stopped: bool = False
) -> Effects:
    """The caller holds the locks. A running run becomes CANCELLED when its worker reports that it has ended (`stops`),
    and a workflow run when its last step has. `of_stopped`: they are steps of such a workflow run."""
    cancelled = int(StoredState.CANCELLED)
    effects = Effects(waiting_locked=True)
    endings = [
        Ending(run.run_id, run.fence, cancelled, reason or _reason(run), None, run.state, attempt=run.attempt)
        for run in live
        if run.state != StoredState.RUNNING and not run.container
    ]
    await apply_changes(connection, RunChanges(endings), effects)
    # An admission may have passed over a line whose first run was locked here.
    if left := {run.held_key for run in live if run.held_key is not None}:
        effects.given_back.left |= left
    if running := [(run.run_id, run.fence) for run in live if run.state == StoredState.RUNNING]:
        follows = int(Follows.STOPS) if of_stopped else 0
        effects.stops |= await runs.request_cancels(connection, running, reason, follows)
    if containers := [run for run in live if run.container]:
        stopped = [ContainerStopped(run.run_id, run.fence, reason or _reason(run), False) for run in containers]
        await CONTAINERS_STOPPED.happened(connection, stopped, effects)
    await runs_ended(connection, effects)
    await release(connection, effects)
    return effects


def _reason(run: LockedRun) -> str:
    if run.begun and run.state == StoredState.WAITING:
        return CANCELLED_WHILE_IT_RAN
    return "cancelled while it waited for its next attempt" if run.attempt else "cancelled before it started"
