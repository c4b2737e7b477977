"""Rescue: take runs from a lost worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from mainspring.domain.losses import Death
from mainspring.operations.lifecycle.decide import Random, decide
from mainspring.operations.lifecycle.dispatch import release, runs_ended
from mainspring.operations.lifecycle.effects import Effects, RunChanges, apply_changes
from mainspring.store.pool import Connection
from mainspring.store.runs import HeldRun
from mainspring.wire.exchange import Outcome


async def rescue(
    connection: Connection,
    held: Sequence[HeldRun],
    random: Random,
    *,
    started: Collection[tuple[UUID, int]] | None = None,
    death: Death | None = None,
) -> Effects:
    """Decide the next attempt, FAILED if at most once, or CANCELLED if requested. The caller holds the locks.

    `started`: the exclusive runs (run, fence) that the watchdog of the worker saw start. An exclusive run that is not
    among them has not started: it is requeued like one that was handed back. None means that there is no evidence; then
    every run counts as started. Other runs always count as started. `death`: how the worker died, if its parent tells.
    """
    changes, effects = RunChanges(), Effects()
    for run in held:
        if started is not None and run.exclusive and (run.run_id, run.fence) not in started:
            unstarted = Outcome(run.run_id, run.fence, "RETURNED")
            decide(run, unstarted, random, changes)
        else:
            lost = Outcome(run.run_id, run.fence, "FAILED", error="worker lost")
            decide(run, lost, random, changes, lost=True, death=death)
    await apply_changes(connection, changes, effects)
    await runs_ended(connection, effects)
    await release(connection, effects)
    return effects
