"""One timer for many moments."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.kernel.clock import LoopClock, Timer

_NEVER = float("inf")
_ONE_DAY = 86400.0


class EarliestTimer:
    """Calls `callback` at the earliest moment that was asked for, and after `longest` seconds at the latest. `at` is
    that moment. The callback handles what is due and sets the timer again."""

    def __init__(self, clock: LoopClock, callback: Callable[[], None], *, longest: float = _ONE_DAY) -> None:
        self.at = _NEVER
        self._clock = clock
        self._callback = callback
        self._longest = longest
        self._timer: Timer | None = None

    def set(self, at: float, now: float) -> None:
        """Call back at `at`. A timer that is set for an earlier moment stays: that is cheaper than setting a new
        one."""
        if now < self.at <= at:
            return
        self.cancel()
        self.at = at
        self._timer = self._clock.call_later(min(self._longest, max(0.0, at - now)), self._fire)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.at = None, _NEVER

    def _fire(self) -> None:
        self._timer, self.at = None, _NEVER
        self._callback()
