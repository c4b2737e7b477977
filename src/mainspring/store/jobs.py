"""Jobs: jobs rows, chosen ids, idempotency keys and missed fires."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.domain.job import JobDefinition, Overlap, Priority, spec_from_text, spec_to_text
from mainspring.domain.schedules.misfire import Missed
from mainspring.domain.schedules.schedule import Schedule
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.config import SHARD_COUNT
from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.lanes import Lane
from mainspring.store.pool import Connection
from mainspring.store.queries import load
from mainspring.store.rows import PageRow, RowQuery, size_of

KEY_DAYS = 30  # an idempotency key is known at least so long after the end of its job

_SQL = load("jobs")
_encode = msgspec.json.Encoder().encode
_decode_schedule = msgspec.json.Decoder(Schedule).decode


class NewJob(msgspec.Struct, frozen=True):
    """A jobs row to be inserted."""

    job_id: str
    id_generated: bool
    lane_id: int
    definition: JobDefinition
    next_fire_at: datetime | None


class JobRow(PageRow, frozen=True):
    """A job that will fire or can be fired manually. `status` is a StoredJobStatus."""

    tenant_id: TenantId
    job_id: str
    lane_id: int
    shard: int
    status: int
    version: int
    overlap: int
    next_fire_at: datetime | None
    last_fired_for: datetime | None
    paused_from: datetime | None
    created_at: datetime
    updated_at: datetime
    name: str | None
    schedule_text: str
    payload_text: str | None
    spec_text: str | None
    declared_by: str | None
    pruned_version: int | None

    @property
    def pruned(self) -> bool:
        """Whether the job is paused because its application no longer declares it. Any change by a server that does not
        know the column, such as a person's pause, raises only the version and so ends this."""
        return self.status == StoredJobStatus.PAUSED and self.pruned_version == self.version

    @property
    def weight(self) -> int:
        return size_of(self.payload_text, self.spec_text, self.name, self.schedule_text)


class LockedJob(JobRow, frozen=True):
    """A job whose row the transaction has locked. `now` is the database's time when the lock was held."""

    now: datetime


class MissedRow(msgspec.Struct, frozen=True):
    """A range of fires that were missed."""

    first_at: datetime
    last_at: datetime
    count: int
    reason: str
    recorded_at: datetime


_get_job = RowQuery(JobRow, _SQL["get_job"])
_list_jobs = RowQuery(JobRow, _SQL["list_jobs"])
_lock_job = RowQuery(LockedJob, _SQL["lock_job"])
_list_missed = RowQuery(MissedRow, _SQL["list_missed"])


def shard_of(tenant: TenantId, job_id: str) -> int:
    """The shard of a job. It is the same in every process and release."""
    return zlib.crc32(f"{tenant}/{job_id}".encode()) % SHARD_COUNT


def schedule_from_text(text: str) -> Schedule:
    return _decode_schedule(text)


def definition_of(row: JobRow, lane: Lane) -> JobDefinition:
    """The definition in a jobs row."""
    spec = spec_from_text(row.spec_text)
    return JobDefinition(
        task=lane.task,
        name=row.name,
        payload=row.payload_text,
        queue=lane.queue,
        priority=Priority(lane.priority),
        schedule=schedule_from_text(row.schedule_text),
        overlap=Overlap(row.overlap),
        spec=spec,
        job_id=row.job_id,
        idempotency_key=spec.idempotency_key,
        required_labels=lane.required_labels,
        declared_by=row.declared_by,
    )


async def insert(connection: Connection, tenant: TenantId, new: Sequence[NewJob]) -> None:
    await connection.execute(
        _SQL["insert_jobs"],
        tenant,
        [job.job_id for job in new],
        [job.lane_id for job in new],
        [shard_of(tenant, job.job_id) for job in new],
        [int(job.definition.overlap) for job in new],
        [job.definition.spec.retry.max_attempts for job in new],
        [job.definition.schedule.one_time for job in new],
        [job.id_generated for job in new],
        [job.next_fire_at for job in new],
        [job.definition.name for job in new],
        [_encode(job.definition.schedule).decode() for job in new],
        [job.definition.payload for job in new],
        [spec_to_text(job.definition.spec) for job in new],
        [job.definition.declared_by for job in new],
    )


async def take_ids(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> set[str]:
    """Take ids that clients chose. Return those that were free."""
    return {row["job_id"] for row in await connection.fetch(_SQL["take_ids"], tenant, job_ids)}


class KnownKey(msgspec.Struct, frozen=True):
    body_hash: bytes
    job_id: str


async def take_keys(
    connection: Connection, tenant: TenantId, keys: Sequence[tuple[str, bytes, str]]
) -> dict[str, KnownKey]:
    """Take idempotency keys (key, body hash, job id). Return those that existed before, with their values."""
    inserted = {
        row["key"]
        for row in await connection.fetch(
            _SQL["insert_keys"], tenant, [k[0] for k in keys], [k[1] for k in keys], [k[2] for k in keys]
        )
    }
    rest = [key[0] for key in keys if key[0] not in inserted]
    if not rest:
        return {}
    rows = await connection.fetch(_SQL["known_keys"], tenant, rest)
    return {key: KnownKey(body_hash, job_id) for key, body_hash, job_id in rows}


async def get(connection: Connection, tenant: TenantId, job_id: str) -> JobRow | None:
    return await _get_job.first(connection, tenant, job_id)


async def lock(connection: Connection, tenant: TenantId, job_id: str) -> LockedJob | None:
    """Lock the jobs row. Fires of the job wait for this lock."""
    return await _lock_job.first(connection, tenant, job_id)


async def change(
    connection: Connection,
    tenant: TenantId,
    job_id: str,
    version: int,
    *,
    status: int,
    next_fire_at: datetime | None,
    paused_from: datetime | None,
    lane_id: int,
    definition: JobDefinition,
    now: datetime,
    pruned: bool = False,
) -> bool:
    """Write a changed job and raise its version. Return False if the version is no longer `version`."""
    changed = await connection.fetchval(
        _SQL["change_job"],
        tenant,
        job_id,
        version,
        status,
        next_fire_at,
        paused_from,
        lane_id,
        int(definition.overlap),
        definition.spec.retry.max_attempts,
        definition.name,
        _encode(definition.schedule).decode(),
        definition.payload,
        spec_to_text(definition.spec),
        definition.schedule.one_time,
        now,
        definition.declared_by,
        pruned,
    )
    return changed is not None


async def record_missed(connection: Connection, tenant: TenantId, job_id: str, missed: Missed) -> None:
    await connection.execute(
        _SQL["insert_missed"], tenant, job_id, missed.first, missed.last, missed.count, missed.reason
    )


async def list_missed(connection: Connection, tenant: TenantId, job_id: str, limit: int) -> list[MissedRow]:
    return await _list_missed.fetch(connection, tenant, job_id, limit)


async def list_jobs(
    connection: Connection,
    tenant: TenantId,
    *,
    before: tuple[datetime, str] | None,
    statuses: Sequence[int] | None,
    lane_ids: Sequence[int] | None,
    owner: str | None,
    label: tuple[str, str] | None,
    text: str | None,
    limit: int,
    declared_by: str | None = None,
) -> list[JobRow]:
    return await pages.read(
        connection,
        _list_jobs,
        tenant,
        before[0] if before else None,
        before[1] if before else None,
        statuses,
        lane_ids,
        owner,
        label[0] if label else None,
        label[1] if label else None,
        contains(text),
        declared_by,
        limit,
        straight=lane_ids is None and owner is None and label is None and text is None and declared_by is None,
    )


async def prune(connection: Connection, days: float, batch: int = 10_000) -> int:
    """Forget the idempotency keys of jobs that ended long ago, and chosen ids that are older than the history; answers
    how many. A key outlives its job by the days of the history, and by 30 days at least."""
    forgotten = 0
    for query, age in ((_SQL["prune_keys"], max(days, KEY_DAYS)), (_SQL["prune_ids"], days)):
        while True:
            done = int((await connection.execute(query, age, batch)).rpartition(" ")[2])
            forgotten += done
            if done < batch:
                break
    return forgotten


async def keep_keys(connection: Connection, since: datetime, until: datetime, batch: int = 10_000) -> None:
    """Note the ends of jobs in the history between `since` and `until` in their idempotency keys. Without it nobody
    would know, after the history is dropped, how long to keep the keys."""
    last: UUID | None = UUID(int=0)
    while last is not None:
        last = await connection.fetchval(_SQL["keep_keys"], since, until, last, batch)


def contains(text: str | None) -> str | None:
    """An ILIKE pattern that finds `text` literally."""
    if text is None:
        return None
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
