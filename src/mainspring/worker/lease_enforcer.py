"""Acts on the lease: stops each kind of run in time, says when all runs must end, and tells the watchdog the deadline.

Ordinary and exclusive runs have ends of their own (lease.py). When one kind is to end while the other goes on, its runs
are stopped and reported, and the incarnation continues. When nothing else goes on, the incarnation ends.
"""

from __future__ import annotations

import os

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.config import Timing
from mainspring.kernel.logs import get_logger
from mainspring.wire.exchange import LeaseGrant
from mainspring.worker.execution.runner import Runner
from mainspring.worker.lease import WorkerLease
from mainspring.worker.processes.death_record import EXIT_FENCED as EXIT_FENCED
from mainspring.worker.processes.watchdog_client import WatchdogClient

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
        self._lease = WorkerLease(timing)
        self._ordinary_stopped = False
        self._exclusive_stopped = False
        self._store_down_since: float | None = None
        self._store_down_sent = 0.0

    @property
    def store_away(self) -> bool:
        """The latest answer of a server was `store_down`."""
        return self._store_down_since is not None

    @property
    def kill(self) -> float:
        """For how long an acknowledgement lasts, at least."""
        return min(self._lease.grant.kill, self._lease.grant.exclusive_kill)

    @property
    def next_check(self) -> float:
        """When `enforce` has something to do if no answer arrives before."""
        lease = self._lease
        ordinary = lease.end if self._ordinary_stopped else lease.ordinary_end
        exclusive = lease.end if self._exclusive_stopped else lease.exclusive_end
        return min(ordinary, exclusive)

    def enforce(self, now: float) -> str | None:
        """Do what is due. Returns a reason if the lease has ended and all runs must end."""
        if now < self.next_check:
            return None
        lease = self._lease
        if now >= lease.end:
            return self._end(now)
        if now >= lease.ordinary_end and not self._ordinary_stopped:
            if not self._runner.holds_exclusive():
                return self._end(now)
            self._stop_ordinary(now)
        elif now >= lease.exclusive_end and not self._exclusive_stopped:
            self._stop_exclusive()
        return None

    def _end(self, now: float) -> str | None:
        if self._runner.holding:
            return f"no acknowledgement for {self._lease.silence(now):.1f} s"
        self.reset()  # nothing to kill; outcomes are kept, because a server may still accept them later
        return None

    def acknowledge(self, sent: float) -> None:
        """An exchange sent at `sent`, less than `kill` ago, was carried out."""
        self._lease.acknowledge(sent)
        self._ordinary_stopped = self._exclusive_stopped = False

    def grant(self, grant: LeaseGrant) -> None:
        """A server has stored this lease for the incarnation."""
        if grant != self._lease.grant:
            log.detail("lease granted", kill=grant.kill, exclusive_kill=grant.exclusive_kill)
            self._lease.extend(grant)

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
        """The worker holds nothing any more. The grant holds for as long as the incarnation does."""
        self._start_over(self._lease.grant)

    def new_incarnation(self) -> None:
        """A new incarnation has been granted nothing yet."""
        self._start_over(None)

    def guard(self) -> None:
        """Tell the watchdog when to kill this worker if it does not act."""
        deadline = self._deadline() if self._runner.holding else _NEVER
        self._watchdog.set_deadline(None if deadline == _NEVER else deadline)

    def _deadline(self) -> float:
        """The end of that kind of runs which ends first, as long as there are any. A moment later once they have been
        told to stop. The other kind is only looked for if there are none: this is called for each answer."""
        lease = self._lease
        ordinary, exclusive = lease.ordinary_end, lease.exclusive_end
        if exclusive < ordinary:
            if not self._runner.holds_exclusive():
                return ordinary
            return exclusive + lease.moment if self._exclusive_stopped else exclusive
        if ordinary < exclusive:
            if not self._runner.holds_ordinary():
                return exclusive
            return ordinary + lease.moment if self._ordinary_stopped else ordinary
        return ordinary

    def _start_over(self, grant: LeaseGrant | None) -> None:
        self._lease = WorkerLease(self._timing, grant)
        self._ordinary_stopped = self._exclusive_stopped = False
        self.guard()

    def _stop_ordinary(self, now: float) -> None:
        """They are handed back: the run is at least once, and the fault is not its own. Others may have taken it when
        the report arrives, and then the report is fenced."""
        self._ordinary_stopped = True
        stopped = self._runner.stop_kind(exclusive=False)
        if stopped:
            log.warning(
                "no acknowledgement: stopping ordinary runs", silence=round(self._lease.silence(now), 1), runs=stopped,
                exclusive=self._runner.holding - stopped,
            )  # fmt: skip
        self._check_later(stopped)

    def _stop_exclusive(self) -> None:
        """They have started, so they are reported as failed when the database is back. If they were dropped instead, a
        recovery would miss them in the inventory and hand them out a second time."""
        self._exclusive_stopped = True
        stopped = self._runner.stop_kind(exclusive=True)
        if stopped:
            log.warning("database away: stopping exclusive runs", runs=stopped, others=self._runner.holding - stopped)
        self._check_later(stopped)

    def _check_later(self, stopped: int) -> None:
        if stopped:
            self.guard()
            self._clock.call_later(self._lease.moment, self._check_stopped, self._lease)

    def _check_stopped(self, lease: WorkerLease) -> None:
        if lease is not self._lease:
            return  # the lease is over
        for stopped, exclusive in ((self._ordinary_stopped, False), (self._exclusive_stopped, True)):
            if stopped and self._runner.holds_unkillable(exclusive=exclusive):
                kind = "an exclusive" if exclusive else "an ordinary"
                log.error(f"{kind} run does not stop: ending the worker process", runs=self._runner.holding)
                os._exit(EXIT_FENCED)
        self.guard()
