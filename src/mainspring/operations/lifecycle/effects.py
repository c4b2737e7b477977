"""Writes the decisions about runs, and returns what follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.domain.limits import is_gate
from mainspring.domain.transitions import Follows, StoredState
from mainspring.kernel import metrics
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.limits.admission import Admitted, hand_over
from mainspring.operations.signals import Signals
from mainspring.store import gates, limits, runs
from mainspring.store.pool import Connection

log = get_logger("lifecycle")

_LOOKED_AT = 100  # lines that one transaction locks


class Changes(msgspec.Struct):
    """The decisions about locked runs: the rows to write, and the gates that requeued and held runs owned."""

    endings: list[runs.Ending] = []
    requeues: list[runs.Requeue] = []
    holds: list[limits.HoldBack] = []
    attempts: list[runs.PastAttempt] = []
    gates: list[int] = []


class Effects(msgspec.Struct):
    """What follows.

    requeued    (lane, seconds until ready)
    dead        the new dead letters
    stops       the workers that must be told to stop a run
    fenced      the runs whose outcome came too late
    following   the ended runs whose `follows` bits are set
    freed       the slots and gates that are given back, and how many of each
    gates       the gates of these, once their marks are written
    admitted    the runs that each lane got because a limit has room
    knocks      the lines to look at after the commit, those of a set together
    asleep      the seconds for which runs back off without a slot, or after which a line must be looked at
    attempts    the attempts of runs with limits that succeeded or failed, by line
    several     whether a run that gave back slots had several of them
    """

    requeued: list[tuple[int, float]] = []
    dead: list[UUID] = []
    stops: set[UUID] = set()
    fenced: list[UUID] = []
    following: list[runs.EndedRow] = []
    freed: Counter[int] = msgspec.field(default_factory=Counter)
    gates: dict[int, int] = {}
    admitted: Counter[int] = msgspec.field(default_factory=Counter)
    knocks: set[frozenset[int]] = set()
    asleep: list[float] = []
    attempts: dict[int, list[tuple[UUID, bool]]] = {}
    several: bool = False

    def give_back(self, slots: Sequence[int]) -> None:
        self.freed.update(slots)
        self.several |= len(slots) > 1

    def attempt_ended(self, run_id: UUID, slots: Iterable[int], *, succeeded: bool) -> None:
        for line in slots:
            self.attempts.setdefault(line, []).append((run_id, succeeded))

    def admit(self, done: Admitted) -> None:
        self.admitted.update(done.lanes)
        self.requeued += done.later
        self.asleep += done.timers
        self.knocks.update(done.again)

    def tell(self, signals: Signals) -> None:
        """After the commit: wake those who wait for what has changed."""
        now: Counter[int] = self.admitted.copy()
        for lane_id, delay in self.requeued:
            if delay:
                signals.ready_later(lane_id, delay)
            else:
                now[lane_id] += 1
        signals.ready(now)
        for worker_id in self.stops:
            signals.stop(worker_id)
        signals.knock(self.knocks)
        for delay in self.asleep:
            signals.knock_later(delay)
        if of_backfills := [run_id for run_id, follows, _ in self.following if (follows or 0) & Follows.BACKFILL]:
            signals.fill(of_backfills)


async def carry_out(connection: Connection, changes: Changes, effects: Effects) -> None:
    """Write the changes. The caller holds the locks of the rows, so all of them match."""
    dead = [item for item in changes.endings if item.state == StoredState.FAILED]
    if changes.endings:
        ended = await runs.end(connection, changes.endings)
        _check(len(ended), len(changes.endings))
        failed = {item.run_id for item in dead if item.before == StoredState.RUNNING and not item.lost}
        after_end(ended, effects, failed=failed)
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
    if changes.holds:
        held = await limits.hold_back(connection, changes.holds)
        _check(len(held), len(changes.holds))
        failed = {item.run_id for item in changes.holds if item.failed}
        for run_id, slots in held:
            effects.give_back(slots)
            if run_id in failed:
                effects.attempt_ended(run_id, slots, succeeded=False)
        effects.asleep += [item.delay for item in changes.holds if item.delay]
    effects.freed.update(changes.gates)
    metrics.dead.inc(len(dead))
    metrics.retries.inc(sum(item.outcome in ("FAILED", "LOST") for item in changes.attempts))


async def hand_over_freed(connection: Connection, effects: Effects) -> None:
    """The last step of a transaction that gave back slots: the heads of the lines get them."""
    freed = {line: count for line, count in effects.freed.items() if not is_gate(line)}
    if not freed:
        return
    effects.admit(await hand_over(connection, freed, attempts=effects.attempts, several=effects.several))


async def admit_knocked(connection: Connection, effects: Effects) -> None:
    """Look at the lines now, before the commit, instead of after it. If there are many, some are left for later."""
    single = sorted(line for group in effects.knocks if len(group) == 1 for line in group)[:_LOOKED_AT]
    if single:
        effects.knocks.difference_update(frozenset({line}) for line in single)
        effects.admit(await hand_over(connection, {}, single, several=True))


def after_end(
    ended: Iterable[runs.EndedRow], effects: Effects, *, succeeded: bool = False, failed: Collection[UUID] = ()
) -> None:
    """Called for every run that ends. A run that nothing follows costs only these checks. `succeeded`: all of them.
    `failed`: those whose last attempt has failed."""
    for run in ended:
        if run[1]:
            effects.following.append(run)
        if run[2] is not None:
            effects.give_back(run[2])
            if succeeded or run[0] in failed:
                effects.attempt_ended(run[0], run[2], succeeded=succeeded)


async def give_back(connection: Connection, effects: Effects) -> None:
    """Give back the gates of runs that were ended or requeued, in their transaction. Others pay only for this check."""
    if effects.freed:
        effects.gates = await gates.give_back(connection, effects.freed)


def _check(written: int, wanted: int) -> None:
    if written != wanted:
        raise Conflict("runs changed meanwhile", code="changed_meanwhile", hint="try again")
