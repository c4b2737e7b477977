"""Two servers behind a load balancer, two schedulers and two workers, for benchmarks that kill some of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg

from mainspring.bench.arena import Arena, BenchWorker, Scheduler, free_port
from mainspring.bench.balancer import balanced

SLOTS = 16
PROCESSES = 6


class Cluster:
    """The processes. `url` is the load balancer's. `connection` is for checks of the benchmark."""

    def __init__(self, arena: Arena, ports: list[int], url: str, connection: asyncpg.Connection) -> None:
        self.arena = arena
        self.url = url
        self.connection = connection
        self.schedulers: list[Scheduler] = []
        self.workers: list[BenchWorker] = []
        self._ports = ports

    async def complete(self, started: Callable[[], None] = lambda: None) -> None:
        """Start the missing processes and wait until they are up. `started` is called for each."""
        taken = {server.port for server in self.arena.servers}
        missing = [port for port in self._ports if port not in taken]
        for starting in asyncio.as_completed([self.arena.start_server(scheduler=False, port=port) for port in missing]):
            await starting
            started()
        while len(self.schedulers) < 2:
            self.schedulers.append(await self.arena.start_scheduler())
            started()
        while len(self.workers) < 2:
            self.workers.append(await self.arena.start_worker(self.url, slots=SLOTS))
            started()

    async def reconnect(self) -> None:
        """Open `connection` again after a restart of PostgreSQL."""
        self.connection.terminate()
        self.connection = await self.arena.connect()

    async def owners(self, shards: list[int] | None = None) -> list[UUID]:
        """The current owners of these shards (or of all). Shards without an owner are left out."""
        rows = await self.connection.fetch(
            "select owner from mainspring.shard_leases "
            "where ($1::smallint[] is null or shard = any ($1)) and expires_at > (select clock_timestamp())",
            shards,
        )
        return [row["owner"] for row in rows]


@asynccontextmanager
async def cluster(arena: Arena, started: Callable[[], None]) -> AsyncIterator[Cluster]:
    """A complete cluster. `started` is called for each process that is up."""
    ports = [free_port(), free_port()]
    async with balanced(ports) as url:
        whole = Cluster(arena, ports, url, await arena.connect())
        try:
            await whole.complete(started)
            yield whole
        finally:
            whole.connection.terminate()
            await asyncio.to_thread(arena.end)  # before the balancer ends: workers sign off through it
