"""Writes the decisions about runs, and returns what follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict
from mainspring.domain.limits import is_gate
from mainspring.domain.transitions import Follows, StoredState
from mainspring.kernel import metrics
from mainspring.kernel.logs import get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.limits.admission import Admitted, hand_over
from mainspring.operations.signals import FlowNews, Signals
from mainspring.store import gates, limits, runs
from mainspring.store.pool import Connection

log = get_logger("lifecycle")

_LOOKED_AT = 100  # lines that one transaction locks
_BACKFILL, _RESULT = int(Follows.BACKFILL), int(Follows.RESULT)  # plain numbers: an `&` of an enum takes longer
NO_ENDINGS: Mapping[UUID, runs.Ending] = {}
NO_RESULTS: Mapping[UUID, str | None] = {}


class Changes(msgspec.Struct):
    """The decisions about locked runs: the rows to write, and the gates that requeued and held runs owned."""

    endings: list[runs.Ending] = []
    requeues: list[runs.Requeue] = []
    holds: list[limits.HoldBack] = []
    attempts: list[runs.PastAttempt] = []
    gates: list[int] = []


class End(msgspec.Struct):
    """The end of a run that something follows. result: None if it is not kept. cause: the step whose failure is the
    reason that it was not run. complete: of a workflow run, whether all its steps have ended."""

    run_id: UUID
    follows: int
    feeds: list[int] | None
    state: int
    reason: str | None = None
    result: str | None = None
    cause: str | None = None
    complete: bool = False


class Effects(msgspec.Struct):
    """What follows.

    requeued    (lane, seconds until ready)
    dead        the new dead letters
    stops       the workers that must be told to stop a run
    fenced      the runs whose outcome came too late
    following   the ended runs whose `follows` bits are set
    ends        how these have ended, until `follow` has dealt with it
    folds       the joins that have marks
    maps        the joins of members that have counted some
    fanouts     the mapped steps that are ready
    stopped     the workflow runs of which something may be left to cancel
    counted     whether joins are locked
    freed       the slots and gates that are given back, and how many of each
    gates       the gates of these, once their marks are written
    admitted    the runs that each lane got because a limit has room
    knocks      the lines to look at after the commit, those of a set together
    asleep      the seconds for which runs back off without a slot, or after which a line must be looked at
    attempts    the attempts of runs with limits that succeeded or failed, by line
    several     whether a run that gave back slots had several of them
    look        whether it must be found out what runs wait for that depend on other jobs
    due         whether jobs have become due
    """

    requeued: list[tuple[int, float]] = []
    dead: list[UUID] = []
    stops: set[UUID] = set()
    fenced: list[UUID] = []
    following: list[runs.EndedRow] = []
    ends: list[End] = []
    folds: set[int] = set()
    maps: set[int] = set()
    fanouts: set[UUID] = set()
    stopped: set[UUID] = set()
    counted: bool = False
    freed: Counter[int] = msgspec.field(default_factory=Counter)
    gates: dict[int, int] = {}
    admitted: Counter[int] = msgspec.field(default_factory=Counter)
    knocks: set[frozenset[int]] = set()
    asleep: list[float] = []
    attempts: dict[int, list[tuple[UUID, bool]]] = {}
    several: bool = False
    look: bool = False
    due: bool = False

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

    def take(self, other: Effects) -> None:
        """What follows from ends that followed from others, in the same transaction."""
        self.following += other.following
        self.freed.update(other.freed)
        self.several |= other.several
        self.take_flows(other)

    def take_flows(self, other: Effects) -> None:
        self.folds |= other.folds
        self.maps |= other.maps
        self.fanouts |= other.fanouts
        self.stopped |= other.stopped

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
        if self.look:
            signals.look()
        if self.due:
            signals.due()
        if of_backfills := [run_id for run_id, follows, _, _ in self.following if (follows or 0) & _BACKFILL]:
            signals.fill(of_backfills)
        if self.folds or self.maps or self.fanouts or self.stopped:
            signals.flow(FlowNews(self.folds, self.maps, self.fanouts, self.stopped))


async def carry_out(connection: Connection, changes: Changes, effects: Effects) -> None:
    """Write the changes. The caller holds the locks of the rows, so all of them match."""
    dead = [item for item in changes.endings if item.state == StoredState.FAILED and item.before != StoredState.WAITING]
    if changes.endings:
        ended = await runs.end(connection, changes.endings)
        _check(len(ended), len(changes.endings))
        failed = {item.run_id for item in dead if item.before == StoredState.RUNNING and not item.lost}
        after_end(ended, effects, failed=failed, endings={item.run_id: item for item in changes.endings})
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
    ended: Iterable[runs.EndedRow],
    effects: Effects,
    *,
    succeeded: bool = False,
    failed: Collection[UUID] = (),
    endings: Mapping[UUID, runs.Ending] = NO_ENDINGS,
    results: Mapping[UUID, str | None] = NO_RESULTS,
) -> None:
    """Called for every run that ends. A run that nothing follows costs only these checks. `succeeded`: all of them.
    `failed`: those whose last attempt has failed. `endings`, `results`: how they have ended. Without both they were
    skipped."""
    for run in ended:
        if run[1]:
            effects.following.append(run)
            effects.ends.append(_end(run, endings.get(run[0]), results, succeeded=succeeded))
        if run[2] is not None:
            effects.give_back(run[2])
            if succeeded or run[0] in failed:
                effects.attempt_ended(run[0], run[2], succeeded=succeeded)


def _end(run: runs.EndedRow, ending: runs.Ending | None, results: Mapping[UUID, str | None], *, succeeded: bool) -> End:
    run_id, follows, _, feeds = run
    if ending is not None:
        return End(run_id, follows or 0, feeds, ending.state, ending.reason, cause=ending.cause)
    if not succeeded:
        return End(run_id, follows or 0, feeds, StoredState.SKIPPED)
    result = results.get(run_id) if (follows or 0) & _RESULT else None
    return End(run_id, follows or 0, feeds, StoredState.SUCCESS, result=result)


async def give_back(connection: Connection, effects: Effects) -> None:
    """Give back the gates of runs that were ended or requeued, in their transaction. Others pay only for this check."""
    if effects.freed:
        effects.gates = await gates.give_back(connection, effects.freed)


def _check(written: int, wanted: int) -> None:
    if written != wanted:
        raise Conflict("runs changed meanwhile", code="changed_meanwhile", hint="try again")
