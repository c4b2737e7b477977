"""Connection pools: `hot` for the statements of every job, whose plans must always use an index, `reads`, `urgent` for
heartbeats, which wait for nothing else, `groups` for exchanges that are written together, and `logs` for the output of
runs, for which nothing else waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

import asyncpg

from mainspring.kernel.ids import TenantId
from mainspring.kernel.lifecycle import Outage
from mainspring.store.database import Database, Pooling, database_at
from mainspring.store.fair_queue import make_fair, queue_of
from mainspring.store.hosts import READ_WRITE, Host, hosts_of, names_target, open_first
from mainspring.store.outage_queue import OutageQueue
from mainspring.store.pooled_connection import StoreConnection, TransactionConnection
from mainspring.store.replica import MAX_STALENESS, Replica
from mainspring.store.searches import Searches

Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy
Record = asyncpg.Record

# Every connection has these settings.
#
# A process that is stopped inside a transaction holds its locks, and others wait for them. PostgreSQL ends such a
# transaction after two seconds. A machine that has vanished does not close its connections: PostgreSQL notices by
# keepalives, and after `tcp_user_timeout` when it has something to send. Sockets of the same machine ignore the latter.
SESSION_SETTINGS = {
    "idle_in_transaction_session_timeout": "2s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# A transaction whose client is gone without a trace can be neither idle nor at work: PostgreSQL waits for the rest of a
# message. From PostgreSQL 17 on it ends every transaction of a pool after this time.
_LONGEST_TRANSACTION = "60s"
_HAS_TRANSACTION_TIMEOUT = 17
# Those that say nothing about a transaction.
_OF_SESSIONS = frozenset(name for name in (*SESSION_SETTINGS, "idle_session_timeout") if "transaction" not in name)
# The keepalive settings, for this end of the connection.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 2),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 10_000),
)

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
}
READ_SETTINGS = {"jit": "off", "statement_timeout": "30s", "lock_timeout": "5s"}
# One statement for many exchanges. It waits for no row, so a lock that it waits for is that of a whole table.
GROUP_SETTINGS = {**HOT_SETTINGS, "statement_timeout": "5s", "lock_timeout": "200ms"}
URGENT_SETTINGS = {"jit": "off", "statement_timeout": "5s", "lock_timeout": "1s"}
# A shipment has up to 1,000 chunks, and joins them with the logs that they continue.
LOG_SETTINGS = {**HOT_SETTINGS, "enable_hashjoin": "on", "statement_timeout": "10s", "lock_timeout": "2s"}
LOG_CONNECTIONS = 2
_READS = 6
_CHANGES_AT_ONCE = _READS // 2

# The errors that mean "PostgreSQL is unavailable or shutting down", as opposed to "this statement is wrong".
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the end of a backend arrived between two statements
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby after a failover, or a host that saves the rest of the disk
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
)

# Those after which a change is tried again: PostgreSQL is away, or others hold the rows. Nothing of it is stored.
NOT_NOW = (*AWAY, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError, asyncpg.SerializationError)


class NoFreeConnection(asyncpg.TooManyConnectionsError):  # type: ignore[misc] # asyncpg has no types
    """PostgreSQL's "sorry, too many clients already", in words that say what to do."""

    DETAIL = "PostgreSQL has no free connection (too many clients): its max_connections are all in use"
    FIX = "raise max_connections in PostgreSQL, or run fewer servers, schedulers and other clients"


async def _open_somewhere(url: str, **options: Any) -> asyncpg.Connection:
    """At the primary, if the URL names several hosts and does not say what it wants."""
    hosts = hosts_of(url)
    if len(hosts) < 2:
        return await asyncpg.connect(url, **options)
    if not names_target(url):
        options["target_session_attrs"] = READ_WRITE

    async def open_one(host: Host) -> asyncpg.Connection:
        return await asyncpg.connect(url, host=host.name, port=host.port, **options)

    return await open_first(url, hosts, open_one)


async def _open(pooling: Pooling, *args: Any, server_settings: dict[str, str], **options: Any) -> asyncpg.Connection:
    """PgBouncer accepts no settings at the start of a connection but the name of the application."""
    first = {"application_name": server_settings["application_name"]}
    later = {name: value for name, value in server_settings.items() if name not in first}
    if pooling is Pooling.NONE:
        first, later = server_settings, {}
    options["connection_class"] = StoreConnection
    if pooling is Pooling.TRANSACTION:
        options |= {"connection_class": TransactionConnection, "statement_cache_size": 0}
    try:
        connection = await _open_somewhere(*args, server_settings=first, **options)
    except asyncpg.TooManyConnectionsError as error:
        raise NoFreeConnection(f"{NoFreeConnection.DETAIL}; {NoFreeConnection.FIX}") from error
    if pooling is Pooling.TRANSACTION:
        connection.use({name: value for name, value in later.items() if name not in _OF_SESSIONS})
    elif later:
        await connection.execute(" ".join(f"set {name} = '{value}';" for name, value in later.items()))
    _detect_dead_peers(connection)
    return connection


async def _open_in_pool(pooling: Pooling, *args: Any, **options: Any) -> asyncpg.Connection:
    """A connection of a pool, whose transactions are short."""
    connection = await _open(pooling, *args, **options)
    if pooling is not Pooling.TRANSACTION and connection.get_server_version().major >= _HAS_TRANSACTION_TIMEOUT:
        patience = options.get("timeout")  # of a machine that stops now
        await connection.execute(f"set transaction_timeout = '{_LONGEST_TRANSACTION}'", timeout=patience)
    return connection


@dataclass(frozen=True, slots=True)
class Store:
    """The connection pools of one database. `urgent` is one connection for short statements that wait for no row, and
    `groups` one for the groups of exchanges."""

    database: Database
    hot: asyncpg.Pool
    reads: asyncpg.Pool
    urgent: asyncpg.Pool
    groups: asyncpg.Pool
    logs: asyncpg.Pool
    connections: WeakSet[asyncpg.Connection] = field(default_factory=WeakSet)
    changes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CHANGES_AT_ONCE))
    searches: Searches = field(default_factory=Searches)
    outage: Outage = field(default_factory=lambda: Outage(*AWAY, refusal=asyncpg.ReadOnlySQLTransactionError))
    waiting: OutageQueue = field(init=False)
    urgent_waits: list[Callable[[], float]] = field(default_factory=list)
    replica: Replica | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "waiting", OutageQueue(self.outage))

    @property
    def url(self) -> str:
        return self.database.url

    @asynccontextmanager
    async def change(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        """A transaction that may wait for rows which others hold. Only half of `reads` may wait in this way, so that
        others can read meanwhile."""
        async with self.changes, self.reads.acquire() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def search(
        self, tenant: TenantId, *, seconds: float | None = None, isolation: str | None = None
    ) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        """A read-only transaction for a list or a search of this tenant. Raises SearchTooSlow or SearchesBusy."""
        async with self.searches.turn(tenant), self.read(seconds=seconds, isolation=isolation) as connection:
            yield connection

    @asynccontextmanager
    async def read(
        self, *, seconds: float | None = None, isolation: str | None = None
    ) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        """As `search`, but without waiting for a turn. For reads that must not wait for the searches of a tenant."""
        allowed = seconds or self.searches.seconds
        pool = self.replica.pool if self.replica is not None and self.replica.may_answer() else self.reads
        async with (
            pool.acquire() as connection,
            self.searches.limited(allowed),
            connection.transaction(isolation=isolation, readonly=True),
        ):
            await connection.execute(f"set local statement_timeout = {round(allowed * 1000)}")
            yield connection

    def for_short_reads(self) -> asyncpg.Pool:
        """The pool for what an exchange has to read before it can begin: `reads`, or `urgent` if all of it is in
        use."""
        return self.reads if has_room(self.reads) else self.urgent

    @property
    def urgent_wait(self) -> float:
        """For how many seconds an exchange has waited for a connection, or for another that has it (`urgent_waits`); 0
        if none waits."""
        waits = [wait() for wait in self.urgent_waits]
        return max(queue_of(self.hot).urgent_wait, queue_of(self.reads).urgent_wait, *waits)

    def cut(self) -> None:
        """Terminate every connection, also those in use. The pools open new ones.

        A connection can be dead without an error, for example after a failover behind a virtual address. A statement on
        it would wait for `command_timeout`, and a node would not fire during that time although it holds its leases.
        """
        for connection in tuple(self.connections):
            connection.terminate()

    async def close(self) -> None:
        for pool in (self.hot, self.reads, self.urgent, self.groups, self.logs):
            pool.terminate()
        if self.replica is not None:
            self.replica.pool.terminate()


def has_room(pool: asyncpg.Pool) -> bool:
    """Whether a connection can be had without a wait for another user of the pool. asyncpg has no call for it."""
    return not pool._queue.empty()


async def connect(
    where: str | Database, *, application: str, settings: dict[str, str] | None = None, timeout: float = 5.0
) -> asyncpg.Connection:
    """One connection outside the pools, for leases, LISTEN and migrations."""
    database = database_at(where)
    server_settings = {"application_name": f"mainspring {application}", **SESSION_SETTINGS, **(settings or {})}
    return await _open(database.pooling, database.url, server_settings=server_settings, timeout=timeout)


async def open_store(
    where: str | Database,
    *,
    application: str = "server",
    hot: int = 8,
    reads: int = _READS,
    share: int = 1,
    read_url: str | None = None,
    max_staleness: float = MAX_STALENESS,
) -> Store:
    """`share`: how many processes divide these connections. Each has at least two of either kind. `read_url`: of a
    standby for lists and searches, which may be as far behind as `max_staleness` says."""
    hot, reads = max(min(hot, 2), hot // share), max(min(reads, 2), reads // share)
    database = database_at(where)
    connections: WeakSet[asyncpg.Connection] = WeakSet()

    async def note(connection: asyncpg.Connection) -> None:
        connections.add(connection)

    async def pool(size: int, settings: dict[str, str], kind: str, at: Database = database) -> asyncpg.Pool:
        made = await asyncpg.create_pool(
            at.url,
            min_size=0,
            max_size=size,
            max_inactive_connection_lifetime=0,
            timeout=5,
            command_timeout=35,
            server_settings={"application_name": f"mainspring {application} {kind}", **SESSION_SETTINGS, **settings},
            connect=partial(_open_in_pool, at.pooling),
            init=note,
            reset=_skip_reset,
        )
        return make_fair(made)

    of_primary = await pool(reads, READ_SETTINGS, "reads")
    replica = None
    if read_url is not None:
        replica = Replica(
            of_primary, await pool(reads, READ_SETTINGS, "replica", Database(_any_server(read_url))), max_staleness
        )
    return Store(
        database,
        await pool(hot, HOT_SETTINGS, "hot"),
        of_primary,
        await pool(1, URGENT_SETTINGS, "urgent"),
        await pool(1, GROUP_SETTINGS, "groups"),
        await pool(LOG_CONNECTIONS, LOG_SETTINGS, "logs"),
        connections,
        replica=replica,
    )


def _any_server(url: str) -> str:
    """Of several hosts a standby, if the URL does not say what it wants."""
    if len(hosts_of(url)) < 2 or names_target(url):
        return url
    return f"{url}{'&' if '?' in url else '?'}target_session_attrs=standby"


async def _skip_reset(_connection: Any) -> None:
    """Run no reset query when a connection is released. Sessions are never changed, and it would cost a round trip."""


def _detect_dead_peers(connection: asyncpg.Connection) -> None:
    """Set the socket options of a TCP connection. asyncpg has no parameter for them."""
    transport = getattr(connection, "_transport", None)
    opened = None if transport is None else transport.get_extra_info("socket")
    if opened is None or opened.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for level, name, value in _SOCKET_OPTIONS:
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            with suppress(OSError):
                opened.setsockopt(level, option, value)
