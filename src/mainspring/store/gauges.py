"""Gauges: samples of what waits and runs, and their largest values of each minute and hour."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.rollups import KEPT, Span
from mainspring.kernel.ids import TenantId
from mainspring.store.history import LaneDepth
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("gauges")


class Gauge(msgspec.Struct, frozen=True):
    """The largest values of a minute or an hour. `backlog`: jobs that were due and had not fired, up to 10,000."""

    at: datetime
    waiting: int
    held: int
    running: int
    slots: int
    backlog: int


class DatabaseFigures(msgspec.Struct, frozen=True):
    """Who schedules, and how near PostgreSQL is to its limits. shards_held: shards whose lease is valid. epochs: the
    sum of their epochs, which rises by one when a shard changes its scheduler. transaction_age: transactions since the
    oldest row was frozen, of two billion. longest_open: how long a transaction is open that this role may see, in
    seconds."""

    shards_held: int
    epochs: int
    connections: int
    connections_limit: int
    transaction_age: int
    longest_open: float
    bytes: int


_depths = RowQuery(LaneDepth, _SQL["depths"])
_database_figures = RowQuery(DatabaseFigures, _SQL["database_figures"])
_series = RowQuery(Gauge, _SQL["gauge_series"])


async def claim_sample(connection: Connection, seconds: float) -> datetime | None:
    """The time of the sample. None if the next one is not due, or another server takes it."""
    moment: datetime | None = await connection.fetchval(_SQL["claim_sample"], seconds)
    return moment


async def finish_sample(connection: Connection, taken_at: datetime, seconds: float) -> bool:
    """Whether the claim was still ours."""
    done: str = await connection.execute(_SQL["finish_sample"], taken_at, seconds)
    return done == "UPDATE 1"


async def sample(connection: Connection, taken_at: datetime) -> int:
    """Count the live runs. Returns how many there are."""
    live: int = await connection.fetchval(_SQL["sample_lanes"], taken_at)
    await connection.execute(_SQL["add_sample"], taken_at)
    return live


async def many_live(connection: Connection, many: int) -> datetime | None:
    """When the last sample was taken, if it shows more than `many` live runs, of all tenants."""
    moment: datetime | None = await connection.fetchval(_SQL["many_live"], many)
    return moment


async def depths(connection: Connection, tenant: TenantId) -> list[LaneDepth]:
    return await _depths.fetch(connection, tenant)


async def series(
    connection: Connection, tenant: TenantId, span: Span, since: datetime, queue: str | None
) -> list[Gauge]:
    return await _series.fetch(connection, int(span), tenant, queue, since)


async def prune(connection: Connection) -> None:
    await connection.execute(_SQL["prune_gauges"], KEPT[Span.MINUTE].total_seconds(), KEPT[Span.HOUR].total_seconds())


async def show(connection: Connection, tenant: TenantId, server_id: UUID) -> bool:
    """Whether this server shows the state of the tenant in its metrics. Of all servers only one does."""
    return await connection.fetchval(_SQL["show_gauges"], tenant, server_id) is not None


async def leave(connection: Connection, server_id: UUID) -> None:
    """Let another server show what this one did."""
    await connection.execute(_SQL["leave_gauges"], server_id)


async def database_figures(connection: Connection) -> DatabaseFigures:
    [figures] = await _database_figures.fetch(connection)
    return figures
