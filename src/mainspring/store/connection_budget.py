"""How many connections this process may open, so that all servers and schedulers fit into PostgreSQL's max_connections.

Each process wants a fixed number. Where that is more than PostgreSQL has, all of them get the same share. A process is
counted by the connection of its pulse. New ones show up while others run, so the share is computed again and again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import msgspec

from mainspring.kernel.logs import get_logger
from mainspring.store.pool import LOG_CONNECTIONS, Store

log = get_logger("connections")

# The pulse, the listener, the leases, the heartbeats, the groups of exchanges, one for a moment (migration, token, new
# lanes), and the logs.
OUTSIDE_POOLS = 6 + LOG_CONNECTIONS
LEAST = 2  # a pool with fewer connections than this would wait for itself
_PATIENCE = 1.0  # seconds to wait for a connection of a busy pool that is to become smaller

_SEEN = """
select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) as usable,
       (count(*) filter (where application_name = 'mainspring pulse'))::int as processes,
       (count(*) filter (where application_name not like 'mainspring %'))::int as others
from pg_stat_activity
where backend_type = 'client backend'
"""


class PoolSizes(msgspec.Struct, frozen=True):
    """The sizes of the two pools."""

    hot: int
    reads: int

    @property
    def connections(self) -> int:
        """All connections that a process with such pools may open."""
        return self.hot + self.reads + OUTSIDE_POOLS


def share(wanted: PoolSizes, usable: int, processes: int) -> PoolSizes:
    """The sizes for one of `processes` processes that share `usable` connections: at most what it wants, and at least
    two for each pool."""
    pooled = usable // max(1, processes) - OUTSIDE_POOLS
    if pooled >= wanted.hot + wanted.reads:
        return wanted
    hot = min(wanted.hot, max(LEAST, pooled * wanted.hot // (wanted.hot + wanted.reads)))
    return PoolSizes(hot, min(wanted.reads, max(LEAST, pooled - hot)))


class ConnectionBudget:
    name = "connection_budget"
    interval = 5.0

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted = PoolSizes(store.hot.get_max_size(), store.reads.get_max_size())
        self._hot, self._reads = ResizablePool(store.hot), ResizablePool(store.reads)
        self._sizes: PoolSizes | None = None

    async def run_once(self, *, starting: bool = False) -> PoolSizes:
        """Read the limits of PostgreSQL and resize the pools. `starting`: this process has no pulse yet. A PgBouncer in
        transaction mode shares its connections itself, and ours would not show."""
        if not self._store.database.has_sessions:
            return self._wanted
        async with self._store.reads.acquire() as connection:
            seen = await connection.fetchrow(_SEEN)
        processes, usable = max(1, seen["processes"] + starting), seen["usable"] - seen["others"]
        sizes = share(self._wanted, usable, processes)
        if sizes != self._sizes:
            told = {"may_open": sizes.connections, "hot": sizes.hot, "reads": sizes.reads}
            log.detail("connections to PostgreSQL", **told, usable=usable, processes=processes)
            if sizes.connections * processes > usable:
                log.warning(
                    "PostgreSQL has too few connections for all servers and schedulers",
                    needed=sizes.connections * processes,
                    usable=usable,
                    processes=processes,
                    hint="raise max_connections in PostgreSQL, or run fewer servers and schedulers",
                )
        self._sizes = sizes
        await self._hot.resize(sizes.hot)
        await self._reads.resize(sizes.reads)
        self._store.searches.allow(max(1, sizes.reads // 2))
        return sizes


class ResizablePool:
    """Makes a pool of asyncpg smaller and larger again, up to the size with which it was created. asyncpg has no call
    for it: a place of the pool is taken from its queue, and its connection is closed."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool: Any = pool
        self._taken: list[Any] = []

    @property
    def size(self) -> int:
        most: int = self._pool.get_max_size()
        return most - len(self._taken)

    async def resize(self, size: int) -> None:
        """A busy pool may stay larger; the next call tries again."""
        while self.size < size:
            self._pool._queue.put_nowait(self._taken.pop())
        with suppress(TimeoutError):
            while self.size > size:
                async with asyncio.timeout(_PATIENCE):
                    place = await self._pool._queue.get()
                self._taken.append(place)
                place.terminate()
