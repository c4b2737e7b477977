"""Expire: end runs that waited until their run_timeout had passed."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.job import spec_from_text
from mainspring.domain.transitions import StoredState
from mainspring.operations.lifecycle.decide import out_of_time
from mainspring.operations.lifecycle.effects import Changes, Effects, carry_out
from mainspring.store.pool import Connection
from mainspring.store.runs import Ending, OverdueRun


async def expire(connection: Connection, overdue: Sequence[OverdueRun]) -> Effects:
    """They become FAILED; the caller holds the locks."""
    failed = int(StoredState.FAILED)
    endings = [
        Ending(
            run.run_id,
            run.fence,
            failed,
            out_of_time(spec_from_text(run.spec_text)),
            None,
            run.state,
            attempt=run.attempt,
        )
        for run in overdue
    ]
    effects = Effects()
    await carry_out(connection, Changes(endings), effects)
    return effects
