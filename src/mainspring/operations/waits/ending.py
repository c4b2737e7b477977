"""How waits end: the run ends in the transaction that has locked it, so each wait ends once."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from mainspring.domain.transitions import StoredState
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.effects import Effects, RunChanges, after_end, apply_changes, check_count
from mainspring.store import joins
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending


class WaitEnd(msgspec.Struct, frozen=True):
    """How a wait ends. state: SUCCESS with a result as JSON, or another with a reason."""

    run_id: UUID
    fence: int
    attempt: int
    state: StoredState = StoredState.SUCCESS
    result: str | None = None
    reason: str | None = None


async def end_waits(connection: Connection, ends: Sequence[WaitEnd]) -> Effects:
    """End these waits. The caller has locked the runs as WAITING, with these fences, and their waits are open."""
    effects = Effects()
    results = {end.run_id: end.result for end in ends if end.state is StoredState.SUCCESS}
    if results:
        rows = await joins.succeed(connection, results)
        check_count(len(rows), len(results))
        after_end(rows, effects, succeeded=True, results=results)
    before = int(StoredState.WAITING)
    endings = [
        Ending(end.run_id, end.fence, int(end.state), end.reason, None, before, attempt=end.attempt)
        for end in ends
        if end.state is not StoredState.SUCCESS
    ]
    if endings:
        await apply_changes(connection, RunChanges(endings), effects)
    await runs_ended(connection, effects)
    await release(connection, effects)
    return effects
