"""How many runs to hold beyond the slots."""

from __future__ import annotations

import math

WINDOW = 0.075
MOST_PREFETCHED = 1000
_SHORTEST_SAMPLE = 0.001


class Prefetch:
    """Follows the pace of completions: about what was completed in the last 75 ms is worth holding in advance.

    Without it 20 slots of no-ops are empty while an exchange is under way. With tasks that take longer than the
    window there is nothing to gain, and a run that waits here could be running elsewhere: then it is zero. A burst
    of slow runs that end together looks fast; the mean time they took tells them apart.
    """

    def __init__(self, slots: int, now: float) -> None:
        self._slots = slots
        self._rate = 0.0
        self._busy = 0.0
        self._observed_at = now
        self.prefetch = 0

    def observe(self, now: float, completed: int, seconds: float) -> bool:
        """`completed` runs ended since the last look, having taken `seconds` in all; False when it is too soon."""
        elapsed = now - self._observed_at
        if elapsed < _SHORTEST_SAMPLE:
            return False
        self._observed_at = now
        weight = 1.0 - math.exp(-elapsed / WINDOW)
        self._rate += weight * (completed / elapsed - self._rate)
        self._busy += weight * (seconds / elapsed - self._busy)
        self.prefetch = self._worth_holding()
        return True

    def rest(self) -> None:
        """What was held in advance is wanted elsewhere: hold nothing until the pace has shown itself again."""
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
