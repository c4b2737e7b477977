"""Until when runs may go on, by what the servers answered. Pure: it is told the times.

An acknowledged exchange is worth `Timing.kill` seconds from the moment just before it was sent. A server that answers
`store_down` acknowledges nothing, but it says that we are not the one who is cut off: ordinary runs may then go on, for
as long as such answers keep coming and no longer than `Timing.cut_off_grace` after the last acknowledgement. Exclusive
runs have no such grace: a server elsewhere may still reach the database, and give them to others.
"""

from __future__ import annotations

from mainspring.kernel.config import Timing

_NEVER = float("inf")
_LONGEST_MOMENT = 0.25


class Lease:
    """Nothing is held before the first acknowledgement: both ends are infinite."""

    def __init__(self, timing: Timing) -> None:
        self._kill = timing.kill
        self._grace = timing.cut_off_grace
        # A quarter of what lies between the kill and the earliest rescue; the watchdog's head start comes on top.
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
        """An exchange sent at `sent` was carried out. An older one that is answered late moves nothing back."""
        self._acknowledged = max(self._acknowledged, sent)

    def hear_store_down(self, sent: float) -> None:
        """An exchange sent at `sent` was answered: only the database is away."""
        self._store_down = max(self._store_down, sent)

    def silence(self, now: float) -> float:
        """Seconds since the last acknowledgement."""
        return now - self._acknowledged

    def deadline(self, *, exclusive: bool, stopping: bool) -> float:
        """What the watchdog holds the worker to: the exclusive end while it still has such runs, with a moment more
        once it has begun to stop them."""
        if not exclusive:
            return self.end
        return self.exclusive_end + self.moment if stopping else self.exclusive_end
