"""What fires when: the schedules of a tenant in groups, the next fires, and stored forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("forecasts")


class ScheduleGroup(msgspec.Struct, frozen=True):
    """Jobs with one schedule, or (minute) one-time jobs."""

    tenant_id: int
    schedule_text: str
    minute: datetime | None
    jobs: int
    job_ids: list[str]


class NextFire(msgspec.Struct, frozen=True):
    tenant_id: int
    shard: int
    job_id: str
    name: str | None
    lane_id: int
    next_fire_at: datetime
    schedule_text: str
    runs_left: int | None


class StoredForecast(msgspec.Struct, frozen=True):
    as_of: datetime
    forecast_text: str
    now: datetime


_of_tenant = RowQuery(ScheduleGroup, _SQL["schedules_of_tenant"])
_in_blocks = RowQuery(ScheduleGroup, _SQL["schedules_in_blocks"])
_next = RowQuery(NextFire, _SQL["next_of_tenant"])
_next_of_shards = RowQuery(NextFire, _SQL["next_of_shards"])
_get = RowQuery(StoredForecast, _SQL["get_forecast"])


async def has_many(connection: Connection, tenant: TenantId, many: int) -> bool:
    """Whether a tenant has so many jobs, or more."""
    count: int = await connection.fetchval(_SQL["some_jobs"], tenant, many)
    return count >= many


async def schedules_of_tenant(connection: Connection, tenant: TenantId, until: datetime) -> list[ScheduleGroup]:
    return await _of_tenant.fetch(connection, tenant, until)


async def large_tenants(connection: Connection, least: int) -> list[int]:
    return [row[0] for row in await connection.fetch(_SQL["large_tenants"], least)]


async def blocks(connection: Connection) -> int:
    count: int = await connection.fetchval(_SQL["blocks_of_jobs"])
    return count


async def schedules_in_blocks(
    connection: Connection, first: int, end: int, tenants: Sequence[int], until: datetime
) -> list[ScheduleGroup]:
    return await _in_blocks.fetch(connection, first, end, tenants, until)


async def next_of_tenant(connection: Connection, tenant: TenantId, until: datetime) -> list[NextFire]:
    return await _next.fetch(connection, tenant, until)


async def next_of_shards(connection: Connection, shards: Sequence[int], until: datetime, most: int) -> list[NextFire]:
    return await _next_of_shards.fetch(connection, shards, until, most)


async def claim_pass(connection: Connection, seconds: float) -> datetime | None:
    """The time of the claim. None if the next pass is not due, or another server is at it."""
    moment: datetime | None = await connection.fetchval(_SQL["claim_pass"], seconds)
    return moment


async def finish_pass(connection: Connection, claimed_at: datetime, seconds: float) -> bool:
    """Whether the claim was still ours."""
    done: str = await connection.execute(_SQL["finish_pass"], claimed_at, seconds)
    return done == "UPDATE 1"


async def put(connection: Connection, tenant: int, as_of: datetime, forecast_text: str) -> bool:
    """Whether it is the newest."""
    done: str = await connection.execute(_SQL["put_forecast"], tenant, as_of, forecast_text)
    return done == "INSERT 0 1"


async def drop(connection: Connection, before: datetime, kept: Sequence[int]) -> None:
    await connection.execute(_SQL["drop_forecasts"], before, kept)


async def get(connection: Connection, tenant: TenantId) -> StoredForecast | None:
    return await _get.first(connection, tenant)
