"""Slots: starts queued runs, times them out, stops them.

Runs are driven by *carriers*. A carrier is an asyncio task that takes one queued run after the other as long as they
end without suspending. The first run that suspends keeps the carrier, and another carrier continues with the queue. So
a no-op needs no task of its own: a task for each would add 2.4 µs to the 8 µs that a no-op costs the worker in all
(uvloop on 3.11). A run that suspends is an ordinary task, in which current_task(), timeouts and cancellation work as
usual. Each run has its own context: context variables do not leak into the next run.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import os
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.logs import get_logger
from mainspring.worker.about_order import about
from mainspring.worker.execution.attempt import (
    CANCELLED,
    RETURNED,
    Attempt,
    AttemptEnding,
    Execute,
    Executor,
    Report,
    Stop,
    failed,
)
from mainspring.worker.execution.quarantine import Quarantine
from mainspring.worker.execution.stopping import Stopping
from mainspring.worker.execution.task_concurrency import TaskConcurrency

_SLICE_SECONDS = 0.003
_SLICE_RUNS = 250
_BLOCKED_SECONDS = 0.5
_EXIT_FORKED = 70
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})

_LOOP_CLOSED = failed("the worker's loop was closed")

log = get_logger("runner")


class Runner:
    """`report` is called once for each ending; `notify` is called when there are new outcomes or free slots.
    `record_start` is called before an exclusive run starts, `say_start` when a run has not ended at once.
    `task_limits` say how many runs of a task may be active at a time; a run that waits for its task does not block
    others."""

    def __init__(
        self,
        slots: int,
        executors: Iterable[Executor],
        *,
        kill_grace: float,
        report: Report,
        notify: Callable[[], None],
        record_start: Callable[[Attempt], None] | None = None,
        say_start: Callable[[Attempt], None] | None = None,
        task_limits: Mapping[str, int] = _NO_LIMITS,
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        self.slots = slots
        self._now = clock.monotonic
        self.active: set[Attempt] = set()
        self.queue: deque[Attempt] = deque()
        self._executors = tuple(executors)
        self._offers: dict[str, Execute] = {}
        self._unkillable: set[str] = set()
        self._executor_of: dict[str, Executor] = {}
        self.quarantine = Quarantine(
            lambda task: task in self._executor_of and not self._executor_of[task].isolates,
            lambda task: task in self._executor_of and self._executor_of[task].has_processes,
            clock.monotonic,
        )
        for executor in self._executors:
            offers = executor.offers()
            self._offers.update(offers)
            self._executor_of.update(dict.fromkeys(offers, executor))
            if not executor.killable:
                self._unkillable.update(offers)
        self._limits = TaskConcurrency(task_limits)
        self._limited = self._limits.any
        self._report = report
        self._notify = notify
        self._record_start = record_start
        self._say_start = say_start
        self._carrying = False
        self._context = contextvars.copy_context()
        self._stopping = Stopping(
            self.active, kill_grace=kill_grace, clock=clock, report_early=self._report_early, notify=notify
        )
        self._abandoned = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._pid = os.getpid()
        # In a process that a task has forked, the runs that wait belong to the parent.
        drop = weakref.WeakMethod(self.drop_unstarted)
        os.register_at_fork(after_in_child=lambda: (method := drop()) and method())

    @property
    def tasks(self) -> list[str]:
        return sorted(self._offers)

    @property
    def holding(self) -> int:
        return self.unstarted + len(self.active)

    @property
    def unstarted(self) -> int:
        """How many runs wait for a slot, for the limit of their task, or for the end of the others."""
        waiting = len(self.queue) + len(self._limits) if self._limited else len(self.queue)
        return waiting if self.quarantine.waiting is None else waiting + 1

    def held(self) -> Iterator[Attempt]:
        """All attempts, queued or active."""
        lone = self.quarantine.waiting
        return itertools.chain(self.active, self.queue, self._limits, () if lone is None else (lone,))

    def longest_wait(self, now: float) -> float:
        """How long the first run of the queue has waited for a slot. While a slot is free the answer is 0: the run
        starts at once, or as soon as a busy machine allows."""
        if not self.queue or len(self.active) < self.slots:
            return 0.0
        return now - self.queue[0].received

    def stuck_for(self, now: float) -> float:
        """How long no slot has become free."""
        if len(self.active) < self.slots:
            return 0.0
        return now - max(attempt.started for attempt in self.active)

    def take(self, attempts: Iterable[Attempt]) -> None:
        """Queue runs, and start as many as there are free slots."""
        self.queue.extend(attempts)
        if self.quarantine.wanted:  # claimed by an earlier exchange
            self._return_queue(0)
        self._carry_on()

    def start_lone(self) -> None:
        """Start the run that waits for the end of the others: there are none left, or it has waited for too long."""
        self.queue.append(self.quarantine.release())
        self._carry_on()

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """End one run. An unstarted run is reported CANCELLED at once, an active one when it is gone."""
        if attempt in self.active:
            self._stopping.ask(attempt, why)
            return
        self._collect_set_aside()
        if attempt is self.quarantine.waiting:
            self._finish(attempt, CANCELLED)
            self._notify()
        elif attempt in self.queue:
            self.queue.remove(attempt)
            self._finish(attempt, CANCELLED)
            self._notify()

    def stop_all(self, why: Stop) -> None:
        for attempt in list(self.active):
            if attempt.stopping is None:
                self._stopping.ask(attempt, why)

    def return_unstarted(self, keep: int = 0) -> int:
        """Return queued runs to the server, the last received first, until `keep` are left. Return their number."""
        self._collect_set_aside()
        returned = self._return_queue(keep)
        if not keep and (lone := self.quarantine.waiting) is not None:
            self._finish(lone, RETURNED)
            returned += 1
        if returned:
            self._notify()
        return returned

    def return_these(self, run_ids: Collection[UUID]) -> int:
        """Return those of these runs that have not started. Return their number."""
        self._collect_set_aside()
        chosen = [attempt for attempt in self.queue if attempt.order.run_id in run_ids]
        for attempt in chosen:
            self.queue.remove(attempt)
            self._finish(attempt, RETURNED)
        if chosen:
            self._notify()
        self._carry_on()
        return len(chosen)

    def drop_unstarted(self) -> None:
        """Forget the runs that have not started: the end of an active one starts none in its place. A worker that fails
        calls it. The server gives the runs to other workers when this one is gone."""
        self._limits.release()
        self.queue.clear()
        self.quarantine.over()

    def _return_queue(self, keep: int) -> int:
        surplus = max(0, len(self.queue) - keep)
        for _ in range(surplus):
            self._finish(self.queue.pop(), RETURNED)
        return surplus

    def kill_all(self) -> None:
        for executor in self._executors:
            executor.kill_all()

    def abandon_all(self, error: str) -> None:
        """Report all active runs as failed, because the process is about to end. Exclusive runs are not reported: the
        server rescues them when the process is gone, so that no other attempt overlaps them."""
        for attempt in self.active:
            if not attempt.order.exclusive:
                self._report_early(attempt, failed(error))

    def fence_off(self) -> bool:
        """Kill all runs and report none of them. False if some can only be ended by ending the process."""
        self.kill_all()
        self._collect_set_aside()
        for attempt in (*self.queue, *self.active):
            attempt.fenced = True
        self.queue.clear()
        self.quarantine.over()
        return not any(attempt.order.task in self._unkillable for attempt in self.active)

    def stop_kind(self, *, exclusive: bool) -> int:
        """Return unstarted runs and stop those of one kind, by force where possible. Return how many were stopped."""
        self.return_unstarted()
        chosen = self._active_of(exclusive=exclusive)
        for attempt in chosen:
            if attempt.stopping is None:
                self._stopping.ask(attempt, Stop.CUT_OFF if exclusive else Stop.HAND_BACK)
            if attempt.kill is not None:
                attempt.kill()
        return len(chosen)

    def holds_exclusive(self) -> bool:
        """Whether an exclusive run is queued or active."""
        return any(attempt.order.exclusive for attempt in self.held() if not attempt.reported)

    def holds_ordinary(self) -> bool:
        """Whether an ordinary run is queued or active."""
        return any(not attempt.order.exclusive for attempt in self.held() if not attempt.reported)

    def holds_unkillable(self, *, exclusive: bool) -> bool:
        """Whether a run of this kind is active that cannot be killed. It may have ignored the request to stop."""
        return any(attempt.order.task in self._unkillable for attempt in self._active_of(exclusive=exclusive))

    def _active_of(self, *, exclusive: bool) -> list[Attempt]:
        """Attempts that are reported do not count: a timed-out thread only occupies its slot."""
        return [attempt for attempt in self.active if attempt.order.exclusive == exclusive and not attempt.reported]

    async def wait_quiet(self) -> None:
        """Returns when every active attempt has been reported."""
        await self._quiet.wait()

    def _carry_on(self) -> None:
        if self._carrying or not self.queue or len(self.active) >= self.slots:
            return
        self._carrying = True
        carrier = asyncio.get_running_loop().create_task(self._carry(), context=self._context.copy())
        carrier.add_done_callback(self._carrier_ended)

    def _carrier_ended(self, carrier: asyncio.Task[None]) -> None:
        if os.getpid() != self._pid:  # a task forked, and this is the child process
            os._exit(_EXIT_FORKED)
        if not carrier.cancelled() and (error := carrier.exception()) is not None:
            # Only a bug in the worker leads here. It would be worse to continue without running anything.
            log.error("a carrier failed", error=repr(error), exc_info=error)
            self._carrying = False
            self._carry_on()

    async def _carry(self) -> None:
        """Run queued runs until one suspends, the queue is empty, or the event loop must have its turn."""
        queue, offers, report, monotonic = self.queue, self._offers, self._report, self._now
        fresh_context, limited, record_start = self._context.copy, self._limited, self._record_start
        carrier = asyncio.current_task()
        assert carrier is not None
        began = monotonic()
        for _ in range(_SLICE_RUNS):
            # A run may cancel its own task without suspending. The next run must not be cancelled for that.
            if not queue or len(self.active) >= self.slots or carrier.cancelling():
                break
            attempt = queue.popleft()
            if limited and self._limits.set_aside(attempt):
                continue
            if attempt.order.losses and self.quarantine.set_apart(attempt):
                self._make_way(attempt)
                break
            attempt.started = started = monotonic()
            if started - began > _SLICE_SECONDS:
                queue.appendleft(attempt)
                attempt.started = 0.0
                break
            if started > attempt.start_by and not attempt.order.losses:  # a run with losses had to wait in quarantine
                attempt.started = 0.0
                self._finish(attempt, RETURNED)
                continue
            execute = offers.get(attempt.order.task)
            if execute is None:
                self._finish(attempt, failed(f"this worker does not offer the task {attempt.order.task}"))
                continue
            if record_start is not None and attempt.order.exclusive:
                record_start(attempt)
            context = fresh_context()
            try:
                coroutine = execute(attempt)
                waits_for = context.run(coroutine.send, None)
            except StopIteration as end:
                attempt.reported = True
                report(attempt, end.value)
                continue
            except BaseException as error:  # noqa: BLE001 - a bug in an executor must not stop the others
                self._finish(attempt, failed(f"the executor failed: {error!r}"))
                continue
            self._suspended(attempt, carrier, started)
            await self._carry_to_end(attempt, coroutine, context, waits_for)
            return
        self._carrying = False
        self._notify()
        asyncio.get_running_loop().call_soon(self._carry_on)

    async def _carry_to_end(
        self,
        attempt: Attempt,
        coroutine: Coroutine[Any, Any, AttemptEnding],
        context: contextvars.Context,
        waits_for: Any,
    ) -> None:
        ending = _LOOP_CLOSED
        try:
            ending = await _rest_of(coroutine, context, waits_for)
        except Exception as error:  # noqa: BLE001 - a bug in an executor must not stop the others
            ending = failed(f"the executor failed: {error!r}")
        finally:
            self.active.discard(attempt)
            if self._limited and (following := self._limits.ended(attempt.order.task)) is not None:
                self.queue.appendleft(following)
            self._abandoned -= attempt.reported
            self._finish(attempt, ending)
            if len(self.active) == self._abandoned:
                self._quiet.set()
            self._notify()
            self._carry_on()

    def _suspended(self, attempt: Attempt, carrier: asyncio.Task[None], started: float) -> None:
        """The attempt keeps the carrier. From now on it can be stopped and can time out."""
        attempt.carrier = carrier
        attempt.deadline = started + attempt.order.timeout
        self.active.add(attempt)
        if self._limited:
            self._limits.started(attempt.order.task)
        self._quiet.clear()
        if self._say_start is not None:
            self._say_start(attempt)
        self._carrying = False
        self._carry_on()
        now = self._now()
        if attempt.deadline < self._stopping.deadlines.at:
            self._stopping.deadlines.set(attempt.deadline, now)
        blocked = now - started
        if blocked > _BLOCKED_SECONDS:
            order = attempt.order
            log.warning(
                "a task blocked the worker; a plain def runs in a thread", **about(order), task=order.task, s=blocked
            )
        self._notify()

    def _make_way(self, attempt: Attempt) -> None:
        """The attempt must run without neighbours. It waits, and what has not started goes back to the server."""
        if attempt is not self.quarantine.waiting:
            self.queue.append(attempt)
        self._collect_set_aside()
        self._return_queue(0)

    def _collect_set_aside(self) -> None:
        """Move the runs that wait for their task to the end of the queue. Those that must wait are set aside again."""
        if self._limited:
            self.queue.extend(self._limits.release())

    def _finish(self, attempt: Attempt, ending: AttemptEnding) -> None:
        if not attempt.reported:
            attempt.reported = True
            self._report(attempt, ending)

    def _report_early(self, attempt: Attempt, ending: AttemptEnding) -> None:
        if not attempt.reported:
            self._abandoned += 1
            self._finish(attempt, ending)
            if len(self.active) == self._abandoned:
                self._quiet.set()


@types.coroutine
def _rest_of(
    coroutine: Coroutine[Any, Any, AttemptEnding], context: contextvars.Context, waits_for: Any
) -> Generator[Any, Any, AttemptEnding]:
    """Continue `coroutine` from its first suspension, in its own context, within the task that awaits this."""
    try:
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - passed to the coroutine, as await does
                waits_for = context.run(coroutine.throw, error)
            else:
                waits_for = context.run(coroutine.send, value)
    except StopIteration as end:
        ending: AttemptEnding = end.value
        return ending
