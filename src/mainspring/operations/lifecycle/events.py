"""Events: what has happened in a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.limits import is_gate
from mainspring.kernel.ids import TenantId


class RunEnded(msgspec.Struct):
    """A run has ended, and its row says that something follows. result: None if it is not kept. cause: the step whose
    failure is the reason that it was not run. complete: of a workflow run, whether all its steps have ended. handled:
    the handlers that have dealt with it."""

    run_id: UUID
    follows: int
    feeds: list[int] | None
    state: int
    reason: str | None = None
    result: str | None = None
    cause: str | None = None
    complete: bool = False
    handled: tuple[object, ...] = ()


class SlotsReleased(msgspec.Struct):
    """What runs that ended, or that wait again, gave back to limits.

    slots       the slots and gates, and how many of each
    attempts    the attempts that succeeded or failed, by slot
    several     whether a run gave back several slots
    left        the waiting lists in which a run was locked: others may have passed it over
    delays      the seconds for which runs back off without a slot
    """

    slots: Counter[int] = msgspec.field(default_factory=Counter)
    attempts: dict[int, list[tuple[UUID, bool]]] = {}
    several: bool = False
    left: set[int] = set()
    delays: list[float] = []

    def give_back(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.slots[slot] += 1
        self.several |= len(slots) > 1

    def attempt_ended(self, run_id: UUID, slots: Sequence[int], *, succeeded: bool) -> None:
        for slot in slots:
            if not is_gate(slot):  # no breaker counts at gates
                self.attempts.setdefault(slot, []).append((run_id, succeeded))


class RunsCreated(msgspec.Struct, frozen=True):
    """Runs were created. lanes: how many runs each lane got. held_in: the waiting lists in which some are HELD, and in
    which the transaction has not admitted runs. with_parents: how many wait for other jobs. Where one statement is the
    whole transaction, this comes after it."""

    lanes: Mapping[int, int]
    held_in: Collection[int] = ()
    with_parents: int = 0


class FireMissed(msgspec.Struct, frozen=True):
    """Fires of a job, from first to last, were due and are not run."""

    tenant_id: int
    job_id: str
    first: datetime
    last: datetime
    count: int
    reason: str


class LostWorker(msgspec.Struct, frozen=True):
    """A worker has ended without saying so. silent_for: seconds without a heartbeat. None: its watchdog has told it."""

    worker_id: UUID
    silent_for: float | None = None


class BreakerOpened(msgspec.Struct, frozen=True):
    """The circuit breaker of this line has opened."""

    line: int


class BreakerClosed(msgspec.Struct, frozen=True):
    """The circuit breaker of this line was open, and has closed."""

    line: int


class QueuePaused(msgspec.Struct, frozen=True):
    """A queue was paused, or resumed. queue: None for the whole tenant."""

    tenant_id: TenantId
    queue: str | None
    paused: bool
    by: str


class BackfillEnded(msgspec.Struct, frozen=True):
    """A backfill has ended, and so have all its runs. state: of `BackfillState`."""

    tenant_id: TenantId
    backfill_id: UUID
    job_id: str
    state: int


class ApprovalAsked(msgspec.Struct, frozen=True):
    """A step has begun to wait for a person."""

    run_id: UUID


class ContainerStopped(msgspec.Struct, frozen=True):
    """A run that consists of other runs has to end: it was cancelled, or it has timed out."""

    run_id: UUID
    fence: int
    reason: str
    timed_out: bool


class EventEmitted(msgspec.Struct, frozen=True):
    """An application has emitted an event. It is dealt with once, in the transaction that marks it as matched. key: ''
    if it has none. payload: JSON, if it has any."""

    tenant_id: TenantId
    event_id: str
    seq: int
    name: str
    key: str
    at: datetime
    payload: str | None
