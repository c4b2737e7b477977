"""The warm child processes of a worker. The last used child is used first, so that unused ones can be ended.

To start a child takes 0.2 s of CPU time; a no-op in it takes 0.1 ms. So beyond the children that are kept warm another
one is started only after a run has waited for a while and no child has become free.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.logs import get_logger
from mainspring.worker.earliest_timer import EarliestTimer
from mainspring.worker.executors.process.child import Unfit, WarmChild

RUNS_EACH = 20_000
IDLE_SECONDS = 60.0
_PATIENCE = 0.1
_LOOK_EVERY = 1000
_MOST_GROWTH = 64 * 1024 * 1024

log = get_logger("process")


class ProcessPool:
    """`warm` children are kept even when idle; `most` is the largest number of children. A child is replaced after
    `runs_each` runs, or earlier if it has grown by 64 MiB, which is checked every 1,000 runs. That bounds memory leaks
    of tasks."""

    def __init__(
        self,
        start: Callable[[], Awaitable[WarmChild]],
        *,
        most: int,
        warm: int,
        runs_each: int = RUNS_EACH,
        idle_seconds: float = IDLE_SECONDS,
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        self._now = clock.monotonic
        self._start = start
        self._most = most
        self._warm = min(warm, most)
        self._runs_each = runs_each
        self._idle_seconds = idle_seconds
        self._idle: list[tuple[WarmChild, float]] = []
        self._busy: set[WarmChild] = set()
        self._waiting: deque[tuple[asyncio.Future[WarmChild], float]] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._timer = EarliestTimer(clock, self._check)
        self._abreast = os.cpu_count() or 1
        self._closed = False

    @property
    def size(self) -> int:
        return len(self._idle) + len(self._busy) + len(self._starting)

    def warm_up(self) -> None:
        """Start the missing ones of the children that are kept warm."""
        for _ in range(self._warm - self.size):
            self._start_one()

    def take_idle(self) -> WarmChild | None:
        if not self._idle:
            return None
        child, _ = self._idle.pop()
        self._busy.add(child)
        return child

    def wait_for_one(self) -> asyncio.Future[WarmChild]:
        """The next child that becomes free or is started. Cancel the future to give up. It raises Unfit if no child can
        be started."""
        future: asyncio.Future[WarmChild] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, self._now()))
        self._grow()
        return future

    def give_back(self, child: WarmChild, *, fit: bool) -> None:
        """The run of this child is over. A child that is not fit for another run is killed."""
        self._busy.discard(child)
        if fit and not child.lost and not self._worn(child):
            self._offer(child)
            return
        self._retire(child, fit=fit)
        self.warm_up()
        self._grow()

    def _worn(self, child: WarmChild) -> bool:
        # Growth is checked first: to replace a healthy child every 1,000 runs would cost more than all of its no-ops.
        leaks = child.runs % _LOOK_EVERY == 0 and child.growth() > _MOST_GROWTH
        return leaks or child.runs >= self._runs_each

    def kill_busy(self) -> None:
        for child in self._busy:
            child.command.kill()

    def close(self) -> None:
        """End all children, at the end of the worker."""
        self._closed = True
        self._timer.cancel()
        for task in self._starting:
            task.cancel()
        for child in (*(child for child, _ in self._idle), *self._busy):
            child.on_lost = None
            child.close()
        self._idle.clear()

    def _offer(self, child: WarmChild) -> None:
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                self._busy.add(child)
                future.set_result(child)
                return
        self._idle.append((child, self._now()))
        if len(self._idle) > self._warm:
            self._check_in(self._idle_seconds)

    def _grow(self) -> None:
        """Start children for waiting runs, if that is likely to be quicker than to wait."""
        while self._waiting and self._waiting[0][0].done():
            self._waiting.popleft()
        most_starting = 0 if self._closed else min(len(self._waiting), self._abreast)
        while len(self._starting) < most_starting and self.size < self._most:
            waited = self._now() - self._waiting[0][1]
            if self.size >= self._warm and waited < _PATIENCE:
                self._check_in(_PATIENCE - waited)
                return
            self._start_one()

    def _start_one(self) -> None:
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._add())
        self._starting.add(task)

    async def _add(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            child = await self._start()
        except Exception as error:  # also a bug in the worker: no run may wait for ever
            self._starting.discard(task)
            log.error(
                "cannot start a child process", error=str(error), exc_info=None if isinstance(error, Unfit) else error
            )
            self._refuse_all(error if isinstance(error, Unfit) else Unfit(repr(error)))
            return
        finally:
            self._starting.discard(task)
        child.on_lost = self._lost
        self._offer(child)
        self._grow()

    def _refuse_all(self, error: Unfit) -> None:
        """The next child would fail as well."""
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_exception(error)

    def _lost(self, child: WarmChild) -> None:
        """A child has died. If it was busy, its run handles that."""
        before = len(self._idle)
        self._idle = [entry for entry in self._idle if entry[0] is not child]
        if len(self._idle) < before:
            log.warning("an idle child process ended", pid=child.command.pid)
            self._retire(child)
            self.warm_up()

    async def dismiss_all(self) -> None:
        """At the end of the worker, after its last run: let the children run their stop hooks. No new one is
        started."""
        self._closed = True
        idle, self._idle = [child for child, _ in self._idle], []
        for child in idle:
            child.on_lost = None
        await asyncio.gather(*(child.dismiss() for child in idle), *self._ending)

    def _retire(self, child: WarmChild, *, fit: bool = True) -> None:
        """End a child. One that is fit for another run may run its stop hooks."""
        child.on_lost = None
        task = asyncio.get_running_loop().create_task(child.dismiss() if fit else child.kill_and_wait())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _check_in(self, seconds: float) -> None:
        now = self._now()
        self._timer.set(now + seconds, now)

    def _check(self) -> None:
        self._grow()
        now = self._now()
        while len(self._idle) > self._warm and now - self._idle[0][1] >= self._idle_seconds:
            self._retire(self._idle.pop(0)[0])
        if len(self._idle) > self._warm:
            self._check_in(max(0.1, self._idle[0][1] + self._idle_seconds - now))
