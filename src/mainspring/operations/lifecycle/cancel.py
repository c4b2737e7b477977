"""Cancel: end waiting runs, and request the end of running ones."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.transitions import Follows, StoredState
from mainspring.domain.workflows.flow import CANCELLED_WHILE_IT_RAN, FlowState
from mainspring.operations.dependencies.follow import follow_ends
from mainspring.operations.lifecycle.effects import Changes, Effects, carry_out, hand_over_freed
from mainspring.store import runs, workflows
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending, LockedRun


async def cancel(
    connection: Connection, live: Sequence[LockedRun], reason: str | None = None, *, of_stopped: bool = False
) -> Effects:
    """The caller holds the locks. A running run becomes CANCELLED when its worker reports that it has ended (`stops`),
    and a workflow run when its last step has (`stopped`). `of_stopped`: they are steps of such a workflow run."""
    cancelled = int(StoredState.CANCELLED)
    effects = Effects()
    endings = [
        Ending(run.run_id, run.fence, cancelled, reason or _reason(run), None, run.state, attempt=run.attempt)
        for run in live
        if run.state != StoredState.RUNNING and not run.container
    ]
    await carry_out(connection, Changes(endings), effects)
    # Somebody may have passed over a line whose first run was locked here.
    effects.knocks.update(frozenset({run.held_key}) for run in live if run.held_key is not None)
    if running := [(run.run_id, run.fence) for run in live if run.state == StoredState.RUNNING]:
        follows = int(Follows.STOPS) if of_stopped else 0
        effects.stops |= await runs.request_cancels(connection, running, reason, follows)
    if flows := [(run.run_id, run.fence, reason or _reason(run)) for run in live if run.container]:
        effects.stopped.update(await workflows.stop(connection, flows, FlowState.CANCELLING))
    await follow_ends(connection, effects, by_marks=True)
    await hand_over_freed(connection, effects)
    return effects


def _reason(run: LockedRun) -> str:
    if run.begun and run.state == StoredState.WAITING:
        return CANCELLED_WHILE_IT_RAN
    return "cancelled while it waited for its next attempt" if run.attempt else "cancelled before it started"
