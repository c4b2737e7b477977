"""Until when runs may go on, by the answers of the servers. No clock: the caller passes the time.

An acknowledged exchange is worth `kill` seconds to ordinary runs and `exclusive_kill` seconds to exclusive ones. They
count from just before it was sent. A server grants both; before that they are `Timing.base_kill`. The answer
`store_down` acknowledges nothing, but it shows that not this worker is cut off. Ordinary runs may then go on as long as
such answers arrive, and at most `Timing.cut_off_grace` seconds after the last acknowledgement. Exclusive runs have no
such grace: another server may still reach the database, and give them to others.

So either kind may be the first to end: with a grant ordinary runs, and without one, while the database is away,
exclusive runs.
"""

from __future__ import annotations

from mainspring.kernel.config import Timing
from mainspring.wire.exchange import LeaseGrant

_NEVER = float("inf")
_LONGEST_MOMENT = 0.25


class WorkerLease:
    """Before the first acknowledgement the worker holds nothing, and both ends are infinite."""

    def __init__(self, timing: Timing, grant: LeaseGrant | None = None) -> None:
        self.grant = grant or LeaseGrant(timing.base_kill, timing.base_kill)
        self._grace = timing.cut_off_grace
        # A quarter of the time between the kill and the earliest rescue. The watchdog's head start comes on top.
        self.moment = min(_LONGEST_MOMENT, (timing.base_rescue - timing.beat_slack - timing.base_kill) / 4)
        self._acknowledged = -_NEVER
        self._store_down = -_NEVER
        self.ordinary_end = _NEVER  # when ordinary runs must stop
        self.exclusive_end = _NEVER  # when exclusive runs must stop

    @property
    def end(self) -> float:
        """When everything must stop."""
        return max(self.ordinary_end, self.exclusive_end)

    def extend(self, grant: LeaseGrant) -> None:
        """A server has stored this lease for the incarnation."""
        self.grant = grant
        self._count()

    def acknowledge(self, sent: float) -> None:
        """An exchange sent at `sent` was carried out. A late answer to an older exchange does not shorten the lease."""
        self._acknowledged = max(self._acknowledged, sent)
        self._count()

    def hear_store_down(self, sent: float) -> None:
        """An exchange sent at `sent` was answered `store_down`: only the database is unreachable."""
        self._store_down = max(self._store_down, sent)
        self._count()

    def _count(self) -> None:
        acknowledged, kill = self._acknowledged, self.grant.kill
        if acknowledged == -_NEVER:
            return
        self.ordinary_end = max(acknowledged + kill, min(self._store_down + kill, acknowledged + self._grace))
        self.exclusive_end = acknowledged + self.grant.exclusive_kill

    def silence(self, now: float) -> float:
        """Seconds since the last acknowledgement."""
        return now - self._acknowledged
