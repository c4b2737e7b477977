"""Decides when the next exchange starts. No I/O and no clock: the caller passes the time."""

from __future__ import annotations

from mainspring.kernel.lifecycle import backoff
from mainspring.wire.exchange import ExchangeReply
from mainspring.worker.exchange.flight import Flight
from mainspring.worker.exchange.held_runs import HeldRuns

# Outcomes wait this long for others while more runs are held. A last outcome is sent at once.
BATCH_SECONDS = 0.005
_NEVER = float("inf")
_LONGEST_PAUSE = 1.0
_AFTER_REFUSAL = 5.0
_EMPTY_PAUSE = 0.005
_LONGEST_EMPTY_PAUSE = 0.1
_AFTER_LOAD = 0.5


class ExchangeTiming:
    """At most two exchanges are in flight: a long poll, and one that reports. One starts at least every `beat`. A third
    goes to another server when those two wait for a server that hangs."""

    def __init__(self, beat: float, now: float) -> None:
        self._beat = beat
        self._last_start = now - beat
        self._last_landing = now
        self._not_before = now
        self._poll_not_before = now
        self.failures = 0
        self._empty = 0
        self._urgent = False

    def next_start(
        self,
        held_runs: HeldRuns,
        holding: int,
        now: float,
        *,
        wants_runs: bool,
        news: float = _NEVER,
        several: bool = False,
    ) -> float:
        """When to start the next exchange; a time that has passed means at once.

        wants_runs: the worker takes more runs at all. news: when there is something to report that may interrupt a long
        poll, but no other exchange. several: there is another server to use.
        """
        at = self._wanted(held_runs, holding, now, wants_runs)
        if several and len(held_runs.flights) == 2:
            # The older one should be answered within a beat. To wait for its timeout would cost the lease.
            at = held_runs.flights[0].sent + self._beat
        if news < at and all(flight.waits for flight in held_runs.flights) and len(held_runs.flights) < 2:
            at = news
        return at if at == _NEVER else max(at, self._not_before)

    def _wanted(self, held_runs: HeldRuns, holding: int, now: float, wants_runs: bool) -> float:
        flights = held_runs.flights
        if len(flights) >= 2:
            return _NEVER
        beat_due = self._last_start + self._beat
        if flights and not flights[0].waits:
            return beat_due
        if self._urgent or held_runs.rejected_outcomes.busy:
            return now
        if held_runs.pending:
            # A quarter of the capacity: server and worker both have work while half of it is here and half in flight.
            enough = holding == 0 or len(held_runs.pending) >= held_runs.capacity // 4
            return now if enough else min(held_runs.pending_since + BATCH_SECONDS, beat_due)
        if flights:
            asks_again = wants_runs and flights[0].request.free == 0 and held_runs.free(holding) > 0
            return now if asks_again else beat_due
        if holding:
            # Runs that have just arrived may end in a moment. Then one exchange reports them and asks for more.
            return max(self._last_landing + BATCH_SECONDS, self._poll_not_before)
        return self._poll_not_before

    def hurry(self, now: float) -> None:
        """Start the next exchange at once, even during the pause after a failure."""
        self._urgent = True
        self._not_before = now

    def started(self, now: float) -> None:
        self._last_start = now
        self._urgent = False

    def landed(self, flight: Flight, now: float, *, useful: bool, pause: float = 0.0) -> None:
        """An exchange was answered. `useful`: the answer brought something. A server that keeps answering long polls
        early with nothing new must not keep the worker spinning: each such answer makes the next pause longer.
        `pause`: the server has too much to do, and wants no exchange for so many seconds."""
        self._last_landing = now
        self.failures = 0
        self._not_before = now + min(pause, self._beat)
        early = flight.waits and not useful and now - flight.sent < flight.request.wait_ms / 2000
        self._empty = self._empty + 1 if early else 0
        self._poll_not_before = now + min(_EMPTY_PAUSE * self._empty, _LONGEST_EMPTY_PAUSE)

    def failed(self, now: float, *, elsewhere: bool = False) -> None:
        """An exchange failed. `elsewhere`: the next one goes to a server that has not failed, so it need not wait."""
        self._not_before = now if elsewhere else now + backoff(self.failures, cap=min(_LONGEST_PAUSE, self._beat))
        self.failures += 1

    def refused(self, now: float, *, elsewhere: bool = False, holding: int = 0) -> None:
        """A server refused the exchange. A worker that holds runs tries again within a beat: after a longer pause one
        refusal could cost it the lease, and all its runs."""
        pause = min(_AFTER_REFUSAL, self._beat) if holding else _AFTER_REFUSAL
        self._not_before = now if elsewhere else now + pause


def pause_after(flight: Flight, reply: ExchangeReply, *, newest: bool) -> float:
    """For how many seconds the server wants no exchange. One that is the newest, and superseded without having waited
    for runs, has met a busy server or a row that is locked. Not every server says when to come back."""
    if reply.retry_in is not None:
        return max(0.0, reply.retry_in)
    return _AFTER_LOAD if reply.superseded and newest and not flight.waits else 0.0
