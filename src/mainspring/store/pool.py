"""Connection pools: `hot` for the statements of every job, whose plans must always use an index, and `reads`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import asyncpg

from mainspring.store.fair_queue import make_fair, queue_of

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy
Record = asyncpg.Record

# A table can be empty in one second and have 100,000 rows in the next, so the planner's statistics are useless. A
# cached plan with a sequential scan turned 80,000 reports/s into 9,000. With these settings the planner only uses
# indexes.
HOT_SETTINGS = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": "30s",
    "lock_timeout": "10s",
    # A process that is stopped between two statements holds its locks, including those of its leases. The timeout
    # releases them soon enough for the other nodes to take over.
    "idle_in_transaction_session_timeout": "2s",
}
READ_SETTINGS = {"jit": "off", "statement_timeout": "30s", "lock_timeout": "5s"}

# The errors that mean "PostgreSQL is unavailable or shutting down", as opposed to "this statement is wrong".
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


class NoFreeConnection(asyncpg.TooManyConnectionsError):  # type: ignore[misc] # asyncpg has no types
    """PostgreSQL's "sorry, too many clients already", in words that say what to do."""

    DETAIL = "PostgreSQL has no free connection (too many clients): its max_connections are all in use"
    FIX = "raise max_connections in PostgreSQL, or run fewer servers, schedulers and other clients"


async def _open(*args: Any, **options: Any) -> asyncpg.Connection:
    try:
        return await asyncpg.connect(*args, **options)
    except asyncpg.TooManyConnectionsError as error:
        raise NoFreeConnection(f"{NoFreeConnection.DETAIL}; {NoFreeConnection.FIX}") from error


@dataclass(frozen=True, slots=True)
class Store:
    """The connection pools of one database."""

    url: str
    hot: asyncpg.Pool
    reads: asyncpg.Pool
    connections: WeakSet[asyncpg.Connection] = field(default_factory=WeakSet)

    @property
    def urgent_wait(self) -> float:
        """For how many seconds an exchange has waited for a connection; 0 if none waits."""
        return max(queue_of(self.hot).urgent_wait, queue_of(self.reads).urgent_wait)

    def cut(self) -> None:
        """Terminate every connection, also those in use. The pools open new ones.

        A connection can be dead without an error, for example after a failover behind a virtual address. A statement on
        it would wait for `command_timeout`, and a node would not fire during that time although it holds its leases.
        """
        for connection in tuple(self.connections):
            connection.terminate()

    async def close(self) -> None:
        for pool in (self.hot, self.reads):
            pool.terminate()


async def connect(
    url: str, *, application: str, settings: dict[str, str] | None = None, timeout: float = 5.0
) -> asyncpg.Connection:
    """One connection outside the pools, for leases, LISTEN and migrations."""
    return await _open(
        url, server_settings={"application_name": f"mainspring {application}", **(settings or {})}, timeout=timeout
    )


async def open_store(url: str, *, application: str = "server", hot: int = 8, reads: int = 6) -> Store:
    connections: WeakSet[asyncpg.Connection] = WeakSet()

    async def note(connection: asyncpg.Connection) -> None:
        connections.add(connection)

    async def pool(size: int, settings: dict[str, str], kind: str) -> asyncpg.Pool:
        made = await asyncpg.create_pool(
            url,
            min_size=0,
            max_size=size,
            max_inactive_connection_lifetime=0,
            timeout=5,
            command_timeout=35,
            server_settings={"application_name": f"mainspring {application} {kind}", **settings},
            connect=_open,
            init=note,
            reset=_skip_reset,
        )
        return make_fair(made)

    return Store(url, await pool(hot, HOT_SETTINGS, "hot"), await pool(reads, READ_SETTINGS, "reads"), connections)


async def _skip_reset(_connection: Any) -> None:
    """Run no reset query when a connection is released. Sessions are never changed, and it would cost a round trip."""
