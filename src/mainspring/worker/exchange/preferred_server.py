"""Brings a worker back to the server that it prefers.

Each worker prefers the servers in an order of its own (kernel/addresses.py), so that a pool of them spreads evenly. A
server that is restarted loses its workers to the others; when it is back, each of them finds out by a small question,
asked now and then and not by all at once. The worker moves between two exchanges, as the same incarnation.
"""

from __future__ import annotations

from collections.abc import Callable

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.config import Timing
from mainspring.kernel.logs import get_logger
from mainspring.worker.exchange.server_client import ServerClient

_LOOKS = 8  # in the shortest pause
_LONGEST_LOOK = 1.0

log = get_logger("homing")


class Pauses:
    """How long to wait before asking again. Pure: it is told the times.

    Doubling from `first` to `longest`, each half or one and a half times as long by chance. Only a server that has kept
    its worker for as long as the pause of the moment begins anew with the first: one that takes workers and loses them
    again is asked less and less.
    """

    def __init__(self, first: float, longest: float, chance: Callable[[], float]) -> None:
        self._first, self._longest = first, longest
        self._chance = chance
        self._pause = first
        self._settled: float | None = None  # when it came to the server it prefers
        self._ask_at: float | None = None

    def due(self, now: float, *, home: bool) -> bool:
        """Whether to ask now. `home`: there is no server that it would rather use."""
        if home:
            self._settled = now if self._settled is None else self._settled
            self._ask_at = None
            if now - self._settled >= self._pause:
                self._pause = self._first
            return False
        if self._ask_at is None:
            self._settled = None
            self._ask_at = self._next(now)
        if now < self._ask_at:
            return False
        self._pause = min(self._longest, self._pause * 2.0)
        self._ask_at = self._next(now)
        return True

    def _next(self, now: float) -> float:
        return now + self._pause * (0.5 + self._chance())


class PreferredServer:
    """`wish` is the server to move to, once no exchange is under way."""

    def __init__(
        self,
        server_client: ServerClient,
        timing: Timing,
        chance: Callable[[], float],
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        self.wish: str | None = None
        self._server_client = server_client
        self._look_every = min(_LONGEST_LOOK, timing.preferred_server_check / _LOOKS)
        self._answer_within = timing.beat
        self._clock = clock
        self._pauses = Pauses(timing.preferred_server_check, timing.preferred_server_check_longest, chance)

    async def run(self) -> None:
        while self._server_client.servers > 1:
            await self._clock.sleep(self._look_every)
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - a worker can do without
                log.warning("cannot ask for the preferred server", error=repr(error))

    async def run_once(self) -> str | None:
        """Ask the servers that the worker would rather use, the best first, if it is time; gives the first that is
        ready."""
        better = self._server_client.better
        if not self._pauses.due(self._clock.monotonic(), home=not better):
            return None
        for address in better:
            if await self._server_client.is_ready(address, self._answer_within):
                self.wish = address
                return address
        return None

    def move(self) -> None:
        """Go where the wish is. Call it while no exchange is under way."""
        wish, self.wish = self.wish, None
        if wish is not None and self._server_client.move(wish):
            log.info("going back to a server that is preferred", server=wish)
