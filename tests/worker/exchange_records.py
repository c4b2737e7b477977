"""What the exchange server of the tests keeps in place of a database: workers, runs that are ready, claims, reports.

Servers that share records are servers of one database. The rules are those of operations/exchange and of its SQL;
test_exchange_parity.py holds both to the same answers. Three things are left out: a failed run is not tried again, runs
of an ended incarnation do not come back, and of several ready runs the oldest goes first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, Fenced
from mainspring.store.workers import WorkerState
from mainspring.wire.exchange import ExchangeRequest, Held, Outcome, Progress, RunOrder, WorkerHello

ALIVE = (WorkerState.LIVE, WorkerState.DRAINING)


class WorkerRow(msgspec.Struct):
    hello: WorkerHello
    secret: str = ""
    state: WorkerState = WorkerState.LIVE
    last_seq: int = 0


class Claim(msgspec.Struct):
    order: RunOrder
    worker_id: UUID
    seq: int
    cancel_requested: bool = False


class Records:
    def __init__(self) -> None:
        self.workers: dict[UUID, WorkerRow] = {}
        self.claims: dict[UUID, Claim] = {}
        self.ready: deque[RunOrder] = deque()
        self._reported: dict[tuple[UUID, int, UUID], Outcome] = {}  # by run, fence and worker

    # -- workers

    def register(self, worker_id: UUID, hello: WorkerHello, secret: str) -> WorkerRow:
        row = self.workers.get(worker_id)
        if row is None:
            row = self.workers[worker_id] = WorkerRow(hello, secret)
        elif row.state not in ALIVE:
            raise gone(WorkerState.LOST)
        row.hello = hello
        row.secret = row.secret or secret
        return row

    def admits(self, worker_id: UUID, secret: str) -> bool:
        """All workers of this server have the same token, which is enough for one without a secret."""
        row = self.workers.get(worker_id)
        return row is None or row.secret in ("", secret)

    def living(self, worker_id: UUID) -> WorkerRow:
        row = self.workers.get(worker_id)
        if row is None:
            raise Conflict("this worker is not registered", code="unknown_worker")
        if row.state not in ALIVE:
            raise gone(row.state)
        return row

    def advance(self, request: ExchangeRequest, *, again: bool) -> WorkerRow:
        """Take the number of an exchange, which must rise."""
        row = self.living(request.worker_id)
        if row.last_seq > request.seq or (row.last_seq == request.seq and not again):
            detail = f"exchange {request.seq} is not newer than {row.last_seq}"
            raise Conflict(detail, code="stale_exchange", field="seq")
        row.last_seq = request.seq
        return row

    def end_worker(self, worker_id: UUID, state: WorkerState | None) -> None:
        """This incarnation is over, and its runs are given to others. None: nothing is known of it any more."""
        if state is None:
            self.workers.pop(worker_id, None)
        elif worker_id in self.workers:
            self.workers[worker_id].state = state
        self.claims = {run_id: claim for run_id, claim in self.claims.items() if claim.worker_id != worker_id}

    # -- runs

    def claim(self, request: ExchangeRequest, free: int) -> list[RunOrder]:
        """Hand out what the worker offers and asks for, the oldest first."""
        offers = self.workers[request.worker_id].hello
        room, shares, given = dict(request.room), Counter[str](), set[str]()
        for share in request.shares:
            shares[share.queue] += share.most
        taken: list[RunOrder] = []
        passed_by: list[RunOrder] = []
        while self.ready and len(taken) < free:
            order = self.ready.popleft()
            kept = _kept(request, order.queue, given)
            fits = order.task in offers.tasks and order.queue in offers.queues and room.get(order.task, 1) > 0
            if not fits or (request.shares and (shares[order.queue] <= 0 or len(taken) + kept >= free)):
                passed_by.append(order)
                continue
            room[order.task] = room.get(order.task, free + 1) - 1
            shares[order.queue] -= 1
            given.add(order.queue)
            taken.append(order)
            self.claims[order.run_id] = Claim(order, request.worker_id, request.seq)
        self.ready.extendleft(reversed(passed_by))
        return taken

    def anything_ready(self, request: ExchangeRequest) -> bool:
        offers = self.workers[request.worker_id].hello
        return any(order.task in offers.tasks and order.queue in offers.queues for order in self.ready)

    def lost_claims(self, request: ExchangeRequest) -> list[RunOrder]:
        """Claims of this worker whose answer did not arrive: older than this exchange, and not in its inventory."""
        here = {entry.run_id for entry in (*request.inventory, *request.outcomes)}
        claims = [claim for claim in self._of(request.worker_id) if claim.seq < request.seq]
        return sorted((c.order for c in claims if c.order.run_id not in here), key=lambda order: order.run_id)

    def settle(self, worker_id: UUID, outcomes: Iterable[Outcome]) -> tuple[list[Outcome], list[UUID]]:
        """Record outcomes; gives those that are new, and the runs that are fenced: they have changed hands."""
        new, fenced = [], []
        for outcome in outcomes:
            key = (outcome.run_id, outcome.fence, worker_id)
            if self._holds(worker_id, outcome):
                order = self.claims.pop(outcome.run_id).order
                self._reported[key] = outcome
                new.append(outcome)
                if outcome.status == "RETURNED":  # one step for the return, and one for the next claim
                    self.ready.append(msgspec.structs.replace(order, fence=order.fence + 2))
            elif not _recorded_before(self._reported.get(key), outcome):
                fenced.append(outcome.run_id)
        return new, fenced

    def not_held(self, worker_id: UUID, words: Iterable[Progress]) -> list[UUID]:
        return [word.run_id for word in words if not self._holds(worker_id, word)]

    def to_stop(self, worker_id: UUID) -> list[UUID]:
        return [claim.order.run_id for claim in self._of(worker_id) if claim.cancel_requested]

    def _holds(self, worker_id: UUID, entry: Outcome | Progress | Held) -> bool:
        claim = self.claims.get(entry.run_id)
        return claim is not None and claim.worker_id == worker_id and claim.order.fence == entry.fence

    def _of(self, worker_id: UUID) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.worker_id == worker_id]


def _kept(request: ExchangeRequest, queue: str, given: set[str]) -> int:
    """How many slots stay free for queues that this exchange has given nothing."""
    kept_for = [share.keep_for for share in request.shares if share.queue == queue]
    return max((sum(other not in given for other in others) for others in kept_for), default=0)


def _recorded_before(before: Outcome | None, outcome: Outcome) -> bool:
    """A run that has ended takes any repetition. One that goes on tells a return from an attempt."""
    if before is None:
        return False
    goes_on = before.status == "RETURNED" or (before.status == "FAILED" and before.retry)
    return not goes_on or (before.status == "RETURNED") == (outcome.status == "RETURNED")


def gone(state: WorkerState) -> Fenced:
    return Fenced(f"this worker incarnation is {state.name}; its runs have been given to others")
