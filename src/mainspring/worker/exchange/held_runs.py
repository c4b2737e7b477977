"""The runs that one incarnation of a worker holds, and the outcomes it has not reported yet. No I/O and no clock.

An exchange in flight is a `Flight`. It is answered or lost. In either case no outcome is dropped before a server has
acknowledged it, and no run is started twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

from mainspring.kernel.logs import Fields
from mainspring.wire.exchange import ExchangeReply, ExchangeRequest, Held, Outcome, Progress, WorkerHello
from mainspring.wire.problems import Problem
from mainspring.worker.about_order import about
from mainspring.worker.exchange.flight import Flight, Landing
from mainspring.worker.exchange.prefetch import WINDOW, Prefetch
from mainspring.worker.exchange.queue_weights import QUICK, QueueWeights
from mainspring.worker.exchange.rejected_outcomes import RejectedOutcomes, Rejection
from mainspring.worker.exchange.slot_forecast import SlotForecast
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Key, key_of
from mainspring.worker.execution.redaction import Redactor

MAX_OUTCOMES = 2000
MAX_OUTCOME_BYTES = 4 * 1024 * 1024
_MAX_FREE = 10_000
_SAMPLE_BYTES = 40
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})


class HeldRuns:
    """`queue_weights` divide the slots if the queues have weights. `task_limits` say how many runs of a task may be
    active at a time."""

    def __init__(
        self,
        worker_id: UUID,
        hello: WorkerHello,
        now: float,
        *,
        queue_weights: QueueWeights | None = None,
        task_limits: Mapping[str, int] = _NO_LIMITS,
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
        self._queue_weights = queue_weights
        self._task_limits = task_limits
        self._seq = 0
        self._failures = 0
        self._recovered = 0
        self._recovery = 0  # the sequence number of the newest exchange that recovers
        self._completed = 0
        self._busy = 0.0
        self._pending_bytes = 0
        self._settled_meanwhile: set[Key] = set()

    def about(self, run_id: UUID) -> Fields:
        """What a log line says about this run."""
        held = (attempt.order for attempt in self.held.values() if attempt.order.run_id == run_id)
        order = next(held, None)
        return {"run": str(run_id)} if order is None else about(order)

    @property
    def capacity(self) -> int:
        """How many runs to hold at a time. Slots that are divided by weight are never overbooked: runs prefetched from
        one queue would block another."""
        return self._hello.slots + (self.prefetch.prefetch if self._queue_weights is None else 0)

    @property
    def recovering(self) -> bool:
        """An answer may have been lost, and no later exchange has recovered it yet."""
        return self._failures > self._recovered

    def is_newest(self, flight: Flight) -> bool:
        """Whether no exchange was sent after this one."""
        return flight.request.seq == self._seq

    @property
    def asked(self) -> int:
        """How many runs the exchanges in flight ask for. They may have been claimed already."""
        return sum(flight.request.free for flight in self.flights)

    @property
    def unreported(self) -> int:
        """How many outcomes no server has acknowledged yet."""
        in_flight = sum(len(flight.request.outcomes) for flight in self.flights)
        return len(self.pending) + self.rejected_outcomes.outcomes + in_flight

    def free(self, holding: int, soon: int = 0) -> int:
        """How many more runs to ask for, with `holding` runs queued or active and `soon` slots about to become free.
        Runs that an exchange in flight asks for count as taken."""
        return max(0, min(_MAX_FREE, self.capacity + soon - holding - self.asked))

    def record(self, attempt: Attempt, ending: AttemptEnding, now: float) -> None:
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
        if not attempt.started:
            outcome.unstarted = True
        if ending.result is not None:
            outcome.result = ending.result
        if ending.cause is not None:
            outcome.cause = ending.cause
        if ending.retry_after is not None:
            outcome.retry_after = ending.retry_after
        if ending.snooze is not None:
            outcome.snooze = ending.snooze
        if ending.callback:
            outcome.callback = True
        if attempt.usage is not None:
            outcome.usage = attempt.usage.final()
        if not self.pending:
            self.pending_since = now
        self.pending.append(outcome)
        if ending.error is not None or ending.result is not None or outcome.usage is not None:
            self._pending_bytes += _size(outcome)

    def holds_only(self, lone: Attempt) -> bool:
        """Whether nothing but this run would be lost with the worker: no other run, no outcome that is not
        acknowledged, and no run that an exchange in flight may bring."""
        if self.asked or self.unreported:
            return False
        return all(attempt is lone or attempt.reported for attempt in self.held.values())

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
        attempts: Iterable[Attempt] = (),
        wait_ms: int = 0,
        draining: bool = False,
        stopping: bool = False,
        most: int = _MAX_FREE,
    ) -> Flight:
        """Compose the next exchange. `attempts` are the runs held, queued or active. It asks for `most` runs at most.

        It is a long poll only if it has no outcome to report. `stopped` is sent with the last outcome, and not while
        another exchange in flight carries one, which would arrive too late. An exchange that recovers asks for no new
        runs, because those of the lost answer may fill the slots. While a rejected batch waits to be tried, the
        exchange carries that batch and nothing else.
        """
        self.observe_rate(now)
        trial = self.rejected_outcomes.take() if self.rejected_outcomes.busy else None
        outcomes = self._take_pending() if trial is None else trial.outcomes
        self._seq += 1
        request = ExchangeRequest(
            worker_id=self.worker_id,
            seq=self._seq,
            free=0 if draining or self.recovering else min(most, self.free(holding, soon)),
            wait_ms=0 if outcomes or trial is not None or not self.known or self.recovering else wait_ms,
            outcomes=outcomes,
            draining=draining,
            stopped=stopping and trial is None and not self.unreported,
            hello=None if self.known else self._hello,
        )
        if trial is not None and trial.progress:
            request.progress = [report for report in trial.progress if self._still_runs(report)]
        if self.recovering:
            request.recover = True
            self._recovery = request.seq
            request.inventory = [Held(a.order.run_id, a.order.fence) for a in self.held.values()]
        flight = Flight(request, now, self._failures, trial=trial is not None)
        if request.free and (self._queue_weights is not None or self._task_limits):
            self._divide(flight, list(attempts))
        self.flights.append(flight)
        return flight

    def _divide(self, flight: Flight, attempts: list[Attempt]) -> None:
        request = flight.request
        if self._queue_weights is not None:
            held = Counter(attempt.order.queue for attempt in attempts)
            lasting = {a.order.queue for a in attempts if a.started and flight.sent - a.started > QUICK}
            in_flight = [other.division for other in self.flights]
            flight.division = self._queue_weights.divide(request.free, held, in_flight, lasting)
            request.shares = flight.division.shares
        if self._task_limits:
            running = Counter(attempt.order.task for attempt in attempts)
            for task, limit in self._task_limits.items():
                room = limit - running[task] - sum(other.may_bring(task) for other in self.flights)
                if room < request.free:
                    request.room[task] = max(0, room)

    def landed(self, flight: Flight, reply: ExchangeReply, now: float) -> Landing:
        """An exchange was answered: drop the outcomes that the answer settles, and return what is new in it. Runs are
        taken even from an answer that comes after a later one."""
        self.flights.remove(flight)
        if not flight.waits:
            self.forecast.heard(now - flight.sent)
        outcomes = flight.request.outcomes
        if not reply.superseded or reply.acked >= len(outcomes) > 0:
            self._settle(outcomes)
            if flight.trial:
                self.rejected_outcomes.passed(flight.carries)
        else:
            self._return(flight, now)
        taken = self._take(flight, reply, now)
        if not reply.superseded:
            self.known = True
            if flight.request.recover:
                self._recovered = max(self._recovered, flight.failures)
        if self._settled_meanwhile and not self._may_be_handed_out_again():
            self._settled_meanwhile.clear()
        return Landing(taken, self._to_stop(reply.stop))

    def lost(self, flight: Flight, now: float, *, answered: bool = False) -> None:
        """The exchange failed. Unless a server `answered` that it rejects it, it may have been carried out."""
        self.flights.remove(flight)
        self._return(flight, now)
        self.rejected_outcomes.doubt()
        if not answered:
            self._failures += 1

    def refused(self, flight: Flight, problem: Problem, now: float) -> Rejection:
        """A server rejected the contents of the exchange. A run whose outcome is given up stays `held`: otherwise a
        recovery would hand it out again, and it would run twice."""
        self.flights.remove(flight)
        rejection = self.rejected_outcomes.refused(flight.carries, problem, trial=flight.trial)
        self._put_back(rejection.returned.outcomes, now)
        return rejection

    def _return(self, flight: Flight, now: float) -> None:
        if not flight.trial:
            self._put_back(flight.request.outcomes, now)
        elif (outcome := self.rejected_outcomes.put_back(flight.carries)) is not None:
            self._put_back([outcome], now)

    def _still_runs(self, report: Progress) -> bool:
        attempt = self.held.get((report.run_id.int, report.fence))
        return attempt is not None and not attempt.reported

    def _take_pending(self) -> list[Outcome]:
        if len(self.pending) <= MAX_OUTCOMES and self._pending_bytes <= MAX_OUTCOME_BYTES:
            taken, self.pending, self._pending_bytes = self.pending, [], 0
            return taken
        size = 0
        for count, outcome in enumerate(self.pending):
            size += _size(outcome)
            if count and (size > MAX_OUTCOME_BYTES or count == MAX_OUTCOMES):
                taken, self.pending = self.pending[:count], self.pending[count:]
                self._pending_bytes = sum(map(_size, self.pending))
                return taken
        taken, self.pending, self._pending_bytes = self.pending, [], 0
        return taken

    def _put_back(self, outcomes: list[Outcome], now: float) -> None:
        if not outcomes:
            return
        if not self.pending:
            self.pending_since = now
        self.pending = outcomes + self.pending
        self._pending_bytes += sum(map(_size, outcomes))

    def _settle(self, outcomes: Iterable[Outcome]) -> None:
        remember = self._settled_meanwhile.add if self._may_be_handed_out_again() else None
        for outcome in outcomes:
            key = (outcome.run_id.int, outcome.fence)
            self.held.pop(key, None)
            if remember is not None:
                remember(key)

    def _may_be_handed_out_again(self) -> bool:
        """A recovery returns every claim that is missing in its inventory. That includes claims of an earlier exchange
        whose answer is still on its way. A run that one of the two brings, and that is settled meanwhile, must not be
        taken for new when the other one brings it."""
        return self.recovering or any(flight.request.seq <= self._recovery for flight in self.flights)

    def _take(self, flight: Flight, reply: ExchangeReply, now: float) -> list[Attempt]:
        held = self.held
        taken = []
        for order in reply.runs:
            key = key_of(order)
            if key in held or key in self._settled_meanwhile:
                continue
            held[key] = attempt = Attempt(order, key, now)
            if order.secrets is not None:
                attempt.redactor = Redactor(order.secrets.values.values())
            if order.start_within is not None:
                attempt.start_by = flight.sent + order.start_within
            taken.append(attempt)
        return taken

    def _to_stop(self, run_ids: list[UUID]) -> list[Attempt]:
        if not run_ids:
            return []
        wanted = {run_id.int for run_id in run_ids}
        return [a for a in self.held.values() if a.key[0] in wanted and not a.reported and a.stopping is None]


def _size(outcome: Outcome) -> int:
    samples = 0 if outcome.usage is None else len(outcome.usage.samples)
    return len(outcome.error or "") + memoryview(outcome.result).nbytes + samples * _SAMPLE_BYTES
