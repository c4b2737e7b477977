"""Brings a worker back to the server that it prefers.

Each worker prefers the servers in its own order (kernel/addresses.py), so that a pool of workers spreads evenly. A
server that restarts loses its workers to the others. Each of them asks it now and then, at random times, whether it is
ready again. The worker moves between two exchanges and keeps its incarnation.
"""

from __future__ import annotations

from collections.abc import Callable

from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.config import Timing
from mainspring.kernel.logs import get_logger
from mainspring.worker.exchange.server_client import ServerClient

_CHECKS = 8  # checks within the shortest pause
_LONGEST_PAUSE = 1.0

log = get_logger("preferred_server")


class Pauses:
    """How long to wait before asking again. No clock: the caller passes the time.

    Pauses double from `first` to `longest`, and each is randomly scaled by 0.5 to 1.5. They start from `first` again
    only after the worker has stayed at its preferred server for as long as the current pause. So a server that takes
    workers and loses them again is asked less and less often.
    """

    def __init__(self, first: float, longest: float, chance: Callable[[], float]) -> None:
        self._first, self._longest = first, longest
        self._chance = chance
        self._pause = first
        self._settled: float | None = None  # since when the worker is at the server it prefers
        self._ask_at: float | None = None

    def due(self, now: float, *, at_preferred: bool) -> bool:
        """Whether to ask now. `at_preferred`: no other server is preferred to the current one."""
        if at_preferred:
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
    """`target` is the server to move to once no exchange is in flight."""

    def __init__(
        self,
        server_client: ServerClient,
        timing: Timing,
        chance: Callable[[], float],
        clock: LoopClock = SYSTEM_CLOCK,
    ) -> None:
        self.target: str | None = None
        self._server_client = server_client
        self._check_every = min(_LONGEST_PAUSE, timing.preferred_server_check / _CHECKS)
        self._answer_within = timing.beat
        self._clock = clock
        self._pauses = Pauses(timing.preferred_server_check, timing.preferred_server_check_longest, chance)

    async def run(self) -> None:
        while self._server_client.servers > 1:
            await self._clock.sleep(self._check_every)
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - the worker works without it
                log.warning("cannot check the preferred server", error=repr(error))

    async def run_once(self) -> str | None:
        """If it is time, ask the servers that are preferred to the current one, the best first. Returns the first that
        is ready."""
        better = self._server_client.better
        if not self._pauses.due(self._clock.monotonic(), at_preferred=not better):
            return None
        for address in better:
            if await self._server_client.is_ready(address, self._answer_within):
                self.target = address
                return address
        return None

    def move(self) -> None:
        """Use the target from now on. Call it while no exchange is in flight."""
        target, self.target = self.target, None
        if target is not None and self._server_client.move(target):
            log.info("going back to a preferred server", server=target)
