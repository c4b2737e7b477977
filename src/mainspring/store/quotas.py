"""Quotas of tenants, and what is counted for them."""

from __future__ import annotations

from datetime import datetime

import asyncpg
import msgspec

from mainspring.domain.quotas import Quotas
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("quotas")


class QuotaRow(Quotas, frozen=True):
    """The quotas of a tenant as they are stored. Version 0: nothing was ever set."""

    version: int = 0
    updated_by: str | None = None
    updated_at: datetime | None = None

    @property
    def quotas(self) -> Quotas:
        return Quotas(*(getattr(self, name) for name in Quotas.__struct_fields__))


class _OfTenant(msgspec.Struct, frozen=True):
    tenant_id: TenantId
    stored_jobs: int | None
    submissions_per_second: int | None
    runs_per_minute: int | None
    queued_runs: int | None
    concurrent_runs: int | None
    payload_bytes: int | None
    log_bytes_per_day: int | None
    tokens: int | None
    history_days: int | None


class Submissions(msgspec.Struct, frozen=True):
    """The bucket of submissions. tat: when it is full again."""

    submissions_per_second: int | None
    tat: datetime | None
    now: datetime


_all_quotas = RowQuery(_OfTenant, _SQL["all_quotas"])
_get_quotas = RowQuery(QuotaRow, _SQL["get_quotas"])
_lock_quotas = RowQuery(QuotaRow, _SQL["lock_quotas"])
_change_quotas = RowQuery(QuotaRow, _SQL["change_quotas"])
_submissions = RowQuery(Submissions, _SQL["submissions"])
_lock_submissions = RowQuery(Submissions, _SQL["lock_submissions"])


async def all_quotas(connection: Connection) -> dict[TenantId, Quotas]:
    return {row.tenant_id: Quotas(*msgspec.structs.astuple(row)[1:]) for row in await _all_quotas.fetch(connection)}


async def get(connection: Connection, tenant: TenantId) -> QuotaRow:
    return await _get_quotas.first(connection, tenant) or QuotaRow()


async def lock(connection: Connection, tenant: TenantId, caller: str) -> QuotaRow:
    """The quotas, locked. The row is created if there is none."""
    row = await _lock_quotas.first(connection, tenant)
    while row is None:
        await connection.execute(_SQL["create_quotas"], tenant, caller)
        row = await _lock_quotas.first(connection, tenant)
    return row


async def change(
    connection: Connection, tenant: TenantId, version: int, quotas: Quotas, caller: str
) -> QuotaRow | None:
    """Store quotas. None if they have another version."""
    return await _change_quotas.first(connection, tenant, version, caller, *msgspec.structs.astuple(quotas))


async def recount(connection: Connection, gate_id: int) -> None:
    """Let the gate count what runs before anything is claimed through it. The caller has locked it."""
    if await connection.execute(_SQL["recount_gate"], gate_id) != "UPDATE 1":
        raise asyncpg.InternalClientError("a locked gate is gone")


async def lock_submissions(connection: Connection, tenant: TenantId) -> Submissions | None:
    return await _lock_submissions.first(connection, tenant)


async def submissions(connection: Connection, tenant: TenantId) -> Submissions | None:
    return await _submissions.first(connection, tenant)


async def take_submissions(connection: Connection, tenant: TenantId, tat: datetime) -> None:
    """Write the bucket. The caller has locked it."""
    if await connection.execute(_SQL["take_submissions"], tenant, tat) != "UPDATE 1":
        raise asyncpg.InternalClientError("a locked quota is gone")


async def stored_jobs_allowed(connection: Connection, tenant: TenantId) -> int | None:
    """The quota of stored jobs. Until the end of the transaction no other one counts and stores."""
    if await connection.fetchval(_SQL["stored_jobs_allowed"], tenant) is None:
        return None
    await connection.execute(_SQL["lock_stored_jobs"], tenant)
    allowed: int | None = await connection.fetchval(_SQL["stored_jobs_allowed"], tenant)
    return allowed


async def count_stored_jobs(connection: Connection, tenant: TenantId, most: int) -> int:
    count: int = await connection.fetchval(_SQL["count_stored_jobs"], tenant, most)
    return count


async def count_starts(connection: Connection, tenant: TenantId, most: int) -> int:
    count: int = await connection.fetchval(_SQL["count_starts"], tenant, most)
    return count


async def count_tokens(connection: Connection, tenant: TenantId) -> int:
    count: int = await connection.fetchval(_SQL["count_tokens"], tenant)
    return count


async def lanes_of(connection: Connection, tenant: TenantId) -> list[int]:
    return [row[0] for row in await connection.fetch(_SQL["lanes_of_tenant"], tenant)]


async def log_bytes_today(connection: Connection, tenant: TenantId) -> int:
    count: int = await connection.fetchval(_SQL["log_bytes_today"], tenant)
    return count
