"""Failures by fingerprint, in groups of each hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.domain.rollups import KEPT, Span, floor_to
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("failure_groups")
_HOUR = timedelta(hours=1)


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
    """What a round of rollups adds to a group."""

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
    """A group over a time. `groups`: how many there are in all."""

    fingerprint: str
    title: str
    count: int
    failed: int
    first_at: datetime
    last_at: datetime
    sample_run: UUID
    tasks: list[str]
    queues: list[str]
    groups: int


class GroupMinutes(msgspec.Struct, frozen=True):
    """Failures of a group in the minutes of an hour. `first`: minutes from the first hour to this one."""

    fingerprint: str
    first: int
    counts: list[int]


class GroupSteps(msgspec.Struct, frozen=True):
    """Failures of a group in steps of whole hours, by the numbers of these."""

    fingerprint: str
    steps: list[int]
    counts: list[int]


class GroupJobs(msgspec.Struct, frozen=True):
    """Some of the jobs of a group."""

    fingerprint: str
    job_ids: list[str]


class GroupFilter(msgspec.Struct, frozen=True):
    """Whose groups, from when on."""

    tenant: TenantId
    since: datetime
    task: str | None = None
    queue: str | None = None
    fingerprint: str | None = None

    @property
    def hour(self) -> datetime:
        return floor_to(self.since, _HOUR)


_failed_runs = RowQuery(FailureSeen, _SQL["failed_runs"])
_largest = RowQuery(FailureGroup, _SQL["largest_groups"])
_minutes = RowQuery(GroupMinutes, _SQL["minutes_of_groups"])
_steps = RowQuery(GroupSteps, _SQL["steps_of_groups"])
_jobs = RowQuery(GroupJobs, _SQL["jobs_of_groups"])


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


async def largest(connection: Connection, chosen: GroupFilter, most: int) -> list[FailureGroup]:
    """The largest first."""
    since, hour = chosen.since, chosen.hour
    skipped = int((since - hour).total_seconds()) // 60
    return await _largest.fetch(
        connection, chosen.tenant, since, chosen.task, chosen.queue, hour, skipped, most, chosen.fingerprint
    )


async def minutes(connection: Connection, chosen: GroupFilter, groups: Sequence[FailureGroup]) -> list[GroupMinutes]:
    """Whole hours, also if a part of the first one lies before."""
    return await _minutes.fetch(connection, chosen.tenant, chosen.hour, _names(groups), chosen.task, chosen.queue)


async def steps(
    connection: Connection, chosen: GroupFilter, groups: Sequence[FailureGroup], step: timedelta
) -> list[GroupSteps]:
    """For steps of whole hours, the first of which begins where the time does."""
    return await _steps.fetch(
        connection, chosen.tenant, chosen.hour, _names(groups), chosen.task, chosen.queue, step.total_seconds()
    )


async def jobs_hit(connection: Connection, chosen: GroupFilter, groups: Sequence[FailureGroup]) -> list[GroupJobs]:
    """Some of the jobs of each group."""
    return await _jobs.fetch(connection, chosen.tenant, chosen.hour, _names(groups), chosen.task, chosen.queue)


def _names(groups: Sequence[FailureGroup]) -> list[str]:
    return [group.fingerprint for group in groups]


async def prune(connection: Connection) -> None:
    await connection.execute(_SQL["prune_groups"], KEPT[Span.HOUR].total_seconds())
