"""Cancel: end waiting runs, and request the end of running ones."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.transitions import StoredState
from mainspring.operations.dependencies.follow import follow_ends
from mainspring.operations.lifecycle.effects import Changes, Effects, carry_out, hand_over_freed
from mainspring.store import runs
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending, LockedRun

WHILE_IT_RAN = "cancelled while it ran"  # of a workflow run, or a mapped step


async def cancel(connection: Connection, live: Sequence[LockedRun], reason: str | None = None) -> Effects:
    """The caller holds the locks. A running run becomes CANCELLED when its worker reports that it has ended
    (`stops`)."""
    cancelled = int(StoredState.CANCELLED)
    effects = Effects()
    endings = [
        Ending(run.run_id, run.fence, cancelled, reason or _reason(run), None, run.state, attempt=run.attempt)
        for run in live
        if run.state != StoredState.RUNNING
    ]
    await carry_out(connection, Changes(endings), effects)
    # Somebody may have passed over a line whose first run was locked here.
    effects.knocks.update(frozenset({run.held_key}) for run in live if run.held_key is not None)
    for run in live:
        if run.state == StoredState.RUNNING:
            worker_id = await runs.request_cancel(connection, run.run_id, run.fence, reason)
            if worker_id is not None:
                effects.stops.add(worker_id)
    await follow_ends(connection, effects, by_marks=True)
    await hand_over_freed(connection, effects)
    return effects


def _reason(run: LockedRun) -> str:
    if run.begun and run.state == StoredState.WAITING:
        return WHILE_IT_RAN
    return "cancelled while it waited for its next attempt" if run.attempt else "cancelled before it started"
