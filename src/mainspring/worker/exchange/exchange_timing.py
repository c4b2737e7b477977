"""When the next exchange starts. Pure: it is told the time."""

from __future__ import annotations

from mainspring.kernel.lifecycle import backoff
from mainspring.worker.exchange.held_runs import Flight, HeldRuns

# Outcomes are gathered for this long while more of them may come. Alone they go at once.
GATHER = 0.005
_NEVER = float("inf")
_LONGEST_PAUSE = 1.0
_AFTER_REFUSAL = 5.0
_EMPTY_PAUSE = 0.005
_LONGEST_EMPTY_PAUSE = 0.1


class ExchangeTiming:
    """At most two exchanges are in the air: one parked, and one that reports. One starts at least every `beat`. A third
    is for another server, when those two wait for one that hangs."""

    def __init__(self, beat: float, now: float) -> None:
        self._beat = beat
        self._last_start = now - beat
        self._last_landing = now
        self._not_before = now
        self._park_not_before = now
        self.failures = 0
        self._empty = 0
        self._urgent = False

    def next_start(
        self,
        held_runs: HeldRuns,
        holding: int,
        now: float,
        *,
        hungry: bool,
        news: float = _NEVER,
        several: bool = False,
    ) -> float:
        """When to start the next exchange (now or earlier: at once). `hungry`: more runs are wanted at all. `news`:
        when there will be something to tell that may interrupt a parked exchange, but no other. `several`: there is
        another server to go to."""
        at = self._wanted(held_runs, holding, now, hungry)
        if several and len(held_runs.flights) == 2:
            # Within a beat the older one should have been answered. Waiting for its time limit would cost the lease.
            at = held_runs.flights[0].sent + self._beat
        if news < at and all(flight.parked for flight in held_runs.flights) and len(held_runs.flights) < 2:
            at = news
        return at if at == _NEVER else max(at, self._not_before)

    def _wanted(self, held_runs: HeldRuns, holding: int, now: float, hungry: bool) -> float:
        flights = held_runs.flights
        if len(flights) >= 2:
            return _NEVER
        beat_due = self._last_start + self._beat
        if flights and not flights[0].parked:
            return beat_due
        if self._urgent or held_runs.rejected_outcomes.busy:
            return now
        if held_runs.pending:
            # A quarter of what we may hold: with half of it here and half on its way, server and worker both have work.
            enough = holding == 0 or len(held_runs.pending) >= held_runs.capacity // 4
            return now if enough else min(held_runs.pending_since + GATHER, beat_due)
        if flights:
            asks_again = hungry and flights[0].request.free == 0 and held_runs.free(holding) > 0
            return now if asks_again else beat_due
        if holding:
            # What has just arrived may be done in a moment; then one exchange reports it and asks for more.
            return max(self._last_landing + GATHER, self._park_not_before)
        return self._park_not_before

    def hurry(self, now: float) -> None:
        """The next exchange has something to say that cannot wait, not even for a pause after a failure."""
        self._urgent = True
        self._not_before = now

    def started(self, now: float) -> None:
        self._last_start = now
        self._urgent = False

    def landed(self, flight: Flight, now: float, *, useful: bool) -> None:
        """`useful` is whether it brought anything, or took anything along. A server that answers a long poll early
        with nothing new, again and again, must not keep us spinning."""
        self._last_landing = now
        self.failures = 0
        self._not_before = now
        early = flight.parked and not useful and now - flight.sent < flight.request.wait_ms / 2000
        self._empty = self._empty + 1 if early else 0
        self._park_not_before = now + min(_EMPTY_PAUSE * self._empty, _LONGEST_EMPTY_PAUSE)

    def failed(self, now: float, *, elsewhere: bool = False) -> None:
        """`elsewhere`: the next exchange goes to a server that is not known to be in trouble, so it need not wait."""
        self._not_before = now if elsewhere else now + backoff(self.failures, cap=min(_LONGEST_PAUSE, self._beat))
        self.failures += 1

    def refused(self, now: float, *, elsewhere: bool = False, holding: int = 0) -> None:
        """Who holds runs asks again within a beat: a pause as long as the lease would cost them all for one refusal."""
        pause = min(_AFTER_REFUSAL, self._beat) if holding else _AFTER_REFUSAL
        self._not_before = now if elsewhere else now + pause
