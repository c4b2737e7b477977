"""Samples what waits and runs every few seconds. One server at a time does so, and uses 2 % of a core at most."""

from __future__ import annotations

from mainspring.kernel.clock import Clock
from mainspring.kernel.logs import get_logger
from mainspring.store import gauges
from mainspring.store.pool import Store

log = get_logger("gauges")

_EVERY = 5.0
_REST = 50  # times as long as the sample took
_CLAIM = 60.0  # seconds


class GaugeSampler:
    name = "gauge_sampler"
    interval = 1.0

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run_once(self) -> int:
        """Take a sample if it is due. Returns how many runs are alive."""
        async with self._store.reads.acquire() as connection:
            taken_at = await gauges.claim_sample(connection, _CLAIM)
            if taken_at is None:
                return 0
            began = self._clock.monotonic()
            live = await gauges.sample(connection, taken_at)
            took = self._clock.monotonic() - began
            if not await gauges.finish_sample(connection, taken_at, max(_EVERY, _REST * took)):
                log.warning("a sample took so long that another server took it again", seconds=round(took, 1))
        return live
