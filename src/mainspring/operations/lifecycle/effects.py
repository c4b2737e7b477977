"""Writes the decisions about runs, and returns what follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.domain.transitions import StoredState
from mainspring.kernel import metrics
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.store import gates, runs
from mainspring.store.pool import Connection

log = get_logger("lifecycle")


class Changes(msgspec.Struct):
    """The decisions about locked runs: the rows to write."""

    endings: list[runs.Ending] = []
    requeues: list[runs.Requeue] = []
    attempts: list[runs.PastAttempt] = []


class Effects(msgspec.Struct):
    """What follows.

    requeued    (lane, seconds until ready)
    dead        the new dead letters
    stops       the workers that must be told to stop a run
    fenced      the runs whose outcome came too late
    following   the ended runs whose `follows` bits are set; there are none yet
    freed       the slots and gates that ended runs held, and the gates of requeued ones, and how many of each
    gates       the gates of these that were given back
    """

    requeued: list[tuple[int, float]] = []
    dead: list[UUID] = []
    stops: set[UUID] = set()
    fenced: list[UUID] = []
    following: list[runs.EndedRow] = []
    freed: Counter[int] = msgspec.field(default_factory=Counter)
    gates: dict[int, int] = {}


async def carry_out(connection: Connection, changes: Changes, effects: Effects) -> None:
    """Write the changes. The caller holds the locks of the rows, so all of them match."""
    dead = [item for item in changes.endings if item.state == StoredState.FAILED]
    if changes.endings:
        ended = await runs.end(connection, changes.endings)
        _check(len(ended), len(changes.endings))
        after_end(ended, effects)
        effects.dead += [item.run_id for item in dead]
        slices = TimeSlices()
        for item in dead:
            log.warning("run failed for good", run=str(item.run_id), attempt=item.attempt, reason=item.reason)
            if slices.over:
                await slices.pause()
    if changes.attempts:
        await runs.record_attempts(connection, changes.attempts)
    if changes.requeues:
        delays = {item.run_id: item.delay for item in changes.requeues}
        requeued = await runs.requeue(connection, changes.requeues)
        _check(len(requeued), len(changes.requeues))
        effects.requeued += [(run.lane_id, delays[run.run_id]) for run in requeued]
        for again in changes.requeues:
            if again.gates is not None:
                effects.freed.update(again.gates)
    metrics.dead.inc(len(dead))
    metrics.retries.inc(sum(item.outcome in ("FAILED", "LOST") for item in changes.attempts))


def after_end(ended: Iterable[runs.EndedRow], effects: Effects) -> None:
    """Called for every run that ends. A run that nothing follows costs only these checks."""
    for run in ended:
        if run[1]:
            effects.following.append(run)
        if run[2] is not None:
            effects.freed.update(run[2])


async def give_back(connection: Connection, effects: Effects) -> None:
    """Give back the gates of runs that were ended or requeued, in their transaction. Others pay only for this check."""
    if effects.freed:
        effects.gates = await gates.give_back(connection, effects.freed)


def _check(written: int, wanted: int) -> None:
    if written != wanted:
        raise Conflict("runs changed meanwhile", code="changed_meanwhile", hint="try again")
