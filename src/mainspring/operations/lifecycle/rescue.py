"""Rescue: take runs from a lost worker."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.operations.lifecycle.decide import Random, decide
from mainspring.operations.lifecycle.effects import Changes, Effects, carry_out
from mainspring.store.pool import Connection
from mainspring.store.runs import HeldRun
from mainspring.wire.exchange import Outcome


async def rescue(connection: Connection, held: Sequence[HeldRun], random: Random) -> Effects:
    """Decide the next attempt, FAILED if at most once, or CANCELLED if requested. The caller holds the locks."""
    changes, effects = Changes(), Effects()
    for run in held:
        lost = Outcome(run.run_id, run.fence, "FAILED", error="worker lost")
        decide(run, lost, random, changes, lost=True)
    await carry_out(connection, changes, effects)
    return effects
