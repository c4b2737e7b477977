"""Events that applications emit, and the runs that they start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.tags import changed_meanwhile
from mainspring.kernel.ids import TenantId
from mainspring.store.fires import FiredRows
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import RowQuery

_SQL = load("events")
_PRUNED_AT_ONCE = 5000
JobKey = tuple[TenantId, str]
MOST_CAUSES = 1000


class NewEvent(msgspec.Struct, frozen=True):
    """An event to be inserted. payload: JSON."""

    event_id: str
    name: str
    key: str = ""
    payload: str | None = None


class ListedEvent(msgspec.Struct, frozen=True):
    """caused: how many jobs it starts."""

    event_id: str
    seq: int
    name: str
    key: str
    at: datetime
    matched: bool
    caused: int


class StoredEvent(msgspec.Struct, frozen=True):
    """creator: the name of the token that emitted it."""

    event_id: str
    seq: int
    name: str
    key: str
    at: datetime
    matched: bool
    payload_text: str | None
    creator: str | None


class EmittedRow(msgspec.Struct, frozen=True):
    """An event as it is matched. marked: a server of before has stored it."""

    event_id: str
    seq: int
    tenant_id: TenantId
    name: str
    key: str
    at: datetime
    payload_text: str | None
    marked: bool = False


class Cause(msgspec.Struct, frozen=True):
    """What an event starts of a job. due_at: None when that is decided."""

    job_id: str
    due_at: datetime | None
    run_id: UUID | None
    reason: str | None


class StartedJob(msgspec.Struct, frozen=True):
    """A job that events start."""

    tenant_id: TenantId
    job_id: str
    generation: int
    schedule_text: str


class NewStart(msgspec.Struct, frozen=True):
    """An event starts a job. delay: in how many seconds at the latest."""

    tenant_id: TenantId
    event_id: str
    job_id: str
    generation: int
    seq: int
    part: str
    delay: float


class PendingStart(msgspec.Struct, frozen=True):
    """An event that is to start a job, of the job that the caller has locked."""

    event_id: str
    generation: int
    seq: int
    part: str
    due_at: datetime
    name: str
    key: str
    at: datetime
    payload_text: str | None


class NewEventRun(msgspec.Struct, frozen=True):
    """A run that events start. payload, spec: JSON."""

    run_id: UUID
    trigger: str
    payload: str
    spec: str | None


class StartNote(msgspec.Struct, frozen=True):
    """What became of an event of a job: its run, or why there is none."""

    event_id: str
    run_id: UUID | None
    reason: str | None = None


_get = RowQuery(StoredEvent, _SQL["get_event"])
_causes = RowQuery(Cause, _SQL["starts_of_event"])
_list = RowQuery(ListedEvent, _SQL["list_events"])
_list_by_name = RowQuery(ListedEvent, _SQL["list_events_by_name"])
_newest = RowQuery(EmittedRow, _SQL["newest_of_name"])
_to_match = RowQuery(EmittedRow, _SQL["events_to_match"])
_started_by = RowQuery(StartedJob, _SQL["jobs_started_by"])

_pending = RowQuery(PendingStart, _SQL["starts_of_job"])


async def insert(
    connection: Connection, tenant: TenantId, events: Sequence[NewEvent], created_by: UUID | None
) -> set[str]:
    """Store events. Return the ids of those that were not stored before."""
    rows = await connection.fetch(
        _SQL["insert_events"],
        tenant,
        [event.event_id for event in events],
        [event.name for event in events],
        [event.key for event in events],
        [event.payload for event in events],
        created_by,
    )
    return {row[0] for row in rows}


async def get(connection: Connection, tenant: TenantId, event_id: str) -> StoredEvent | None:
    return await _get.first(connection, tenant, event_id)


async def causes(connection: Connection, tenant: TenantId, event_id: str) -> list[Cause]:
    return await _causes.fetch(connection, tenant, event_id, MOST_CAUSES)


async def page(
    connection: Connection,
    tenant: TenantId,
    before: int | None,
    since: datetime | None,
    until: datetime | None,
    name: str | None,
    key: str | None,
    limit: int,
) -> list[ListedEvent]:
    """Newest first. With a key there is a name."""
    if name is None:
        return await _list.fetch(connection, tenant, before, since, until, limit)
    return await _list_by_name.fetch(connection, tenant, before, since, until, limit, name, key)


async def newest(connection: Connection, tenant: TenantId, name: str, limit: int) -> list[EmittedRow]:
    return await _newest.fetch(connection, tenant, name, limit)


async def is_only_matcher(connection: Connection) -> bool:
    """Whether no other process matches events until the end of this transaction."""
    return bool(await connection.fetchval(_SQL["only_matcher"]))


async def to_match(connection: Connection, limit: int) -> list[EmittedRow]:
    return await _to_match.fetch(connection, limit)


async def started_by(connection: Connection, names: Sequence[tuple[TenantId, str]]) -> list[StartedJob]:
    """The jobs that events of these tenants and names start."""
    return await _started_by.fetch(connection, [name[0] for name in names], [name[1] for name in names])


async def insert_starts(connection: Connection, starts: Sequence[NewStart]) -> None:
    await connection.execute(
        _SQL["insert_starts"],
        [start.tenant_id for start in starts],
        [start.event_id for start in starts],
        [start.job_id for start in starts],
        [start.generation for start in starts],
        [start.seq for start in starts],
        [start.part for start in starts],
        [start.delay for start in starts],
    )


async def mark_matched(connection: Connection, events: Sequence[EmittedRow]) -> None:
    """The caller is the only matcher. Raises RuntimeError if one is matched already."""
    done = 0
    if new := [event.seq for event in events if not event.marked]:
        done += len(await connection.fetch(_SQL["mark_matched"], new))
    if marked := [event for event in events if event.marked]:
        ids = [event.tenant_id for event in marked], [event.event_id for event in marked]
        done += len(await connection.fetch(_SQL["mark_matched_of_before"], *ids))
    if done != len(events):
        raise RuntimeError(f"{len(events) - done} of {len(events)} events are matched already")


async def jobs_to_start(connection: Connection, limit: int) -> list[JobKey]:
    """Jobs with events that are due, and jobs that no longer exist."""
    rows = await connection.fetch(_SQL["jobs_to_start"], limit) + await connection.fetch(_SQL["jobs_gone"], limit)
    return [(TenantId(row[0]), row[1]) for row in rows]


async def pending(connection: Connection, tenant: TenantId, job_id: str, limit: int) -> list[PendingStart]:
    """What is still to start of a job, in order. The caller has locked the job."""
    return await _pending.fetch(connection, tenant, job_id, limit)


async def note_starts(connection: Connection, tenant: TenantId, job_id: str, notes: Sequence[StartNote]) -> None:
    """The caller has locked the job. Raises Conflict if another transaction has noted one."""
    noted = await connection.fetch(
        _SQL["note_starts"], tenant, job_id, [one.event_id for one in notes], [one.run_id for one in notes],
        [one.reason for one in notes],
    )  # fmt: skip
    if len(noted) != len(notes):
        raise changed_meanwhile(f"job {job_id!r}")


async def create_runs(
    connection: Connection, tenant: TenantId, job_id: str, generation: int, new: Sequence[NewEventRun]
) -> FiredRows:
    """Create runs beside whatever is alive. The caller has locked the job. Raises Conflict if it has changed."""
    row = await connection.fetchrow(
        _SQL["create_event_runs"], tenant, job_id, generation, [run.run_id for run in new],
        [run.trigger for run in new], [run.payload for run in new], [run.spec for run in new],
    )  # fmt: skip
    if row["created"] != len(new):
        raise changed_meanwhile(f"job {job_id!r}")
    return FiredRows(dict(Counter(row["lanes"] or ())), [], lines=row["lines"] or [], held=row["held"] or [])


async def prune(connection: Connection, days: int, limit: int = _PRUNED_AT_ONCE) -> int:
    """Delete events that are older, with what they started. Returns how many."""
    total = 0
    while deleted := len(await connection.fetch(_SQL["prune_events"], days, limit)):
        total += deleted
    return total
