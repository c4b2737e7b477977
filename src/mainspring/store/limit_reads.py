"""Limits as people see and set them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.jobs import contains
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("limit_reads")


class LimitRow(msgspec.Struct, frozen=True):
    """A limit, how many lines it has, and the runs that own a slot (`in_use`) or wait for one (`held`)."""

    limit_id: int
    name: str
    slots: int | None
    strict: bool
    pinned: bool
    declared: int | None
    updated_at: datetime
    every: float | None
    burst: int | None
    keys: int
    in_use: int
    held: int


class LineRow(msgspec.Struct, frozen=True):
    key_id: int
    key: str
    in_use: int
    held: int


class LineOfLimit(msgspec.Struct, frozen=True):
    """A line and its limit. `slots` is None if any number may run at once. `every` and `burst` belong to its rate;
    `failed`, `opened_at`, `next_at` and `probe` to its circuit breaker. kept_back_by: the first run of a strict line
    that has room, if it backs off or waits in another line."""

    key_id: int
    limit_id: int
    name: str
    key: str
    in_use: int
    slots: int | None
    every: float | None
    burst: int | None
    failed: int
    opened_at: datetime | None
    next_at: datetime | None
    probe: UUID | None
    kept_back_by: UUID | None


class SlotHolder(msgspec.Struct, frozen=True):
    """A run that owns a slot of a line."""

    key_id: int
    run_id: UUID
    job_id: str | None
    name: str | None
    lane_id: int


class LockedLimit(msgspec.Struct, frozen=True):
    limit_id: int
    name: str
    slots: int | None
    strict: bool
    pinned: bool
    declared: int | None


_list_limits = RowQuery(LimitRow, _SQL["list_limits"])
_get_limit = RowQuery(LimitRow, _SQL["get_limit"])
_limit_lines = RowQuery(LineRow, _SQL["limit_lines"])
_lines_by_id = RowQuery(LineOfLimit, _SQL["lines_by_id"])
_holders = RowQuery(SlotHolder, _SQL["holders"])
_lock_limit = RowQuery(LockedLimit, _SQL["lock_limit"])


async def page(
    connection: Connection, tenant: TenantId, after: str | None, text: str | None, limit: int
) -> list[LimitRow]:
    """A page of the limits whose names contain `text`, by name."""
    return await _list_limits.fetch(connection, tenant, after, contains(text), limit)


async def get(connection: Connection, tenant: TenantId, limit_id: int) -> LimitRow | None:
    return await _get_limit.first(connection, tenant, limit_id)


async def lines_of(connection: Connection, limit_id: int, limit: int) -> list[LineRow]:
    return await _limit_lines.fetch(connection, limit_id, limit)


async def lines_by_id(connection: Connection, lines: Sequence[int]) -> dict[int, LineOfLimit]:
    return {line.key_id: line for line in await _lines_by_id.fetch(connection, lines)}


async def holders(connection: Connection, tenant: TenantId, lines: Sequence[int], limit: int) -> list[SlotHolder]:
    """The runs that own a slot of these lines, at most `limit` of each."""
    return await _holders.fetch(connection, tenant, lines, limit)


async def ahead_in_line(connection: Connection, run_id: UUID) -> int:
    """How many runs stand before this one in its line."""
    return int(await connection.fetchval(_SQL["place_in_line"], run_id) or 0)


async def lock(connection: Connection, tenant: TenantId, limit_id: int) -> LockedLimit | None:
    return await _lock_limit.first(connection, tenant, limit_id)


async def set_slots(connection: Connection, limit_id: int, slots: int | None, *, loose: bool) -> None:
    """Pin the limit. None: back to what is declared. `loose`: end strict order. The caller has locked it."""
    await connection.execute(_SQL["set_limit"], limit_id, slots, loose)


async def lines_that_wait(connection: Connection, limit_id: int, limit: int) -> list[int]:
    return [line for (line,) in await connection.fetch(_SQL["lines_that_wait"], limit_id, limit)]


async def admissions_under_way(connection: Connection) -> set[str]:
    """The transactions that have locked lines, or are about to."""
    return {name for (name,) in await connection.fetch(_SQL["admissions_under_way"])}
