"""What goes wrong slowly: forgotten pauses, jobs that never ran or always fail, clocks, limits of the database."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("findings")


class Since(msgspec.Struct, frozen=True):
    """A queue, a job or everything, and since when something is so."""

    subject: str
    since: datetime


class WrongClock(msgspec.Struct, frozen=True):
    host: str
    off: float


class DatabaseLimits(msgspec.Struct, frozen=True):
    """transaction_age: transactions since the oldest row was frozen, of two billion. longest_open: how long a
    transaction is open, in seconds. kept_by_slots: bytes of the write-ahead log that replication slots keep.
    replay_lag: how far a standby is behind, in seconds. bloated: a table with more than a million dead rows, and more
    of them than live ones. waits_for_standby: a synchronous standby is asked for, and none is there."""

    connections: int
    connections_limit: int
    transaction_age: int
    longest_open: float
    kept_by_slots: int | None
    replay_lag: float | None
    bloated: str | None
    waits_for_standby: bool


_forgotten_pauses = RowQuery(Since, _SQL["forgotten_pauses"])
_never_ran = RowQuery(Since, _SQL["never_ran"])
_always_fails = RowQuery(Since, _SQL["always_fails"])
_wrong_clocks = RowQuery(WrongClock, _SQL["wrong_clocks"])
_limits = RowQuery(DatabaseLimits, _SQL["database_limits"])


async def forgotten_pauses(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, seconds: float, most: int
) -> list[Since]:
    return await _forgotten_pauses.fetch(connection, tenant, task, queue, seconds, most)


async def never_ran(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, seconds: float, most: int
) -> list[Since]:
    return await _never_ran.fetch(connection, tenant, task, queue, seconds, most)


async def always_fails(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, failures: int, most: int
) -> list[Since]:
    return await _always_fails.fetch(connection, tenant, task, queue, failures, most)


async def wrong_clocks(connection: Connection, above: float, within: float) -> list[WrongClock]:
    return await _wrong_clocks.fetch(connection, above, within)


async def database_limits(connection: Connection) -> DatabaseLimits:
    [found] = await _limits.fetch(connection)
    return found
