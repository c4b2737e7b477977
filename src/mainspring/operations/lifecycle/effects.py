"""Writes the decisions about runs, and returns what follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Self, TypeVar
from uuid import UUID

import msgspec

from mainspring.domain.tags import changed_meanwhile
from mainspring.domain.transitions import Follows, StoredState
from mainspring.kernel import metrics
from mainspring.kernel.logs import about_run, get_logger
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.lifecycle.events import RunEnded, SlotsReleased
from mainspring.operations.signals import Signals
from mainspring.store import limits, runs, waits
from mainspring.store.pool import Connection

log = get_logger("lifecycle")

_RESULT = int(Follows.RESULT)  # a plain number: an `&` of an enum takes longer
NO_ENDINGS: Mapping[UUID, runs.Ending] = {}
NO_RESULTS: Mapping[UUID, str | None] = {}


P = TypeVar("P", bound="Part")


class RunChanges(msgspec.Struct):
    """The decisions about locked runs: the rows to write, and the gates that runs owned which do not end."""

    endings: list[runs.Ending] = []
    requeues: list[runs.Requeue] = []
    holds: list[limits.HoldBack] = []
    attempts: list[runs.PastAttempt] = []
    gates: list[int] = []
    suspensions: list[waits.Suspension] = []


class Part(msgspec.Struct):
    """What follows for one feature."""

    def merge(self, other: Self, /) -> None:
        """What follows from another part of the transaction, or of the batch."""

    def publish(self, signals: Signals, /) -> None:
        """After the commit: wake those who wait for what has changed."""


class Effects(msgspec.Struct):
    """What follows.

    requeued    (lane, seconds until ready)
    ready       how many other runs each lane got: they wait for nothing any more
    dead        the new dead letters
    stops       the workers that must be told to stop a run
    fenced      the runs whose outcome came too late
    ended       the ended runs whose rows say that something follows
    released    what they and others gave back to limits
    contended   whether rows are locked for which many transactions wait
    waiting_locked  whether runs that wait are locked; then nothing may be locked that is locked before them
    parts       what follows for each feature
    """

    requeued: list[tuple[int, float]] = []
    ready: Counter[int] = msgspec.field(default_factory=Counter)
    dead: list[UUID] = []
    stops: set[UUID] = set()
    fenced: list[UUID] = []
    ended: list[RunEnded] = []
    released: SlotsReleased | None = None
    contended: bool = False
    waiting_locked: bool = False
    parts: dict[type[Part], Part] = {}

    def of(self, kind: type[P]) -> P:
        """The part of a feature."""
        part = self.parts.get(kind)
        if part is None:
            part = self.parts[kind] = kind()
        assert isinstance(part, kind)
        return part

    @property
    def given_back(self) -> SlotsReleased:
        if self.released is None:
            self.released = SlotsReleased()
        return self.released

    def merge(self, other: Effects) -> None:
        """What follows from another part of the same batch, whose transaction is complete."""
        self.requeued += other.requeued
        self.ready.update(other.ready)
        self.dead += other.dead
        self.stops |= other.stops
        self.ended += other.ended
        self.contended |= other.contended
        for kind, part in other.parts.items():
            self.of(kind).merge(part)

    def publish(self, signals: Signals) -> None:
        """After the commit: wake those who wait for what has changed."""
        now: Counter[int] = self.ready.copy()
        for lane_id, delay in self.requeued:
            if delay:
                signals.ready.publish_later(delay, {lane_id: 1})
            else:
                now[lane_id] += 1
        signals.ready.publish(now)
        for worker_id in self.stops:
            signals.stop.publish(worker_id)
        for part in self.parts.values():
            part.publish(signals)


async def apply_changes(connection: Connection, changes: RunChanges, effects: Effects) -> None:
    """Write the changes. The caller holds the locks of the rows, so all of them match."""
    dead = [item for item in changes.endings if item.state == StoredState.FAILED and item.before != StoredState.WAITING]
    if changes.endings:
        ended = await runs.end(connection, changes.endings)
        check_count(len(ended), len(changes.endings))
        failed = {item.run_id for item in dead if item.before == StoredState.RUNNING and not item.lost}
        after_end(ended, effects, failed=failed, endings={item.run_id: item for item in changes.endings})
        effects.dead += [item.run_id for item in dead]
        owners = {run[0]: (run[4], run[5]) for run in ended} if dead else {}
        slices = TimeSlices()
        for item in dead:
            tenant, job = owners[item.run_id]
            log.warning("run failed for good", **about_run(tenant, job, item.run_id, item.attempt), reason=item.reason)
            if slices.over:
                await slices.pause()
    ended_at = await runs.record_attempts(connection, changes.attempts) if changes.attempts else None
    if changes.requeues:
        delays = {item.run_id: item.delay for item in changes.requeues}
        requeued = await runs.requeue(connection, changes.requeues, ended_at)
        check_count(len(requeued), len(changes.requeues))
        effects.requeued += [(run.lane_id, delays[run.run_id]) for run in requeued]
    if changes.holds:
        held = await limits.hold_back(connection, changes.holds, ended_at)
        check_count(len(held), len(changes.holds))
        failed = {item.run_id for item in changes.holds if item.failed}
        released = effects.given_back
        for run_id, slots in held:
            released.give_back(slots)
            if run_id in failed:
                released.attempt_ended(run_id, slots, succeeded=False)
        released.delays += [item.delay for item in changes.holds if item.delay]
    if changes.suspensions:
        check_count(await waits.suspend(connection, changes.suspensions), len(changes.suspensions))
    if changes.gates:
        effects.given_back.slots.update(changes.gates)
    metrics.dead.inc(len(dead))
    metrics.retries.inc(sum(item.outcome in ("FAILED", "LOST") for item in changes.attempts))


def after_end(
    ended: Iterable[runs.EndedRow | runs.OtherEnd],
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
            effects.ended.append(_end(run, endings.get(run[0]), results, succeeded=succeeded))
        if run[2] is not None:
            released = effects.given_back
            released.give_back(run[2])
            if succeeded or run[0] in failed:
                released.attempt_ended(run[0], run[2], succeeded=succeeded)


def _end(
    run: runs.EndedRow | runs.OtherEnd,
    ending: runs.Ending | None,
    results: Mapping[UUID, str | None],
    *,
    succeeded: bool,
) -> RunEnded:
    run_id, follows, feeds = run[0], run[1], run[3]
    if ending is not None:
        return RunEnded(run_id, follows or 0, feeds, ending.state, ending.reason, cause=ending.cause)
    if not succeeded:
        return RunEnded(run_id, follows or 0, feeds, StoredState.SKIPPED)
    result = results.get(run_id) if (follows or 0) & _RESULT else None
    return RunEnded(run_id, follows or 0, feeds, StoredState.SUCCESS, result=result)


def check_count(written: int, wanted: int) -> None:
    """Raise Conflict unless a guarded statement has changed all rows that it was to change."""
    if written != wanted:
        raise changed_meanwhile("runs")
