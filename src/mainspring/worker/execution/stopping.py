"""Stops running attempts: asks, waits for the grace, and asks again by force. Times out those that take too long."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import assert_never

from mainspring.kernel.clock import LoopClock
from mainspring.kernel.logs import get_logger
from mainspring.worker.about_order import about
from mainspring.worker.earliest_timer import EarliestTimer
from mainspring.worker.execution.attempt import (
    Attempt,
    Report,
    Stop,
    StopSupport,
    ending_after_stop,
    grace_of,
)

_LEAST_GRACE = 0.05
_UNWIND_SECONDS = 0.05  # how long an exception may take to unwind a thread

log = get_logger("runner")


class Stopping:
    """`active` are the attempts that run. `report_early` reports an attempt that goes on after its timeout."""

    def __init__(
        self,
        active: Set[Attempt],
        *,
        kill_grace: float,
        clock: LoopClock,
        report_early: Report,
        notify: Callable[[], None],
    ) -> None:
        self._active = active
        self._kill_grace = kill_grace
        self._clock = clock
        self._report_early = report_early
        self._notify = notify
        self.deadlines = EarliestTimer(clock, self._time_out)

    def ask(self, attempt: Attempt, why: Stop) -> None:
        attempt.stopping = why
        if attempt.on_stop is not None:
            attempt.on_stop()
        match attempt.stops_by:
            case StopSupport.CANCELLATION:
                self._cancel(attempt)
            case StopSupport.REQUEST:
                pass
            case StopSupport.NOTHING:
                self._insist_later(attempt)
            case _:
                assert_never(attempt.stops_by)

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.carrier is not None:
            attempt.carrier.cancel()
        self._insist_later(attempt)

    def _insist_later(self, attempt: Attempt) -> None:
        grace = max(_LEAST_GRACE, grace_of(attempt.order, self._kill_grace))
        self._clock.call_later(grace, self._insist, attempt)

    def _insist(self, attempt: Attempt) -> None:
        """A coroutine caught its cancellation and went on, or a thread did not check its flag. Cancel the coroutine
        again, raise an exception in the thread, and report a timeout even if the attempt goes on."""
        if attempt not in self._active or attempt.fenced or attempt.stops_by is StopSupport.REQUEST:
            return
        log.warning("a task ignores its cancellation", task=attempt.order.task, **about(attempt.order))
        if attempt.stops_by is StopSupport.CANCELLATION:
            self._cancel(attempt)
        else:
            if attempt.kill is not None:
                attempt.kill()
            self._insist_later(attempt)
        if attempt.stopping is Stop.TIMEOUT and not attempt.reported:
            self._clock.call_later(_UNWIND_SECONDS, self._abandon, attempt)

    def _abandon(self, attempt: Attempt) -> None:
        """A timed-out attempt goes on: report it now; its slot stays occupied until it returns. An exclusive one is not
        reported before it has returned, because another attempt must not overlap it."""
        if attempt.reported or attempt not in self._active:
            return
        order = attempt.order
        log.warning(
            "a timed-out run keeps its slot until it returns", task=order.task, **about(order), timeout=order.timeout
        )
        if not order.exclusive:
            self._report_early(attempt, ending_after_stop(attempt))
            self._notify()

    def _time_out(self) -> None:
        """One timer serves all attempts. It is set for the earliest deadline; most attempts end long before theirs."""
        now = self._clock.monotonic()
        waiting = [attempt for attempt in self._active if attempt.stopping is None]
        for attempt in waiting:
            if attempt.deadline <= now:
                self.ask(attempt, Stop.TIMEOUT)
        ahead = [attempt.deadline for attempt in waiting if attempt.deadline > now]
        if ahead:
            self.deadlines.set(min(ahead), now)
