"""A scheduler node for tests. Its clocks stand still at the database's time. The test calls scan, wheel and fire."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from mainspring.kernel.clock import DatabaseClock, ManualClock
from mainspring.kernel.config import Timing
from mainspring.kernel.ids import uuid7
from mainspring.operations.signals import Signals
from mainspring.scheduler.due_loader import DueLoader, Wheel
from mainspring.scheduler.due_queue import DueQueue
from mainspring.scheduler.firer import Firer
from mainspring.scheduler.timing_wheel import TimingWheel
from mainspring.store import leases
from mainspring.store.lanes import LaneRegistry
from mainspring.store.pool import Store
from tests.store.rows import now_of

TIMING = Timing()


class Node:
    """Holds every shard, unless a test changes `held`. Its time is a little later than `now`, so that a job with the
    fire time `now` is due."""

    def __init__(self, store: Store, now: datetime, node_id: UUID) -> None:
        self.node_id = node_id
        self.now = now
        self.clock = ManualClock(datetime(2026, 11, 15, tzinfo=UTC))
        self.database_clock = DatabaseClock(self.clock)
        self.database_clock.observe(now, self.clock.monotonic(), self.clock.monotonic())
        self.clock.advance(0.01)
        self.held: dict[int, int] = {}
        self.ready: list[dict[int, int]] = []
        signals = Signals(store)
        signals.ready.subscribe(lambda created: self.ready.append(dict(created)))
        self.wheel: Wheel = TimingWheel(self.database_clock.timestamp())
        lanes = LaneRegistry(store)
        self.queue = DueQueue(lanes.priority_of)
        self.firer = Firer(
            store,
            self.wheel,
            self.queue,
            lambda: self.held,
            self.node_id,
            signals,
            self.clock,
            self.database_clock,
            TIMING.look_ahead,
        )
        self.loader = DueLoader(store, lanes, self.wheel, self.queue, lambda: self.held, self.firer.in_flight, TIMING)

    async def turn(self) -> int:
        """One scan, one turn of the wheel, one fire. Returns the number of created runs."""
        await self.loader.run_once()
        return await self.fire()

    async def fire(self) -> int:
        """Fire what is due, and wait for the jobs that somebody holds."""
        return await self.fire_free() + await self.firer.held_jobs.wait()

    async def fire_free(self) -> int:
        """As in production: the jobs that somebody holds are fired later."""
        return await self.firer.fire(self.wheel.advance(self.database_clock.timestamp()))


async def a_node(store: Store, connection: asyncpg.Connection) -> Node:
    """A node that owns all shards for longer than any test takes."""
    node = Node(store, await now_of(connection), uuid7())
    node.held = await leases.take(connection, node.node_id, range(128), 600.0)
    return node


def a_twin(store: Store, node: Node) -> Node:
    """A second node with the same state as the first one."""
    twin = Node(store, node.now, node.node_id)
    twin.held = dict(node.held)
    return twin
