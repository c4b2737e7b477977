"""Watches the event loop: how late it is, and what it was doing when it stood still.

The loop wakes every 50 ms and measures how late that is. A thread checks at the same time: when the loop has been due
for longer than 250 ms, it logs the stack of the loop's thread. Code that holds the interpreter holds up this thread
too; then the loop itself logs the stall afterwards, without a stack.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
import traceback

from mainspring.kernel import metrics
from mainspring.kernel.late_times import LateTimes, Period
from mainspring.kernel.logs import get_logger

log = get_logger("loop")

TICK = 0.05
STALL = 0.25
OVERLOAD = 0.1  # seconds of smoothed lag
BUSY_SHARE = 0.5  # of the time: below this, the lag comes from other processes
_LASTING = 8  # measures in a row with that lag: more than a second
_SHARE = 0.3  # of the newest measure in the smoothed one
_MOST_COUNTED = 1.0  # one long stall shall not be felt for minutes
_FRAMES = 30


class LoopMonitor:
    """`lag` is how late the loop is, in seconds and smoothed; `cpu_share` is the part of the time for which its thread
    had a CPU, smoothed; `last_stall_at` is when it last stood still, by the monotonic clock."""

    def __init__(self) -> None:
        self.lag = 0.0
        self.cpu_share = 0.0
        self._late_in_a_row = 0
        self.last_stall_at = float("-inf")
        self._due = float("inf")
        self._stack_logged_for = 0.0
        self._cpu = 0.0
        self._ticked_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._late = LateTimes(STALL)
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._stopping = threading.Event()

    @property
    def overloaded(self) -> bool:
        """Whether the loop has more to do than it gets done, for more than a second. On a machine that is busy with
        other things the loop is late too, but has little to do."""
        return self._late_in_a_row >= _LASTING and self.cpu_share > BUSY_SHARE

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._cpu = time.thread_time()
        self._ticked_at = time.monotonic()
        self._schedule()
        context = contextvars.copy_context()  # its lines shall say whose they are
        self._thread = threading.Thread(target=context.run, args=(self._watch,), name="loop-monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._due = float("inf")
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def late_periods(self, _now: float) -> list[Period]:
        """When the loop stood still."""
        return self._late.until(time.monotonic())

    def note(self, late: float, cpu_share: float) -> None:
        """The loop woke this much too late, and its thread had a CPU for this part of the time."""
        self.lag += (min(late, _MOST_COUNTED) - self.lag) * _SHARE
        self._late_in_a_row = self._late_in_a_row + 1 if self.lag > OVERLOAD else 0
        self.cpu_share += (cpu_share - self.cpu_share) * _SHARE

    # --- on the loop

    def _schedule(self) -> None:
        assert self._loop is not None
        self._due = time.monotonic() + TICK
        self._late.begin(self._due)
        self._handle = self._loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        now, cpu = time.monotonic(), time.thread_time()
        late = max(0.0, now - self._due)
        self.note(late, (cpu - self._cpu) / (now - self._ticked_at) if now > self._ticked_at else 1.0)
        self._late.end(now)
        metrics.loop_lag.set(self.lag)
        if late > STALL:
            self.last_stall_at = now
            metrics.loop_stalls.inc()
            metrics.loop_stall_seconds.observe(late)
            seen = self._stack_logged_for == self._due
            log.diagnostic(
                "event loop stalled" if seen else "event loop stalled in code that holds the interpreter",
                seconds=round(late, 3), cpu_seconds=round(cpu - self._cpu, 3),
            )  # fmt: skip
        self._cpu, self._ticked_at = cpu, now
        self._schedule()

    # --- in the thread

    def _watch(self) -> None:
        while not self._stopping.wait(TICK):
            due = self._due
            late = time.monotonic() - due
            if late > STALL and self._stack_logged_for != due:
                frame = sys._current_frames().get(self._loop_thread)
                stack = traceback.format_stack(frame)[-_FRAMES:] if frame is not None else []
                if self._due != due:  # it went on meanwhile: this is another stack
                    continue
                self._stack_logged_for = due
                log.diagnostic("event loop stalls", seconds=round(late, 3), stack="".join(stack))
