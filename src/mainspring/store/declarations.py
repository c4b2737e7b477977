"""Declarations: what the versions of an application declare, and which workers run them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.declarations import Declaration
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.jobs import JobRow
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("declarations")


class DeclarationRow(msgspec.Struct, frozen=True):
    number: int
    fingerprint: str
    named: bool
    source: str
    job_ids: list[str]
    last_at: datetime
    live: bool
    applied_at: datetime | None


class OwnedJob(msgspec.Struct, frozen=True):
    """A job that an application owns, in short. `status` is a StoredJobStatus."""

    job_id: str
    name: str
    status: int
    version: int
    pruned_version: int | None

    @property
    def pruned(self) -> bool:
        """As `JobRow.pruned`."""
        return self.status == StoredJobStatus.PAUSED and self.pruned_version == self.version


_declarations_of = RowQuery(DeclarationRow, _SQL["declarations_of"])
_declared_jobs = RowQuery(JobRow, _SQL["declared_jobs"])
_owned_jobs = RowQuery(OwnedJob, _SQL["owned_jobs"])


async def take_turn(connection: Connection, tenant: TenantId, application: str) -> None:
    """Wait until no other transaction changes the declarations of this application."""
    await connection.execute(_SQL["take_turn"], tenant, application)


async def of_application(connection: Connection, tenant: TenantId, application: str) -> list[Declaration]:
    rows = await _declarations_of.fetch(connection, tenant, application)
    return [
        Declaration(
            row.number,
            row.fingerprint,
            row.named,
            row.source,
            frozenset(row.job_ids),
            row.last_at,
            row.live,
            row.applied_at,
        )
        for row in rows
    ]


async def put(connection: Connection, tenant: TenantId, application: str, new: Declaration) -> None:
    """Insert the declaration, or give the one with its fingerprint another number. Take the turn first."""
    await connection.execute(
        _SQL["put_declaration"],
        tenant,
        application,
        new.number,
        new.fingerprint,
        new.named,
        new.source,
        sorted(new.job_ids),
    )


async def renew(connection: Connection, tenant: TenantId, application: str, fingerprint: str) -> None:
    """Note that the version is declared still."""
    await connection.execute(_SQL["renew_declaration"], tenant, application, fingerprint)


async def apply(connection: Connection, tenant: TenantId, application: str, fingerprint: str) -> None:
    """Note that jobs are now changed to what this version declares."""
    await connection.execute(_SQL["apply_declaration"], tenant, application, fingerprint)


async def link_worker(connection: Connection, tenant: TenantId, application: str, worker_id: UUID, number: int) -> None:
    """Note that this worker runs this version."""
    await connection.execute(_SQL["link_worker"], tenant, application, worker_id, number)


async def is_leaving(connection: Connection, worker_id: UUID) -> bool:
    """Whether this worker drains or is gone. It does not count any more."""
    return bool(await connection.fetchval(_SQL["is_leaving"], worker_id))


async def forget(connection: Connection, tenant: TenantId, application: str, numbers: Sequence[int]) -> None:
    """Forget these declarations and the workers that are gone. Take the turn first."""
    await connection.execute(_SQL["unlink_workers"], tenant, application)
    await connection.execute(_SQL["forget_declarations"], tenant, application, numbers)


async def jobs_by_id(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> list[JobRow]:
    """These jobs, or as many as fit into a page."""
    return await pages.read(connection, _declared_jobs, tenant, job_ids, len(job_ids) + 1)


async def owned(connection: Connection, tenant: TenantId, application: str, job_ids: Sequence[str]) -> list[OwnedJob]:
    """Which of these jobs the application owns."""
    return await _owned_jobs.fetch(connection, tenant, application, job_ids)


async def elsewhere(
    connection: Connection, tenant: TenantId, application: str, job_ids: Sequence[str]
) -> dict[str, str]:
    """Which of these jobs another application owns that runs and declares them."""
    rows = await connection.fetch(_SQL["declared_elsewhere"], tenant, application, job_ids)
    return dict(rows)
