"""The history of tenants that keep it for a shorter time than others (quota `history_days`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

import asyncpg
import msgspec

from mainspring.kernel.ids import TenantId
from mainspring.store.logs import ExpiredLog
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("tenant_history")


class DueDay(msgspec.Struct, frozen=True):
    """A day whose runs these tenants no longer keep. cursor: those up to it are deleted. days: how many there are."""

    day: date
    cursor: UUID | None
    tenants: list[TenantId]
    days: int

    @property
    def start(self) -> datetime:
        return datetime.combine(self.day, time(), UTC)

    @property
    def end(self) -> datetime:
        return self.start + timedelta(days=1)


class SomeRuns(msgspec.Struct, frozen=True):
    """cursor: None if these are the last ones of the day."""

    run_ids: list[UUID]
    cursor: UUID | None


_FIRST = UUID(int=0)
_due = RowQuery(DueDay, _SQL["due"])
_some_runs = RowQuery(SomeRuns, _SQL["some_runs"])
_logs_of = RowQuery(ExpiredLog, _SQL["logs_of"])


async def turn(connection: Connection) -> bool:
    """Whether this transaction may delete. No other one may until it ends."""
    taken: bool = await connection.fetchval(_SQL["turn"])
    return taken


async def due(connection: Connection, days_of_all: int) -> DueDay | None:
    """The oldest day that is kept too long. `days_of_all`: for how many days tenants without the quota keep theirs."""
    return await _due.first(connection, days_of_all)


async def is_quiet(connection: Connection, minute: datetime) -> bool:
    """Whether no more runs ended in this minute than in one of the day before, on the average."""
    quiet: bool = await connection.fetchval(_SQL["is_quiet"], minute)
    return quiet


async def some_runs(connection: Connection, due_day: DueDay, looked_at: int, most: int) -> SomeRuns:
    """The next runs of that day, at most `most`. So many runs of all tenants are looked at."""
    found = await _some_runs.first(
        connection, due_day.start, due_day.end, due_day.cursor or _FIRST, due_day.tenants, looked_at, most
    )
    assert found is not None
    return found


async def logs_of(connection: Connection, run_ids: Sequence[UUID]) -> list[ExpiredLog]:
    return await _logs_of.fetch(connection, run_ids)


async def delete(connection: Connection, due_day: DueDay, runs: SomeRuns) -> None:
    """Delete these runs with their attempts and output, and note how far the day is done. The caller has the turn."""
    start, end = due_day.start, due_day.end
    if runs.run_ids:
        await connection.execute(_SQL["keep_keys_of"], runs.run_ids, start, end)
        await connection.execute(_SQL["delete_output"], runs.run_ids)
        await connection.execute(_SQL["delete_runs"], runs.run_ids, start, end, due_day.tenants)
    day = due_day.day if runs.cursor is not None else due_day.day + timedelta(days=1)
    if await connection.execute(_SQL["move"], due_day.tenants, day, runs.cursor) != f"UPDATE {len(due_day.tenants)}":
        raise asyncpg.InternalClientError("quotas of a tenant are gone")


async def tenants_by_days(connection: Connection, days_of_all: int) -> list[tuple[int, list[TenantId]]]:
    """The tenants that keep their history for a shorter time than others, by the number of days."""
    rows = await connection.fetch(_SQL["tenants_by_days"], days_of_all)
    return [(row["history_days"], row["tenants"]) for row in rows]
