"""How many runs to hold beyond the slots."""

from __future__ import annotations

import math

WINDOW = 0.075
MOST_PREFETCHED = 1000
_SHORTEST_SAMPLE = 0.001


class Prefetch:
    """Follows the rate of completions: `prefetch` is about the number of runs that ended in the last 75 ms.

    Without prefetch, 20 slots of no-ops are empty while an exchange is in flight. Tasks that take longer than the
    window gain nothing, and a run that waits here could run elsewhere: then `prefetch` is 0. A burst of slow runs that
    end together looks like a high rate; the mean duration tells the two apart.
    """

    def __init__(self, slots: int, now: float) -> None:
        self._slots = slots
        self._rate = 0.0
        self._busy = 0.0
        self._observed_at = now
        self.prefetch = 0

    def observe(self, now: float, completed: int, seconds: float) -> bool:
        """`completed` runs have ended since the last call and took `seconds` in all. False: it is too soon to tell."""
        elapsed = now - self._observed_at
        if elapsed < _SHORTEST_SAMPLE:
            return False
        self._observed_at = now
        weight = 1.0 - math.exp(-elapsed / WINDOW)
        self._rate += weight * (completed / elapsed - self._rate)
        self._busy += weight * (seconds / elapsed - self._busy)
        self.prefetch = self._worth_holding()
        return True

    def reset(self) -> None:
        """Other workers are idle: prefetch nothing until the rate is measured again."""
        self._rate = self._busy = 0.0
        self.prefetch = 0

    def _worth_holding(self) -> int:
        if self._rate <= 0.0:
            return 0
        mean = self._busy / self._rate
        if mean > WINDOW:
            return 0
        by_slots = self._slots * WINDOW / mean if mean > 0.0 else MOST_PREFETCHED
        return int(min(self._rate * WINDOW, by_slots, MOST_PREFETCHED))
