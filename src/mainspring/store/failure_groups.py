"""Failures by fingerprint, in groups of each hour."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.rollups import KEPT, Span
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("failure_groups")


class FailureSeen(msgspec.Struct, frozen=True):
    """Failed attempts of a task with the same first line. `failed`: those that ended their run."""

    tenant_id: int
    queue: str
    task: str
    line: str
    count: int
    failed: int
    first_at: datetime
    last_at: datetime
    sample_run: UUID
    job_ids: list[str]


class NewFailures(msgspec.Struct):
    """What a fold adds to a group."""

    tenant_id: int
    fingerprint: str
    queue: str
    task: str
    title: str
    count: int
    failed: int
    first_at: datetime
    last_at: datetime
    sample_run: UUID
    job_ids: set[str]


class FailureGroup(msgspec.Struct, frozen=True):
    """A group of one hour. `minutes`: the failures of each minute, up to the last one."""

    at: datetime
    fingerprint: str
    queue: str
    task: str
    title: str
    count: int
    failed: int
    minutes: list[int]
    first_at: datetime
    last_at: datetime
    sample_run: UUID
    job_ids: list[str]


_failed_runs = RowQuery(FailureSeen, _SQL["failed_runs"])
_groups = RowQuery(FailureGroup, _SQL["groups"])


async def failed_runs(connection: Connection, start: datetime, end: datetime) -> list[FailureSeen]:
    """The runs that failed from `start` on and before `end`."""
    return await _failed_runs.fetch(connection, start, end)


async def known(connection: Connection, hour: datetime) -> set[tuple[int, str]]:
    """(tenant, fingerprint) of the groups of an hour."""
    return {(row[0], row[1]) for row in await connection.fetch(_SQL["known_groups"], hour)}


async def add(connection: Connection, minute: datetime, groups: Iterable[NewFailures]) -> None:
    columns = list(zip(*(_values(group) for group in groups), strict=True))
    hour = minute.replace(minute=0)
    await connection.execute(_SQL["add_groups"], hour, minute.minute + 1, *columns)


def _values(group: NewFailures) -> tuple[object, ...]:
    job_ids = msgspec.json.encode(sorted(group.job_ids)).decode()
    return (
        group.tenant_id, group.fingerprint, group.queue, group.task, group.title, group.count, group.failed,
        group.first_at, group.last_at, group.sample_run, job_ids,
    )  # fmt: skip


async def since(
    connection: Connection, tenant: TenantId, hour: datetime, task: str | None, queue: str | None
) -> list[FailureGroup]:
    return await _groups.fetch(connection, tenant, hour, task, queue)


async def prune(connection: Connection) -> None:
    await connection.execute(_SQL["prune_groups"], KEPT[Span.HOUR].total_seconds())
