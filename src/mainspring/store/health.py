"""The health of jobs, and live runs with limits of time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery
from mainspring.store.runs import LockedRun

_SQL = load("health")


class Watermarks(msgspec.Struct, frozen=True):
    ended_until: datetime
    looked_until: datetime


class TimedRun(msgspec.Struct, frozen=True):
    """A run whose limits of time may be exceeded now. `generation`, `state`, `task`, `queue` and `due_from`: None if it
    has ended."""

    run_id: UUID
    tenant_id: TenantId
    job_id: str | None
    generation: int | None
    told: int
    state: int | None
    attempt: int
    task: str | None
    queue: str | None
    due_from: datetime | None
    began_at: datetime | None
    spec_text: str | None
    now: datetime


class EndedTimedRun(msgspec.Struct, frozen=True):
    run_id: UUID
    tenant_id: TenantId
    job_id: str | None
    generation: int
    told: int
    state: int
    attempt: int
    task: str
    queue: str
    due_from: datetime
    began_at: datetime | None
    spec_text: str | None
    ended_at: datetime
    ran: float | None


class EndedJob(msgspec.Struct, frozen=True):
    """What ended of a job: the last success, and how many failed after it. state, since, failures_before: its health so
    far. late: a live run of it is."""

    tenant_id: TenantId
    job_id: str
    generation: int
    succeeded_at: datetime | None
    failures: int
    failed_from: datetime | None
    words: str | None
    state: int | None
    since: datetime | None
    failures_before: int
    late: bool


class NewHealth(msgspec.Struct, frozen=True):
    tenant_id: TenantId
    job_id: str
    generation: int
    state: int
    since: datetime
    reason: str | None = None
    failures: int = 0


class LongRun(msgspec.Struct, frozen=True):
    """A run that takes long. usual: what was learned. stale: long ago, or never."""

    run_id: UUID
    tenant_id: TenantId
    job_id: str
    generation: int
    task: str
    queue: str
    due_from: datetime
    ran: float
    usual: float | None
    stale: bool
    spec_text: str | None


class TimedRunChange(msgspec.Struct, frozen=True):
    """What becomes of a watched run."""

    run_id: UUID
    told: int
    due_at: datetime | None
    to_cancel: bool = False


class Delay(msgspec.Struct, frozen=True):
    """An event of a run. notify_text: the rules of its job. own: whether one of these wants it."""

    tenant_id: TenantId
    event: str
    subject: str
    job_id: str | None
    task: str | None
    queue: str | None
    path: str
    reason: str
    notify_text: str | None
    own: bool
    labels_text: str | None


class HealthRow(msgspec.Struct, frozen=True):
    job_id: str
    generation: int
    state: int
    since: datetime
    reason: str | None
    usual: float | None


_watermarks = RowQuery(Watermarks, _SQL["health_watermark"])
_due = RowQuery(TimedRun, _SQL["due_watched"])
_ended_watched = RowQuery(EndedTimedRun, _SQL["ended_watched"])
_ended_jobs = RowQuery(EndedJob, _SQL["ended_jobs"])
_long = RowQuery(LongRun, _SQL["running_long"])
_to_cancel = RowQuery(LockedRun, _SQL["runs_to_cancel"])
_of_jobs = RowQuery(HealthRow, _SQL["health_of_jobs"])


async def lock(connection: Connection) -> bool:
    """Whether this transaction may judge. No other transaction may until it ends."""
    locked: bool = await connection.fetchval(_SQL["health_lock"])
    return locked


async def watermarks(connection: Connection) -> Watermarks:
    found = await _watermarks.first(connection)
    if found is None:
        await connection.execute(_SQL["begin_health"])
        found = await _watermarks.first(connection)
    if found is None:
        raise RuntimeError("there is no watermark of the health of jobs")
    return found


async def move(connection: Connection, before: Watermarks, after: Watermarks) -> bool:
    """Whether they were still where the caller has read them."""
    done: str = await connection.execute(
        _SQL["move_health"], before.ended_until, before.looked_until, after.ended_until, after.looked_until
    )
    return done == "UPDATE 1"


async def watch(connection: Connection, first_id: UUID, since: datetime) -> None:
    await connection.execute(_SQL["watch_runs"], first_id, since)


async def due(connection: Connection, limit: int) -> list[TimedRun]:
    return await _due.fetch(connection, limit)


async def set_watched(connection: Connection, changes: Sequence[TimedRunChange]) -> None:
    await connection.execute(
        _SQL["set_watched"],
        [one.run_id for one in changes],
        [one.told for one in changes],
        [one.due_at for one in changes],
        [one.to_cancel for one in changes],
    )


async def ended_watched(connection: Connection, start: datetime, end: datetime) -> list[EndedTimedRun]:
    return await _ended_watched.fetch(connection, start, end)


async def unwatch(connection: Connection, runs: Collection[UUID]) -> None:
    await connection.execute(_SQL["unwatch"], runs)


async def to_cancel(connection: Connection, limit: int) -> list[LockedRun]:
    return await _to_cancel.fetch(connection, limit)


async def cancels_requested(connection: Connection, runs: Collection[UUID]) -> None:
    await connection.execute(_SQL["cancels_requested"], runs)


async def ended_jobs(connection: Connection, start: datetime, end: datetime) -> list[EndedJob]:
    return await _ended_jobs.fetch(connection, start, end)


async def set_health(connection: Connection, changes: Sequence[NewHealth]) -> None:
    await connection.execute(
        _SQL["set_health"],
        [one.tenant_id for one in changes],
        [one.job_id for one in changes],
        [one.generation for one in changes],
        [one.state for one in changes],
        [one.since for one in changes],
        [one.reason for one in changes],
        [one.failures for one in changes],
    )


async def set_late(connection: Connection, late: dict[tuple[TenantId, str, int], str]) -> None:
    """The reason by job and generation."""
    await connection.execute(
        _SQL["set_late"],
        [one[0] for one in late],
        [one[1] for one in late],
        [one[2] for one in late],
        list(late.values()),
    )


async def running_long(connection: Connection, limit: int) -> list[LongRun]:
    return await _long.fetch(connection, limit)


async def learn(
    connection: Connection, jobs: Collection[tuple[TenantId, str, int]]
) -> dict[tuple[TenantId, str], float | None]:
    """What the jobs (tenant, id, generation) usually take at most, in seconds."""
    rows = await connection.fetch(
        _SQL["learn"], [one[0] for one in jobs], [one[1] for one in jobs], [one[2] for one in jobs]
    )
    return {(TenantId(tenant), job_id): usual for tenant, job_id, usual in rows}


async def watch_long(connection: Connection, runs: Sequence[LongRun]) -> None:
    await connection.execute(
        _SQL["watch_long"], [one.run_id for one in runs], [one.tenant_id for one in runs], [one.job_id for one in runs]
    )


async def set_silent(connection: Connection) -> None:
    await connection.execute(_SQL["set_silent"])


async def prune(connection: Connection, ended_until: datetime) -> None:
    await connection.execute(_SQL["prune_health"])
    await connection.execute(_SQL["prune_watched"], ended_until)


async def note_delays(connection: Connection, delays: Sequence[Delay]) -> None:
    await connection.execute(
        _SQL["note_delays"],
        [one.tenant_id for one in delays],
        [one.event for one in delays],
        [one.subject for one in delays],
        [one.job_id for one in delays],
        [one.task for one in delays],
        [one.queue for one in delays],
        [one.path for one in delays],
        [one.reason for one in delays],
        [one.notify_text for one in delays],
        [one.own for one in delays],
        [one.labels_text for one in delays],
    )


async def of_jobs(
    connection: Connection, tenant: TenantId, job_ids: Collection[str]
) -> dict[tuple[str, int], HealthRow]:
    """The health of these jobs, by id and generation. Those that have never run have none."""
    rows = await _of_jobs.fetch(connection, tenant, list(job_ids))
    return {(row.job_id, row.generation): row for row in rows}
