"""Ends what a draining worker still runs: waits, then asks, then kills."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mainspring.kernel.clock import LoopClock
from mainspring.kernel.config import Timing
from mainspring.kernel.logs import get_logger
from mainspring.worker.execution.attempt import Stop
from mainspring.worker.execution.runner import Runner

_AFTER_KILL = 1.0  # seconds that killed runs have to disappear

log = get_logger("worker")


class Drain:
    def __init__(self, runner: Runner, timing: Timing, clock: LoopClock) -> None:
        self._runner = runner
        self._timing = timing
        self._clock = clock
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Do not wait any longer for runs to end by themselves."""
        self._hurried.set()

    async def end_runs(self) -> None:
        """Returns when no run is left, or those that are left have been reported as failed."""
        if await self._quiet_within(self._timing.drain_grace):
            return
        log.warning("stopping what still runs", runs=self._runner.holding)
        self._runner.stop_all(Stop.DRAIN)
        if not await self._quiet_within(self._timing.kill_grace + 0.5):
            self._runner.kill_all()
            self._hurried.clear()
            await self._quiet_within(_AFTER_KILL)
        self._runner.abandon_all("worker stopped")

    async def _quiet_within(self, seconds: float) -> bool:
        """True if all runs end within `seconds`; False after that, or when `hurry` is called."""
        quiet = asyncio.create_task(self._runner.wait_quiet())
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(seconds):
                    await asyncio.wait({quiet, hurried}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (quiet, hurried):
                task.cancel()
        return quiet.done() and not quiet.cancelled()
