"""The warm children of a worker: as many as are kept busy, the last used first.

Starting one takes a fifth of a second of CPU, a no-op in it a tenth of a millisecond. So beyond the children that are
kept warm another one is started only when a run has waited for a while and none has come free.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock, Timer
from mainspring.kernel.logs import get_logger
from mainspring.worker.executors.process.child import Unfit, WarmChild

RUNS_EACH = 20_000
IDLE_SECONDS = 60.0
_PATIENCE = 0.1
_LOOK_EVERY = 1000
_MOST_GROWTH = 64 * 1024 * 1024

log = get_logger("process")


class ProcessPool:
    """`warm` children are kept even when idle; `most` is how many there may be. Each is replaced after `runs_each`
    runs, and after every thousand when it has grown by 64 MiB: so a task that leaks can take so much and no more."""

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
        self._clock = clock
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
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._abreast = os.cpu_count() or 1
        self._closed = False

    @property
    def size(self) -> int:
        return len(self._idle) + len(self._busy) + len(self._starting)

    def warm_up(self) -> None:
        """Start what is missing of the children that are kept warm."""
        for _ in range(self._warm - self.size):
            self._start_one()

    def take_idle(self) -> WarmChild | None:
        if not self._idle:
            return None
        child, _ = self._idle.pop()
        self._busy.add(child)
        return child

    def wait_for_one(self) -> asyncio.Future[WarmChild]:
        """The next child that is free or started. Cancel the future to give up; Unfit when none can be started."""
        future: asyncio.Future[WarmChild] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, self._now()))
        self._grow()
        return future

    def give_back(self, child: WarmChild, *, fit: bool) -> None:
        """A child whose run is over. One that is not fit for another is killed, if it has not been buried already."""
        self._busy.discard(child)
        if fit and not child.lost and not self._worn(child):
            self._offer(child)
            return
        self._retire(child)
        self.warm_up()
        self._grow()

    def _worn(self, child: WarmChild) -> bool:
        # By growth first: to replace a sound one every thousand runs would cost more than all of its no-ops.
        leaks = child.runs % _LOOK_EVERY == 0 and child.growth() > _MOST_GROWTH
        return leaks or child.runs >= self._runs_each

    def kill_busy(self) -> None:
        for child in self._busy:
            child.command.kill()

    def close(self) -> None:
        """All go with the worker."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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
            self._look_again_in(self._idle_seconds)

    def _grow(self) -> None:
        """Start children for those who wait, if starting some is likely to be quicker than waiting."""
        while self._waiting and self._waiting[0][0].done():
            self._waiting.popleft()
        most_starting = 0 if self._closed else min(len(self._waiting), self._abreast)
        while len(self._starting) < most_starting and self.size < self._most:
            waited = self._now() - self._waiting[0][1]
            if self.size >= self._warm and waited < _PATIENCE:
                self._look_again_in(_PATIENCE - waited)
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
        except Exception as error:  # also a mistake of ours: who waits must not wait for ever
            self._starting.discard(task)
            log.error("no child interpreter", error=str(error), exc_info=None if isinstance(error, Unfit) else error)
            self._refuse_all(error if isinstance(error, Unfit) else Unfit(repr(error)))
            return
        finally:
            self._starting.discard(task)
        child.on_lost = self._lost
        self._offer(child)
        self._grow()

    def _refuse_all(self, error: Unfit) -> None:
        """The next child would fare no better."""
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_exception(error)

    def _lost(self, child: WarmChild) -> None:
        """It died; a busy one is its run's affair."""
        before = len(self._idle)
        self._idle = [entry for entry in self._idle if entry[0] is not child]
        if len(self._idle) < before:
            log.warning("an idle child interpreter ended", pid=child.command.pid)
            self._retire(child)
            self.warm_up()

    def _retire(self, child: WarmChild) -> None:
        child.on_lost = None
        task = asyncio.get_running_loop().create_task(child.bury())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _look_again_in(self, seconds: float) -> None:
        at = self._now() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self._grow()
        now = self._now()
        while len(self._idle) > self._warm and now - self._idle[0][1] >= self._idle_seconds:
            self._retire(self._idle.pop(0)[0])
        if len(self._idle) > self._warm:
            self._look_again_in(max(0.1, self._idle[0][1] + self._idle_seconds - now))
