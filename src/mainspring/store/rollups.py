"""Rollups: what ended in each minute, hour and day, made from the history by watermark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.domain.rollups import BOUNDS, KEPT, Span
from mainspring.kernel.ids import TenantId
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("rollups")
_LATEST_COMMIT = timedelta(seconds=1)
_LATER = timedelta(hours=1)  # after the clock was read, a run may still end


class Rollup(msgspec.Struct, frozen=True):
    """What ended in a minute, hour or day. `ran_us`: the sum of durations, in microseconds. `lag` and `ran`:
    histograms, which begin with the buckets `lag_first` and `ran_first`."""

    at: datetime
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    retried: int
    lost: int
    missed: int
    ran_us: int
    lag_first: int | None
    lag: list[int] | None
    ran_first: int | None
    ran: list[int] | None


class TaskRollup(Rollup, frozen=True):
    """A rollup of one task in one queue."""

    task: str
    queue: str


class QueueEnds(msgspec.Struct, frozen=True):
    queue: str
    ended: int
    succeeded: int
    failed: int


class QueueDurations(msgspec.Struct, frozen=True):
    """How long runs of a queue took: their number, and the sum."""

    queue: str
    runs: int
    seconds: float


class HourOfEnds(msgspec.Struct, frozen=True):
    """An hour, and how many runs ended in it."""

    at: datetime
    ended: int


class RunEnd(msgspec.Struct, frozen=True):
    """How a run ended. `lag_ms` is set for a run with one attempt. `line` is a line of its error, if it failed."""

    run_id: UUID
    lane_id: int
    state: int
    scheduled_for: datetime
    ended_at: datetime
    ran_ms: float | None
    lag_ms: float | None
    line: str | None


class NewestEnd(msgspec.Struct, frozen=True):
    """One of the newest runs of a job that have ended; without one the fields of the run are null."""

    job_id: str
    next_fire_at: datetime | None
    state: int | None
    ended_at: datetime | None
    ran_ms: float | None
    lag_ms: float | None


class OutcomeRow(msgspec.Struct, frozen=True):
    """One of the newest runs of a job that have ended."""

    job_id: str
    run_id: UUID
    state: int
    scheduled_for: datetime
    ended_at: datetime
    ran_ms: float | None


class RolledUp(msgspec.Struct, frozen=True):
    """How many runs and attempts a round has read, and how many runs failed. `attempts_text`: attempts that failed and
    were followed by another one, as a JSON array of FailureSeen."""

    read: int
    failed: int
    attempts_text: str | None


class _Writers(msgspec.Struct, frozen=True):
    since: datetime | None
    hidden: bool


_hours_with_ends = RowQuery(HourOfEnds, _SQL["hours_with_ends"])
_series = RowQuery(Rollup, _SQL["series"])
_ends_of_job = RowQuery(RunEnd, _SQL["ends_of_job"])
_newest_ends = RowQuery(NewestEnd, _SQL["newest_ends"])
_outcomes = RowQuery(OutcomeRow, _SQL["outcomes"])
_by_task = RowQuery(TaskRollup, _SQL["by_task"])
_by_queue = RowQuery(QueueEnds, _SQL["by_queue"])
_durations_by_queue = RowQuery(QueueDurations, _SQL["durations_by_queue"])
_fold = RowQuery(RolledUp, _SQL["fold"])
_writers_since = RowQuery(_Writers, _SQL["writers_since"])


async def horizon(connection: Connection) -> tuple[datetime, datetime | None]:
    """The time, and one before which nothing is added to the history any more, if that can be known. A later statement
    sees everything before it."""
    now: datetime = await connection.fetchval(_SQL["clock"])
    [writers] = await _writers_since.fetch(connection)
    if writers.hidden:
        return now, None
    latest = now - _LATEST_COMMIT
    return now, latest if writers.since is None else min(latest, writers.since)


async def lock(connection: Connection) -> bool:
    """Whether this transaction may make rollups. No other transaction may until it ends."""
    locked: bool = await connection.fetchval(_SQL["fold_lock"])
    return locked


async def watermark(connection: Connection) -> datetime | None:
    """What ended before it is in the rollups. None before the first round."""
    until: datetime | None = await connection.fetchval(_SQL["watermark"])
    return until


async def begin_watermark(connection: Connection) -> datetime:
    """The watermark; if there is none, that of the first day of the history."""
    await connection.execute(_SQL["begin_watermark"])
    until: datetime = await connection.fetchval(_SQL["watermark"])
    return until


async def move_watermark(connection: Connection, before: datetime, after: datetime) -> bool:
    """Whether it was still where the caller has read it."""
    done: str = await connection.execute(_SQL["move_watermark"], before, after)
    return done == "UPDATE 1"


async def something_ended(connection: Connection, start: datetime, end: datetime) -> bool:
    found: bool = await connection.fetchval(_SQL["something_ended"], start, end)
    return found


async def roll_up(
    connection: Connection, start: datetime, end: datetime, minute: datetime, until: datetime
) -> RolledUp:
    """Add what ended from `start` on and before `end` to its minute. `until`: the time of now, or later."""
    [folded] = await _fold.fetch(connection, start, end, until + _LATER, minute, BOUNDS)
    return folded


async def close_minute(connection: Connection, minute: datetime) -> None:
    """Add a minute that is over to its hour and its day."""
    await connection.execute(_SQL["close_minute"], minute)


async def forget_since(connection: Connection, day: datetime) -> None:
    await connection.execute(_SQL["forget_since"], day)
    await connection.execute(_SQL["forget_groups_since"], day)


async def prune(connection: Connection) -> None:
    await connection.execute(_SQL["prune_rollups"], *(KEPT[span].total_seconds() for span in Span))


async def series(
    connection: Connection, tenant: TenantId, span: Span, since: datetime, task: str | None, queue: str | None
) -> list[Rollup]:
    """In no order. The same time occurs more than once if a task is in several queues."""
    return await _series.fetch(connection, int(span), tenant, since, task, queue)


async def ends_of_job(
    connection: Connection, tenant: TenantId, job_id: str, most: int, own: UUID | None
) -> list[RunEnd]:
    """The newest ended runs of a job, newest first. `own`: the run that is itself the job."""
    return await _ends_of_job.fetch(connection, tenant, job_id, most, own)


async def newest_ends(connection: Connection, tenant: TenantId, job_ids: Sequence[str], most: int) -> list[NewestEnd]:
    """Of each of these jobs that exists, the newest runs that have ended, newest first; by job id."""
    return await _newest_ends.fetch(connection, tenant, job_ids, most)


async def outcomes(
    connection: Connection, tenant: TenantId, job_ids: Sequence[str], most: int, since: datetime
) -> list[OutcomeRow]:
    """Of each of these jobs, the newest runs that have ended since then, newest first; by job id."""
    return await _outcomes.fetch(connection, tenant, job_ids, most, since)


async def hours_with_ends(
    connection: Connection, tenant: TenantId, task: str | None, queue: str | None, most: int
) -> list[HourOfEnds]:
    """The hours in which runs of a task or a queue ended, newest first, and how many; from the minutes that are
    over."""
    return await _hours_with_ends.fetch(connection, tenant, task, queue, most)


async def by_task(connection: Connection, tenant: TenantId, span: Span, at: datetime, most: int) -> list[TaskRollup]:
    return await _by_task.fetch(connection, int(span), tenant, at, most)


async def by_queue(connection: Connection, tenant: TenantId, minute: datetime) -> list[QueueEnds]:
    """How many runs of each queue ended in this minute."""
    return await _by_queue.fetch(connection, tenant, minute)


async def durations_by_queue(
    connection: Connection, tenant: TenantId, span: Span, since: datetime
) -> list[QueueDurations]:
    """How long runs took that ended since then, of the queues in which some have."""
    return await _durations_by_queue.fetch(connection, int(span), tenant, since)


async def ended_in_minute(connection: Connection, minute: datetime) -> int:
    """How many runs of all tenants ended in this minute."""
    ended: int = await connection.fetchval(_SQL["ended_in_minute"], minute)
    return ended
