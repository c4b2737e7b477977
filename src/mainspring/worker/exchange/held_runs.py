"""What one incarnation of a worker holds and has not yet reported. No I/O and no clock: unit-testable as it stands.

An exchange that is under way is a `Flight`. It lands with an answer, or it is lost; whichever comes, no outcome is
dropped before a server said that it is settled, and no run is started twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

import msgspec

from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Held, Outcome, Progress, WorkerHello
from mainspring.wire.problems import Problem
from mainspring.worker.exchange.prefetch import WINDOW, Prefetch
from mainspring.worker.exchange.queue_weights import NOTHING, QUICK, QueueWeights, SlotDivision
from mainspring.worker.exchange.rejected_outcomes import Batch, RejectedOutcomes, Verdict
from mainspring.worker.exchange.slot_forecast import SlotForecast
from mainspring.worker.execution.attempt import Attempt, Ending, Key, key_of

MOST_OUTCOMES = 2000
MOST_OUTCOME_BYTES = 4 * 1024 * 1024
_MOST_FREE = 10_000
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})


class Flight(msgspec.Struct, eq=False):
    """One exchange under way. `failures` is how many flights were lost before it was sent; `division` is how it divides
    what it asks for. A `trial` carries what the sieve gave it."""

    request: ExchangeRequest
    sent: float
    failures: int
    division: SlotDivision = NOTHING
    trial: bool = False

    @property
    def carries(self) -> Batch:
        return Batch(self.request.outcomes, self.request.progress)

    @property
    def parked(self) -> bool:
        return self.request.wait_ms > 0


class Landing(msgspec.Struct):
    """What an answer brought that is new to us."""

    taken: list[Attempt]
    stop: list[Attempt]
    fenced: list[UUID]


class HeldRuns:
    """`portions` divide the slots where queues have weights; `limits` are the tasks of which only so many may run."""

    def __init__(
        self,
        worker_id: UUID,
        hello: WorkerHello,
        now: float,
        *,
        shares: QueueWeights | None = None,
        limits: Mapping[str, int] = _NO_LIMITS,
    ) -> None:
        self.worker_id = worker_id
        self.held: dict[Key, Attempt] = {}
        self.pending: list[Outcome] = []
        self.pending_since = 0.0
        self.flights: list[Flight] = []
        self.prefetch = Prefetch(hello.slots, now)
        self.forecast = SlotForecast()
        self.rejected_outcomes = RejectedOutcomes()
        self.known = False
        self._hello = hello
        self._queue_weights = shares
        self._limits = limits
        self._seq = 0
        self._failures = 0
        self._recovered = 0
        self._recovery = 0  # the number of the newest exchange that recovers
        self._completed = 0
        self._busy = 0.0
        self._heavy = 0
        self._settled_meanwhile: set[Key] = set()

    @property
    def capacity(self) -> int:
        """How many runs are worth holding at once. Slots that are divided are never overbooked: what is prefetched of
        one queue would wait in the way of another."""
        return self._hello.slots + (self.prefetch.prefetch if self._queue_weights is None else 0)

    @property
    def recovering(self) -> bool:
        """An answer may have been lost, and no later exchange has made up for it yet."""
        return self._failures > self._recovered

    @property
    def asked(self) -> int:
        """How many runs the flights ask for: they may be on their way."""
        return sum(flight.request.free for flight in self.flights)

    @property
    def unreported(self) -> int:
        """How many outcomes no server has acknowledged yet."""
        flying = sum(len(flight.request.outcomes) for flight in self.flights)
        return len(self.pending) + self.rejected_outcomes.outcomes + flying

    def free(self, holding: int, soon: int = 0) -> int:
        """How many more runs to ask for, with `holding` queued or running and `soon` slots about to become free. What a
        flight already asks for counts as taken."""
        return max(0, min(_MOST_FREE, self.capacity + soon - holding - self.asked))

    def record(self, attempt: Attempt, ending: Ending, now: float) -> None:
        """Keep the outcome until it is acknowledged."""
        order = attempt.order
        started = attempt.started
        if started:
            ran = now - started
            self._completed += 1
            self._busy += ran
            if ran > WINDOW:
                self.forecast.ended(order.task, ran)
            if self._queue_weights is not None:
                self._queue_weights.ended(order.queue, ran)
        else:
            started, ran = now, 0.0
        outcome = Outcome(
            order.run_id,
            order.fence,
            ending.status,
            round((started - attempt.received) * 1000.0, 3),
            round(ran * 1000.0, 3),
            ending.error,
            ending.retry,
        )
        if ending.result is not None:
            outcome.result = ending.result
        if ending.cause is not None:
            outcome.cause = ending.cause
        if ending.retry_after is not None:
            outcome.retry_after = ending.retry_after
        if not self.pending:
            self.pending_since = now
        self.pending.append(outcome)
        if ending.error is not None or ending.result is not None:
            self._heavy += _weight(outcome)

    def observe_rate(self, now: float) -> None:
        if self.prefetch.observe(now, self._completed, self._busy):
            self._completed = 0
            self._busy = 0.0

    def compose(
        self,
        now: float,
        *,
        holding: int,
        soon: int = 0,
        hands: Iterable[Attempt] = (),
        wait_ms: int = 0,
        draining: bool = False,
        stopping: bool = False,
    ) -> Flight:
        """The next exchange; `hands` are the runs that are held, queued or running, where they must be told apart. It
        waits only if it has no outcome to report; `stopped` goes with the last outcome, and not while another flight
        has one: it would be too late for that. One that recovers asks for nothing new: what the lost answer brought may
        fill the slots. While something is under suspicion, that is what goes, and nothing else."""
        self.observe_rate(now)
        trial = self.rejected_outcomes.take() if self.rejected_outcomes.busy else None
        outcomes = self._take_pending() if trial is None else trial.outcomes
        self._seq += 1
        request = ExchangeRequest(
            worker_id=self.worker_id,
            seq=self._seq,
            free=0 if draining or self.recovering else self.free(holding, soon),
            wait_ms=0 if outcomes or trial is not None or not self.known or self.recovering else wait_ms,
            outcomes=outcomes,
            draining=draining,
            stopped=stopping and trial is None and not self.unreported,
            hello=None if self.known else self._hello,
        )
        if trial is not None and trial.words:
            request.progress = [word for word in trial.words if self._runs_still(word)]
        if self.recovering:
            request.recover = True
            self._recovery = request.seq
            request.inventory = [Held(a.order.run_id, a.order.fence) for a in self.held.values()]
        flight = Flight(request, now, self._failures, trial=trial is not None)
        if request.free and (self._queue_weights is not None or self._limits):
            self._divide(flight, hands)
        self.flights.append(flight)
        return flight

    def _divide(self, flight: Flight, hands: Iterable[Attempt]) -> None:
        request, attempts = flight.request, list(hands)
        if self._queue_weights is not None:
            held = Counter(attempt.order.queue for attempt in attempts)
            lasting = {a.order.queue for a in attempts if a.started and flight.sent - a.started > QUICK}
            flying = [other.division for other in self.flights]
            flight.division = self._queue_weights.divide(request.free, held, flying, lasting)
            request.shares = flight.division.shares
        if self._limits:
            running = Counter(attempt.order.task for attempt in attempts)
            for task, limit in self._limits.items():
                room = limit - running[task] - sum(_asked_of(task, other.request) for other in self.flights)
                if room < request.free:
                    request.room[task] = max(0, room)

    def landed(self, flight: Flight, reply: ExchangeReply, now: float) -> Landing:
        """Settle what the answer settles, and say what is new in it. Runs are taken whatever the answer's place."""
        self.flights.remove(flight)
        if not flight.parked:
            self.forecast.heard(now - flight.sent)
        outcomes = flight.request.outcomes
        if not reply.superseded or reply.acked >= len(outcomes) > 0:
            self._settle(outcomes)
            if flight.trial:
                self.rejected_outcomes.passed(flight.carries)
        else:
            self._return(flight, now)
        taken = self._take(reply, now)
        if not reply.superseded:
            self.known = True
            if flight.request.recover:
                self._recovered = max(self._recovered, flight.failures)
        if self._settled_meanwhile and not self._may_be_handed_out_again():
            self._settled_meanwhile.clear()
        return Landing(taken, self._to_stop(reply.stop), reply.fenced)

    def lost(self, flight: Flight, now: float, *, answered: bool = False) -> None:
        """The exchange failed. Unless a server `answered` that it refused it, it may have been carried out."""
        self.flights.remove(flight)
        self._return(flight, now)
        self.rejected_outcomes.doubt()
        if not answered:
            self._failures += 1

    def refused(self, flight: Flight, problem: Problem, now: float) -> Verdict:
        """A server answered that it will not take an exchange like this. A run whose outcome is let go stays `held`: a
        recovery would else hand it out again, and it has run."""
        self.flights.remove(flight)
        verdict = self.rejected_outcomes.refused(flight.carries, problem, trial=flight.trial)
        self._put_back(verdict.returned.outcomes, now)
        return verdict

    def _return(self, flight: Flight, now: float) -> None:
        if not flight.trial:
            self._put_back(flight.request.outcomes, now)
        elif (outcome := self.rejected_outcomes.put_back(flight.carries)) is not None:
            self._put_back([outcome], now)

    def _runs_still(self, word: Progress) -> bool:
        attempt = self.held.get((word.run_id.int, word.fence))
        return attempt is not None and not attempt.reported

    def _take_pending(self) -> list[Outcome]:
        if len(self.pending) <= MOST_OUTCOMES and self._heavy <= MOST_OUTCOME_BYTES:
            taken, self.pending, self._heavy = self.pending, [], 0
            return taken
        weight = 0
        for count, outcome in enumerate(self.pending):
            weight += _weight(outcome)
            if count and (weight > MOST_OUTCOME_BYTES or count == MOST_OUTCOMES):
                taken, self.pending = self.pending[:count], self.pending[count:]
                self._heavy = sum(map(_weight, self.pending))
                return taken
        taken, self.pending, self._heavy = self.pending, [], 0
        return taken

    def _put_back(self, outcomes: list[Outcome], now: float) -> None:
        if not outcomes:
            return
        if not self.pending:
            self.pending_since = now
        self.pending = outcomes + self.pending
        self._heavy += sum(map(_weight, outcomes))

    def _settle(self, outcomes: Iterable[Outcome]) -> None:
        remember = self._settled_meanwhile.add if self._may_be_handed_out_again() else None
        for outcome in outcomes:
            key = (outcome.run_id.int, outcome.fence)
            self.held.pop(key, None)
            if remember is not None:
                remember(key)

    def _may_be_handed_out_again(self) -> bool:
        """A recovery hands out what its inventory lacks: also what an exchange before it has claimed, whose answer may
        still come. A run that one of the two brings and that is settled meanwhile must not be taken for new when the
        other brings it."""
        return self.recovering or any(flight.request.seq <= self._recovery for flight in self.flights)

    def _take(self, reply: ExchangeReply, now: float) -> list[Attempt]:
        held = self.held
        taken = []
        for order in reply.runs:
            key = key_of(order)
            if key in held or key in self._settled_meanwhile:
                continue
            held[key] = attempt = Attempt(order, key, now)
            taken.append(attempt)
        return taken

    def _to_stop(self, run_ids: list[UUID]) -> list[Attempt]:
        if not run_ids:
            return []
        wanted = {run_id.int for run_id in run_ids}
        return [a for a in self.held.values() if a.key[0] in wanted and not a.reported and a.stopping is None]


def _asked_of(task: str, request: ExchangeRequest) -> int:
    """How many runs of a task this exchange may bring."""
    return min(request.room.get(task, request.free), request.free)


def _weight(outcome: Outcome) -> int:
    return len(outcome.error or "") + memoryview(outcome.result).nbytes
