"""Until when runs may go on, by the answers of the servers. No clock: the caller passes the time.

An acknowledged exchange is worth `Timing.kill` seconds, counted from just before it was sent. The answer `store_down`
acknowledges nothing, but it shows that not this worker is cut off. Ordinary runs may then go on as long as such answers
arrive, and at most `Timing.cut_off_grace` seconds after the last acknowledgement. Exclusive runs have no such grace:
another server may still reach the database, and give them to others.
"""

from __future__ import annotations

from mainspring.kernel.config import Timing

_NEVER = float("inf")
_LONGEST_MOMENT = 0.25


class Lease:
    """Before the first acknowledgement the worker holds nothing, and both ends are infinite."""

    def __init__(self, timing: Timing) -> None:
        self._kill = timing.kill
        self._grace = timing.cut_off_grace
        # A quarter of the time between the kill and the earliest rescue. The watchdog's head start comes on top.
        self.moment = min(_LONGEST_MOMENT, (timing.rescue - timing.beat_slack - timing.kill) / 4)
        self._acknowledged = -_NEVER
        self._store_down = -_NEVER

    @property
    def exclusive_end(self) -> float:
        """When exclusive runs must stop."""
        return _NEVER if self._acknowledged == -_NEVER else self._acknowledged + self._kill

    @property
    def end(self) -> float:
        """When everything must stop."""
        end = self.exclusive_end
        if end == _NEVER:
            return end
        return max(end, min(self._store_down + self._kill, self._acknowledged + self._grace))

    def acknowledge(self, sent: float) -> None:
        """An exchange sent at `sent` was carried out. A late answer to an older exchange does not shorten the lease."""
        self._acknowledged = max(self._acknowledged, sent)

    def hear_store_down(self, sent: float) -> None:
        """An exchange sent at `sent` was answered `store_down`: only the database is unreachable."""
        self._store_down = max(self._store_down, sent)

    def silence(self, now: float) -> float:
        """Seconds since the last acknowledgement."""
        return now - self._acknowledged

    def deadline(self, *, exclusive: bool, stopping: bool) -> float:
        """When the watchdog kills the worker: at the exclusive end while it has such runs, and a moment later once it
        has begun to stop them."""
        if not exclusive:
            return self.end
        return self.exclusive_end + self.moment if stopping else self.exclusive_end
