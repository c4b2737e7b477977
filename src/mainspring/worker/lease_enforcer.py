"""Acts on the lease: stops exclusive runs in time, says when all runs must end, and tells the watchdog the deadline."""

from __future__ import annotations

import os

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.config import Timing
from mainspring.kernel.logs import get_logger
from mainspring.worker.execution.runner import Runner
from mainspring.worker.lease import Lease
from mainspring.worker.processes.watchdog_client import WatchdogClient

EXIT_FENCED = 70
_NEVER = float("inf")

log = get_logger("worker")


class LeaseEnforcer:
    def __init__(
        self, runner: Runner, watchdog: WatchdogClient, timing: Timing, clock: LoopClock = SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._runner = runner
        self._watchdog = watchdog
        self._timing = timing
        self._lease = Lease(timing)
        self._cut_off = False
        self._store_down_since: float | None = None
        self._store_down_sent = 0.0

    @property
    def store_away(self) -> bool:
        """The latest answer of a server was `store_down`."""
        return self._store_down_since is not None

    @property
    def next_look(self) -> float:
        """When `enforce` has something to do if no answer arrives before."""
        return self._lease.end if self._cut_off else self._lease.exclusive_end

    def enforce(self, now: float) -> str | None:
        """Do what is due. Returns a reason if the lease has ended and all runs must end."""
        if now >= self._lease.end:
            if self._runner.holding:
                return f"no acknowledgement for {self._lease.silence(now):.1f} s"
            self.reset()  # nothing to kill; outcomes are kept, because a server may still accept them later
        elif now >= self._lease.exclusive_end and not self._cut_off:
            self._stop_exclusive()
        return None

    def acknowledge(self, sent: float) -> None:
        """An exchange sent at `sent`, less than `kill` ago, was carried out."""
        self._lease.acknowledge(sent)
        self._cut_off = False

    def hear_store_down(self, sent: float, now: float) -> None:
        """A server answered that only its database is unreachable."""
        self._lease.hear_store_down(sent)
        self._store_down_sent = max(self._store_down_sent, sent)
        if self._store_down_since is None:
            self._store_down_since = now
            grace = self._timing.cut_off_grace
            log.warning("the server says that the database is away", runs=self._runner.holding, grace=grace)

    def store_answers(self, sent: float, now: float) -> None:
        """A server gave another answer. It is ignored if a later exchange was already answered `store_down`."""
        if self._store_down_since is not None and sent > self._store_down_sent:
            log.info("the database is back", away_for=round(now - self._store_down_since, 1))
            self._store_down_since = None

    def reset(self) -> None:
        """The worker holds nothing any more."""
        self._lease, self._cut_off = Lease(self._timing), False
        self.guard()

    def guard(self) -> None:
        """Tell the watchdog when to kill this worker if it does not act."""
        lease, deadline = self._lease, _NEVER
        if self._runner.holding:
            exclusive = lease.end > lease.exclusive_end and self._runner.holds_exclusive()
            deadline = lease.deadline(exclusive=exclusive, stopping=self._cut_off)
        self._watchdog.set_deadline(None if deadline == _NEVER else deadline)

    def _stop_exclusive(self) -> None:
        """They have started, so they are reported as failed when the database is back. If they were dropped instead, a
        recovery would miss them in the inventory and hand them out a second time."""
        self._cut_off = True
        stopped = self._runner.cut_off()
        if stopped:
            log.warning("database away: stopping exclusive runs", runs=stopped, others=self._runner.holding - stopped)
            self.guard()
            self._clock.call_later(self._lease.moment, self._check_stopped, self._lease)

    def _check_stopped(self, lease: Lease) -> None:
        if lease is not self._lease or not self._cut_off:
            return  # acknowledged meanwhile, or the lease is over
        if self._runner.holds_exclusive(unkillable=True):
            log.error("an exclusive run does not stop: ending the worker process", runs=self._runner.holding)
            os._exit(EXIT_FENCED)
        self.guard()
