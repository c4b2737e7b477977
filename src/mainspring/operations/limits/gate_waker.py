"""Wakes workers that wait behind a gate: when it is given back, when a token comes, and when its settings change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mainspring.kernel.logs import get_logger
from mainspring.operations.claim.claimer import Claimer
from mainspring.operations.claim.long_poll import LongPolls
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.operations.signals import Signals
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import NOT_NOW, Store

log = get_logger("gates")

_TOKEN_MARGIN = 0.001  # seconds, so that the token is there by the database's clock too
_MANY = 1000  # runs of each lane that are offered when a gate has changed


class GateWaker:
    def __init__(
        self,
        store: Store,
        registry: GateRegistry,
        lanes: LaneRegistry,
        long_polls: LongPolls,
        claimer: Claimer,
        signals: Signals,
    ) -> None:
        self._store = store
        self._registry = registry
        self._lanes = lanes
        self._long_polls = long_polls
        self._claimer = claimer
        self._opened: dict[int, int] = {}
        self._changed = False
        self._waking: asyncio.Task[None] | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}
        signals.gates_freed.subscribe(self.freed)
        signals.gates_changed.subscribe(self.changed)

    def freed(self, gates: Mapping[int, int]) -> None:
        """Gates were given back so many times, or have so many tokens."""
        for gate_id, number in gates.items():
            if self._registry.get(gate_id) is not None:
                self._registry.open(gate_id)
                self._opened[gate_id] = self._opened.get(gate_id, 0) + number
        if self._opened:
            self._start()

    def changed(self) -> None:
        """Some gate has other settings: read them, offer what waits, and ask for what must come back."""
        self._changed = True
        self._start()

    def tokens_at(self, waits: Mapping[int, float]) -> None:
        """Note that these gates have a token after so many seconds."""
        loop = asyncio.get_running_loop()
        for gate_id, seconds in waits.items():
            before = self._timers.get(gate_id)
            timer = loop.call_later(seconds + _TOKEN_MARGIN, self._token, gate_id)
            if before is not None and not before.cancelled() and before.when() <= timer.when():
                timer.cancel()
                continue
            if before is not None:
                before.cancel()
            self._timers[gate_id] = timer

    def _token(self, gate_id: int) -> None:
        self._timers.pop(gate_id, None)
        self.freed({gate_id: 1})

    def _start(self) -> None:
        if self._waking is None or self._waking.done():
            self._waking = asyncio.create_task(self._wake())

    async def _wake(self) -> None:
        try:
            while self._opened or self._changed:
                changed, self._changed = self._changed, False
                opened, self._opened = self._opened, {}
                if changed:
                    async with self._store.for_short_reads().acquire() as connection:
                        await self._registry.load(connection)
                    self._long_polls.wake_holders()
                await self._offer(opened, everything=changed)
        except NOT_NOW as error:
            log.warning("workers that wait behind a gate were not woken; the next poll does it", error=repr(error))

    async def _offer(self, opened: Mapping[int, int], *, everything: bool) -> None:
        """Offer the runs behind these gates to the workers that wait here."""
        known = [lane for lane_id in self._long_polls.wanted_lanes() if (lane := self._lanes.peek(lane_id))]
        behind = [lane.lane_id for lane in known] if everything else self._registry.lanes_behind(opened.keys(), known)
        wanted = self._registry.unblocked(behind, self._lanes)
        if not wanted:
            return
        async with self._store.hot.acquire() as connection:
            ready = await self._claimer.ready_lanes(connection, wanted)
        self._long_polls.offer(dict.fromkeys(ready, _MANY if everything else sum(opened.values())))

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._waking is not None:
            self._waking.cancel()
            await asyncio.gather(self._waking, return_exceptions=True)
