"""Slots: starts what is queued, times it out, stops it.

Runs are driven by *carriers*. A carrier is an asyncio task that takes queued runs one after the other for as long as
they finish without suspending; the first that suspends keeps the carrier for itself, and another one carries on with
the queue. So a no-op costs no task of its own (a task each would add 2.4 µs to the 8 µs that a no-op costs the worker
in all, with uvloop on 3.11), and whatever suspends is an ordinary task: current_task(), timeouts and cancellation work
in it as anywhere. Each run has a context of its own: context variables do not leak into the next.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import os
import types
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, assert_never

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, Timer
from mainspring.kernel.logs import get_logger
from mainspring.worker.execution.attempt import (
    CANCELLED,
    RETURNED,
    Attempt,
    Ending,
    Execute,
    Executor,
    Report,
    Stop,
    StopSupport,
    ending_after_stop,
    failed,
    grace_of,
)
from mainspring.worker.execution.task_concurrency import TaskConcurrency

_SLICE_SECONDS = 0.003
_SLICE_RUNS = 250
_BLOCKED_SECONDS = 0.5
_LONGEST_TIMER = 86400.0
_LEAST_GRACE = 0.05
_MOMENT = 0.05  # so long an exception may take to unwind a thread
_EXIT_FORKED = 70
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})

_CUT_SHORT = failed("the worker's loop was closed")

log = get_logger("runner")


class Runner:
    """`report` is given each ending once; `tell` is called when outcomes or free slots have come about. `limits` are
    the tasks of which only so many may run at a time: the others pass by a run that must wait for its task."""

    def __init__(
        self,
        slots: int,
        executors: Iterable[Executor],
        *,
        kill_grace: float,
        report: Report,
        tell: Callable[[], None],
        limits: Mapping[str, int] = _NO_LIMITS,
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        self.slots = slots
        self._clock = clock
        self._now = clock.monotonic
        self.active: set[Attempt] = set()
        self.queue: deque[Attempt] = deque()
        self._executors = tuple(executors)
        self._offers: dict[str, Execute] = {}
        self._unkillable: set[str] = set()
        for executor in self._executors:
            offers = executor.offers()
            self._offers.update(offers)
            if not executor.killable:
                self._unkillable.update(offers)
        self._limits = TaskConcurrency(limits)
        self._limited = self._limits.any
        self._kill_grace = kill_grace
        self._report = report
        self._tell = tell
        self._carrying = False
        self._context = contextvars.copy_context()
        self._alarm: Timer | None = None
        self._alarm_at = float("inf")
        self._abandoned = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._pid = os.getpid()
        forget = weakref.WeakMethod(self._forget_what_is_not_ours)
        os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    @property
    def tasks(self) -> list[str]:
        return sorted(self._offers)

    @property
    def holding(self) -> int:
        return self.unstarted + len(self.active)

    @property
    def unstarted(self) -> int:
        """How many wait for a slot, or for their task."""
        return len(self.queue) + len(self._limits) if self._limited else len(self.queue)

    def hands(self) -> Iterator[Attempt]:
        """All that is held, queued or running."""
        return itertools.chain(self.active, self.queue, self._limits)

    def longest_wait(self, now: float) -> float:
        """For how long the first in the queue has been waiting for a slot. While one is free its turn comes at once, or
        as soon as a busy machine lets it."""
        if not self.queue or len(self.active) < self.slots:
            return 0.0
        return now - self.queue[0].received

    def stuck_for(self, now: float) -> float:
        """For how long no slot has become free."""
        if len(self.active) < self.slots:
            return 0.0
        return now - max(attempt.started for attempt in self.active)

    def take(self, attempts: Iterable[Attempt]) -> None:
        """Queue runs and start as many as there are slots."""
        self.queue.extend(attempts)
        self._carry_on()

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """End one run: an unstarted one is reported CANCELLED at once, a running one when it is gone."""
        if attempt in self.active:
            self._ask_to_stop(attempt, why)
            return
        self._collect_set_aside()
        if attempt in self.queue:
            self.queue.remove(attempt)
            self._finish(attempt, CANCELLED)
            self._tell()

    def stop_all(self, why: Stop) -> None:
        for attempt in list(self.active):
            if attempt.stopping is None:
                self._ask_to_stop(attempt, why)

    def return_unstarted(self, keep: int = 0) -> int:
        """Hand queued runs back, the last received first, until `keep` are left; says how many."""
        self._collect_set_aside()
        surplus = max(0, len(self.queue) - keep)
        for _ in range(surplus):
            self._finish(self.queue.pop(), RETURNED)
        if surplus:
            self._tell()
        return surplus

    def kill_all(self) -> None:
        for executor in self._executors:
            executor.kill_all()

    def abandon_all(self, error: str) -> None:
        """Report all that still runs as failed: the process is about to end, and they with it. What must never overlap
        another attempt is left to the rescue of a lost worker's runs, which comes when the process is gone."""
        for attempt in self.active:
            if not attempt.order.exclusive:
                self._report_early(attempt, failed(error))

    def fence_off(self) -> bool:
        """Kill all runs and report none of them. False when some can only be ended by ending the process."""
        self.kill_all()
        self._collect_set_aside()
        for attempt in (*self.queue, *self.active):
            attempt.fenced = True
        self.queue.clear()
        return not any(attempt.order.task in self._unkillable for attempt in self.active)

    def cut_off(self) -> int:
        """Hand back what has not started, and stop the exclusive runs, at once if possible; says how many those are."""
        self.return_unstarted()
        exclusive = self._exclusive()
        for attempt in exclusive:
            if attempt.stopping is None:
                self._ask_to_stop(attempt, Stop.CUT_OFF)
            if attempt.kill is not None:
                attempt.kill()
        return len(exclusive)

    def holds_exclusive(self, *, unkillable: bool = False) -> bool:
        """Whether a run is started or queued that must never overlap another attempt; of those that were told to stop,
        `unkillable` leaves only the ones that may not have heeded it."""
        if unkillable:
            return any(attempt.order.task in self._unkillable for attempt in self._exclusive())
        return any(attempt.order.exclusive for attempt in self.hands() if not attempt.reported)

    def _exclusive(self) -> list[Attempt]:
        """What is reported is the server's to judge already: a timed-out thread, which only keeps its slot."""
        return [attempt for attempt in self.active if attempt.order.exclusive and not attempt.reported]

    async def wait_quiet(self) -> None:
        """Returns once nothing runs whose ending has yet to be reported."""
        await self._quiet.wait()

    def _carry_on(self) -> None:
        if self._carrying or not self.queue or len(self.active) >= self.slots:
            return
        self._carrying = True
        carrier = asyncio.get_running_loop().create_task(self._carry(), context=self._context.copy())
        carrier.add_done_callback(self._carrier_ended)

    def _forget_what_is_not_ours(self) -> None:
        """In a process that a task has forked: what is queued is run by the one that it was given to."""
        self.queue.clear()

    def _carrier_ended(self, carrier: asyncio.Task[None]) -> None:
        if os.getpid() != self._pid:  # a task forked, and this is the copy that came back from it
            os._exit(_EXIT_FORKED)
        if not carrier.cancelled() and (error := carrier.exception()) is not None:
            # Only a mistake of ours ends here. A worker that lives on without carrying anything would be worse.
            log.error("a carrier failed", error=repr(error), exc_info=error)
            self._carrying = False
            self._carry_on()

    async def _carry(self) -> None:
        """Run what is queued until one suspends, the queue is empty, or the loop must have its turn."""
        queue, offers, report, monotonic = self.queue, self._offers, self._report, self._now
        fresh_context, limited = self._context.copy, self._limited
        carrier = asyncio.current_task()
        assert carrier is not None
        began = monotonic()
        for _ in range(_SLICE_RUNS):
            # A run that cancelled its own task without suspending must not have the next one cancelled for it.
            if not queue or len(self.active) >= self.slots or carrier.cancelling():
                break
            attempt = queue.popleft()
            if limited and self._limits.set_aside(attempt):
                continue
            attempt.started = started = monotonic()
            if started - began > _SLICE_SECONDS:
                queue.appendleft(attempt)
                attempt.started = 0.0
                break
            execute = offers.get(attempt.order.task)
            if execute is None:
                self._finish(attempt, failed(f"this worker does not offer the task {attempt.order.task}"))
                continue
            context = fresh_context()
            try:
                coroutine = execute(attempt)
                waits_for = context.run(coroutine.send, None)
            except StopIteration as end:
                attempt.reported = True
                report(attempt, end.value)
                continue
            except BaseException as error:  # noqa: BLE001 - an executor's own fault must not stop the others
                self._finish(attempt, failed(f"the executor failed: {error!r}"))
                continue
            self._suspended(attempt, carrier, started)
            await self._carry_to_end(attempt, coroutine, context, waits_for)
            return
        self._carrying = False
        self._tell()
        asyncio.get_running_loop().call_soon(self._carry_on)

    async def _carry_to_end(
        self, attempt: Attempt, coroutine: Coroutine[Any, Any, Ending], context: contextvars.Context, waits_for: Any
    ) -> None:
        ending = _CUT_SHORT
        try:
            ending = await _rest_of(coroutine, context, waits_for)
        except Exception as error:  # noqa: BLE001 - an executor's own fault must not stop the others
            ending = failed(f"the executor failed: {error!r}")
        finally:
            self.active.discard(attempt)
            if self._limited and (following := self._limits.ended(attempt.order.task)) is not None:
                self.queue.appendleft(following)
            self._abandoned -= attempt.reported
            self._finish(attempt, ending)
            if len(self.active) == self._abandoned:
                self._quiet.set()
            self._tell()
            self._carry_on()

    def _suspended(self, attempt: Attempt, carrier: asyncio.Task[None], started: float) -> None:
        """It will take its time: it keeps the carrier, and from now on it can be stopped and can time out."""
        attempt.carrier = carrier
        attempt.deadline = started + attempt.order.timeout
        self.active.add(attempt)
        if self._limited:
            self._limits.started(attempt.order.task)
        self._quiet.clear()
        self._carrying = False
        self._carry_on()
        if attempt.deadline < self._alarm_at:
            self._set_alarm(attempt.deadline)
        blocked = self._now() - started
        if blocked > _BLOCKED_SECONDS:
            log.warning("a task blocked the worker; a plain def runs in a thread", task=attempt.order.task, s=blocked)
        self._tell()

    def _collect_set_aside(self) -> None:
        """Back into the queue, at its end; whose turn it is not is set aside again."""
        if self._limited:
            self.queue.extend(self._limits.release())

    def _finish(self, attempt: Attempt, ending: Ending) -> None:
        if not attempt.reported:
            attempt.reported = True
            self._report(attempt, ending)

    def _ask_to_stop(self, attempt: Attempt, why: Stop) -> None:
        attempt.stopping = why
        if attempt.on_stop is not None:
            attempt.on_stop()
        match attempt.heeds:
            case StopSupport.CANCELLATION:
                self._cancel(attempt)
            case StopSupport.REQUEST:
                pass
            case StopSupport.NOTHING:
                self._insist_later(attempt)
            case _:
                assert_never(attempt.heeds)

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.carrier is not None:
            attempt.carrier.cancel()
        self._insist_later(attempt)

    def _insist_later(self, attempt: Attempt) -> None:
        grace = max(_LEAST_GRACE, grace_of(attempt.order, self._kill_grace))
        self._clock.call_later(grace, self._insist, attempt)

    def _insist(self, attempt: Attempt) -> None:
        """A coroutine caught its cancellation and went on, or a thread did not look at its flag: ask again, a thread by
        an exception, and do not let it hide a timeout."""
        if attempt not in self.active or attempt.fenced or attempt.heeds is StopSupport.REQUEST:
            return
        log.warning("a task ignores its cancellation", task=attempt.order.task, run=str(attempt.order.run_id))
        if attempt.heeds is StopSupport.CANCELLATION:
            self._cancel(attempt)
        else:
            if attempt.kill is not None:
                attempt.kill()
            self._insist_later(attempt)
        if attempt.stopping is Stop.TIMEOUT and not attempt.reported:
            self._clock.call_later(_MOMENT, self._abandon, attempt)

    def _abandon(self, attempt: Attempt) -> None:
        """A timed-out run goes on regardless: report it now; its slot stays taken until it returns. One that must never
        overlap another attempt is not reported before."""
        if attempt.reported or attempt not in self.active:
            return
        order = attempt.order
        log.warning("a timed-out run keeps its slot until it returns", task=order.task, timeout=order.timeout)
        if not order.exclusive:
            self._report_early(attempt, ending_after_stop(attempt))
            self._tell()

    def _report_early(self, attempt: Attempt, ending: Ending) -> None:
        if not attempt.reported:
            self._abandoned += 1
            self._finish(attempt, ending)
            if len(self.active) == self._abandoned:
                self._quiet.set()

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        delay = min(_LONGEST_TIMER, max(0.0, at - self._now()))
        self._alarm = self._clock.call_later(delay, self._time_out)

    def _time_out(self) -> None:
        """One timer for all: it is set for the earliest deadline, and most runs are gone long before theirs."""
        now = self._now()
        self._alarm, self._alarm_at = None, float("inf")
        waiting = [attempt for attempt in self.active if attempt.stopping is None]
        for attempt in waiting:
            if attempt.deadline <= now:
                self._ask_to_stop(attempt, Stop.TIMEOUT)
        ahead = [attempt.deadline for attempt in waiting if attempt.deadline > now]
        if ahead:
            self._set_alarm(min(ahead))


@types.coroutine
def _rest_of(
    coroutine: Coroutine[Any, Any, Ending], context: contextvars.Context, waits_for: Any
) -> Generator[Any, Any, Ending]:
    """Drive `coroutine` on from its first suspension, in its own context, as part of the task that awaits this."""
    try:
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - handed to the coroutine, as await does
                waits_for = context.run(coroutine.throw, error)
            else:
                waits_for = context.run(coroutine.send, value)
    except StopIteration as end:
        ending: Ending = end.value
        return ending
