"""Cancel: end waiting runs, and request the end of running ones."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.transitions import StoredState
from mainspring.operations.lifecycle.effects import Changes, Effects, carry_out
from mainspring.store import runs
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending, LockedRun


async def cancel(connection: Connection, live: Sequence[LockedRun]) -> Effects:
    """The caller holds the locks. A running run becomes CANCELLED when its worker reports that it has ended
    (`stops`)."""
    cancelled = int(StoredState.CANCELLED)
    effects = Effects()
    endings = [
        Ending(run.run_id, run.fence, cancelled, "cancelled before it started", None, run.state)
        for run in live
        if run.state != StoredState.RUNNING
    ]
    await carry_out(connection, Changes(endings), effects)
    for run in live:
        if run.state == StoredState.RUNNING:
            worker_id = await runs.request_cancel(connection, run.run_id, run.fence)
            if worker_id is not None:
                effects.stops.add(worker_id)
    return effects
