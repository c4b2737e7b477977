"""Connections. Two pools: `hot` for the path of every job, whose plans must never leave their index, and `reads`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import asyncpg

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy
Record = asyncpg.Record

# A table that is empty one second and holds 100,000 rows the next makes the planner's statistics worthless: a cached
# plan that walks the table turned 80,000 reports/s into 9,000. These settings leave only index paths to choose from.
HOT_SETTINGS = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": "30s",
    "lock_timeout": "10s",
    # A process that is stopped between two statements holds its locks, among them those of the leases it fires under:
    # no longer than the others need to take over in time.
    "idle_in_transaction_session_timeout": "2s",
}
READ_SETTINGS = {"jit": "off", "statement_timeout": "30s", "lock_timeout": "5s"}

# What tells "PostgreSQL is away or shutting down" from "this statement is wrong".
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
)


@dataclass(frozen=True, slots=True)
class Store:
    """The database as the product sees it."""

    url: str
    hot: asyncpg.Pool
    reads: asyncpg.Pool
    connections: WeakSet[asyncpg.Connection] = field(default_factory=WeakSet)

    def cut(self) -> None:
        """End every connection at once, also those in use: nobody answers on them any more. The pools open new ones.

        A connection can be dead without a word (a firewall that forgot it, a failover behind a virtual address). What
        waits on it would wait for `command_timeout`, and a node that holds its leases would not fire meanwhile.
        """
        for connection in tuple(self.connections):
            connection.terminate()

    async def close(self) -> None:
        for pool in (self.hot, self.reads):
            pool.terminate()


async def connect(
    url: str, *, application: str, settings: dict[str, str] | None = None, timeout: float = 5.0
) -> asyncpg.Connection:
    """One connection outside the pools (leases, LISTEN, migrations)."""
    return await asyncpg.connect(
        url, server_settings={"application_name": f"mainspring {application}", **(settings or {})}, timeout=timeout
    )


async def open_store(url: str, *, application: str = "server", hot: int = 8, reads: int = 6) -> Store:
    connections: WeakSet[asyncpg.Connection] = WeakSet()

    async def note(connection: asyncpg.Connection) -> None:
        connections.add(connection)

    async def pool(size: int, settings: dict[str, str], kind: str) -> asyncpg.Pool:
        return await asyncpg.create_pool(
            url,
            min_size=0,
            max_size=size,
            max_inactive_connection_lifetime=0,
            timeout=5,
            command_timeout=35,
            server_settings={"application_name": f"mainspring {application} {kind}", **settings},
            init=note,
            reset=_keep,
        )

    return Store(url, await pool(hot, HOT_SETTINGS, "hot"), await pool(reads, READ_SETTINGS, "reads"), connections)


async def _keep(_connection: Any) -> None:
    """No reset query when a connection goes back: we never change its session, and it costs a round trip."""
