"""Injects faults into a cluster, and records each with its target and its times."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.cluster.arena import Arena
from tests.cluster.children import Child, Seat
from tests.cluster.history import Injection
from tests.cluster.load import Clients
from tests.cluster.recovery import time_to_recover
from tests.processes.cluster import eventually

_PATIENCE = 120.0


class Injector:
    """Injects faults into an arena. All choices come from `chance`, so that the same seed gives the same choices."""

    def __init__(self, arena: Arena, clients: Clients, chance: random.Random) -> None:
        self.arena = arena
        self.clients = clients
        self.chance = chance
        self.alone = True

    def pick(self, role: str) -> Seat:
        return self.chance.choice(self.arena.seats_of(role))

    async def living(self, seat: Seat) -> Child:
        """The process of the seat, when it is ready."""

        async def look() -> bool:
            return seat.child is not None and seat.child.alive and seat.child.ready and not seat.child.paused

        await eventually(look, _PATIENCE, f"{seat.name} is at work")
        assert seat.child is not None
        return seat.child

    @asynccontextmanager
    async def fault(
        self, name: str, target: str, *, whole: bool = False, cuts: bool = False, from_end: bool = False
    ) -> AsyncIterator[Injection]:
        """Record a fault and its recovery time: from its begin, or from its end if only the repair can help."""
        injection = Injection(name, target, time.monotonic(), whole=whole, cuts=cuts, alone=self.alone)
        self.arena.injections.append(injection)
        measuring = None
        if not from_end:  # starts when the fault itself first waits, which is after it was injected
            measuring = asyncio.create_task(time_to_recover(self.arena, injection.begin, _PATIENCE))
        try:
            yield injection
        finally:
            injection.end = time.monotonic()
        injection.recovery = await (measuring or time_to_recover(self.arena, injection.end, _PATIENCE))


Fault = Callable[[Injector], Awaitable[None]]
