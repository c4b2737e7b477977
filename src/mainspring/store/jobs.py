"""Jobs: jobs rows and chosen ids."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.dependencies import edges_of
from mainspring.domain.health import NEVER_RAN_STATE, HealthState
from mainspring.domain.job import (
    JobDefinition,
    Overlap,
    Priority,
    Spec,
    spec_from_text,
    stored_spec,
    unreadable,
)
from mainspring.domain.schedules.nominal_times import latest
from mainspring.domain.schedules.schedule import Schedule, with_seed
from mainspring.domain.tags import changed_meanwhile
from mainspring.domain.transitions import StoredJobStatus
from mainspring.kernel.config import SHARD_COUNT
from mainspring.kernel.ids import TenantId
from mainspring.store import pages
from mainspring.store.counts import Count
from mainspring.store.idempotency_keys import KEY_DAYS
from mainspring.store.lanes import Lane
from mainspring.store.pool import Connection
from mainspring.store.queries import load, load_without_payloads
from mainspring.store.rows import PageRow, RowQuery, size_of

_SQL = load("jobs")
_LIGHT_SQL = load_without_payloads("jobs")
_encode = msgspec.json.Encoder().encode
_decode_schedule = msgspec.json.Decoder(Schedule).decode


class NewJob(msgspec.Struct, frozen=True):
    """A jobs row to be inserted."""

    job_id: str
    id_generated: bool
    lane_id: int
    definition: JobDefinition
    next_fire_at: datetime | None
    generation: int = 1

    @property
    def runs_left(self) -> int | None:
        return self.definition.schedule.max_runs


class JobRow(PageRow, frozen=True):
    """A job that will fire or can be fired manually. `status` is a StoredJobStatus. `runs_left`: of max_runs.
    `last_nominal_for`: all nominal times up to it are dealt with. `created_by`: the token that created it, whose name
    is `creator`."""

    tenant_id: TenantId
    job_id: str
    lane_id: int
    shard: int
    status: int
    version: int
    overlap: int
    next_fire_at: datetime | None
    last_fired_for: datetime | None
    last_nominal_for: datetime | None
    paused_from: datetime | None
    created_at: datetime
    updated_at: datetime
    name: str | None
    schedule_text: str
    payload_text: str | None
    spec_text: str | None
    declared_by: str | None
    pruned_version: int | None
    generation: int
    runs_left: int | None
    created_by: UUID | None
    creator: str | None

    @property
    def pruned(self) -> bool:
        """Whether the job is paused because its application no longer declares it. Any change by a server that does not
        know the column, such as a person's pause, raises only the version and so ends this."""
        return self.status == StoredJobStatus.PAUSED and self.pruned_version == self.version

    @property
    def dealt_with(self) -> datetime | None:
        """No nominal time up to this one fires any more."""
        return latest(self.last_nominal_for, self.last_fired_for)

    @property
    def weight(self) -> int:
        return size_of(self.payload_text, self.spec_text, self.name, self.schedule_text)


class LockedJob(JobRow, frozen=True):
    """A job whose row the transaction has locked. `now` is the database's time when the lock was held."""

    now: datetime


class Holder(msgspec.Struct, frozen=True):
    """Who has a chosen id: the StoredJobStatus of a job that has a row, and one of its live runs."""

    job_id: str
    status: int | None
    run_id: UUID | None


_get_job = RowQuery(JobRow, _SQL["get_job"])
_get_past_job = RowQuery(JobRow, _SQL["get_past_job"])
_holders = RowQuery(Holder, _SQL["holders"])
_list_jobs = RowQuery(JobRow, _SQL["list_jobs"])
_list_workflows = RowQuery(JobRow, _SQL["list_workflows"])
_list_unwell = RowQuery(JobRow, _SQL["list_unwell"])
_list_jobs_at_rest = RowQuery(JobRow, _SQL["list_jobs_at_rest"])
_LIGHT = {
    _list_jobs: RowQuery(JobRow, _LIGHT_SQL["list_jobs"]),
    _list_workflows: RowQuery(JobRow, _LIGHT_SQL["list_workflows"]),
    _list_unwell: RowQuery(JobRow, _LIGHT_SQL["list_unwell"]),
    _list_jobs_at_rest: RowQuery(JobRow, _LIGHT_SQL["list_jobs_at_rest"]),
}
_lock_job = RowQuery(LockedJob, _SQL["lock_job"])


def shard_of(tenant: TenantId, job_id: str) -> int:
    """The shard of a job. It is the same in every process and release."""
    return zlib.crc32(f"{tenant}/{job_id}".encode()) % SHARD_COUNT


def schedule_from_text(text: str) -> Schedule:
    """Raises Unreadable."""
    try:
        return _decode_schedule(text)
    except msgspec.DecodeError as error:
        raise unreadable("schedule", error) from None


def _schedule_text(definition: JobDefinition, tenant: TenantId, job_id: str) -> str:
    """Its schedule as it is stored: never without the seed of the job."""
    return _encode(with_seed(definition.schedule, tenant, job_id)).decode()


def definition_of(row: JobRow, lane: Lane) -> JobDefinition:
    """The definition in a jobs row. Raises Unreadable."""
    return definition_with(row, lane, spec_from_text(row.spec_text), schedule_from_text(row.schedule_text))


def definition_with(row: JobRow, lane: Lane, spec: Spec, schedule: Schedule) -> JobDefinition:
    return JobDefinition(
        task=lane.task,
        name=row.name,
        payload=row.payload_text,
        queue=lane.queue,
        priority=Priority(lane.priority),
        schedule=schedule,
        overlap=Overlap(row.overlap),
        spec=spec,
        job_id=row.job_id,
        idempotency_key=spec.idempotency_key,
        required_labels=lane.required_labels,
        declared_by=row.declared_by,
    )


async def insert(
    connection: Connection, tenant: TenantId, new: Sequence[NewJob], created_by: UUID | None = None
) -> None:
    """Insert jobs. Later generations replace the rows of ended jobs; the caller has locked these."""
    for statement, chosen in (
        (_SQL["insert_jobs"], [job for job in new if job.generation == 1]),
        (_SQL["renew_jobs"], [job for job in new if job.generation > 1]),
    ):
        if chosen and await _insert(connection, statement, tenant, chosen, created_by) != len(chosen):
            raise changed_meanwhile("jobs")


async def _insert(
    connection: Connection, statement: str, tenant: TenantId, new: Sequence[NewJob], created_by: UUID | None
) -> int:
    done: str = await connection.execute(
        statement,
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
        [_schedule_text(job.definition, tenant, job.job_id) for job in new],
        [job.definition.payload for job in new],
        [stored_spec(job.definition, job.job_id) for job in new],
        [job.definition.declared_by for job in new],
        [job.generation for job in new],
        [job.runs_left for job in new],
        [edges_of(job.definition) for job in new],
        created_by,
    )
    return int(done.rpartition(" ")[2])


async def take_ids(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> set[str]:
    """Take ids that clients chose. Return those that were free."""
    return {row["job_id"] for row in await connection.fetch(_SQL["take_ids"], tenant, job_ids)}


async def lock_holders(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> list[Holder]:
    """Lock ids that were taken before, and their jobs. Return who has them."""
    await connection.fetch(_SQL["lock_taken_ids"], tenant, job_ids)
    await connection.fetch(_SQL["lock_holders"], tenant, job_ids)
    return await _holders.fetch(connection, tenant, job_ids)  # its snapshot is newer than the locks


async def next_generations(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> dict[str, int]:
    """Begin a new generation of ids whose jobs have ended. The caller has locked them. The rows of the jobs stay until
    they are replaced or deleted."""
    return dict(await connection.fetch(_SQL["next_generations"], tenant, job_ids))


async def delete_ended(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> None:
    """Delete the rows of ended jobs, if they have any. The caller has locked them."""
    await connection.execute(_SQL["delete_ended"], tenant, job_ids)


async def newest_generation(connection: Connection, tenant: TenantId, job_id: str) -> int | None:
    """The newest generation of an id that a client chose."""
    generation: int | None = await connection.fetchval(_SQL["newest_generation"], tenant, job_id)
    return generation


async def past(connection: Connection, tenant: TenantId, job_id: str, generation: int) -> JobRow | None:
    """The row of an earlier generation, as it was when the next one began."""
    return await _get_past_job.first(connection, tenant, job_id, generation)


async def lock_fired(connection: Connection, tenant: TenantId, job_ids: Sequence[str]) -> None:
    """Lock one-time jobs that have fired, in this order. All who create another run of one by hand take this lock."""
    await connection.fetch(_SQL["lock_fired_job"], tenant, job_ids)


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
    runs_left: int | None,
    last_nominal_for: datetime | None,
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
        _schedule_text(definition, tenant, job_id),
        definition.payload,
        stored_spec(definition, job_id),
        definition.schedule.one_time,
        now,
        definition.declared_by,
        pruned,
        runs_left,
        edges_of(definition) or 0,
        last_nominal_for,
    )
    return changed is not None


async def cancel_unreadable(connection: Connection, row: LockedJob) -> bool:
    """Cancel a job and leave its definition as it is stored. Return False if its version has changed."""
    cancelled = await connection.fetchval(
        _SQL["cancel_unreadable"], row.tenant_id, row.job_id, row.version, int(StoredJobStatus.CANCELLED), row.now
    )
    return cancelled is not None


class JobFilter(msgspec.Struct, frozen=True):
    """What `GET /v1/jobs` asks for, except the status. None means any. `workflows`: only these, which are few.
    `created_by`: the name or id of a token. `within`: labels that all of them have, as JSON. `health`: as stored."""

    lane_ids: Sequence[int] | None = None
    owner: str | None = None
    label: tuple[str, str] | None = None
    text: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    next_fire_after: datetime | None = None
    next_fire_before: datetime | None = None
    declared_by: str | None = None
    workflows: bool = False
    created_by: str | None = None
    within: str | None = None
    health: Sequence[int] | None = None

    @property
    def unwell(self) -> bool:
        """Whether an index has these jobs: none is healthy or has never run."""
        return self.health is not None and not {HealthState.HEALTHY, NEVER_RAN_STATE} & set(self.health)


class RowFilter(msgspec.Struct, frozen=True):
    """Which jobs that have a row. `missed`: also one-time jobs that were missed, which are stored as COMPLETED."""

    statuses: Sequence[int]
    missed: bool = False
    asked: JobFilter = JobFilter()

    @property
    def at_rest(self) -> bool:
        """Whether an index has these jobs."""
        return int(StoredJobStatus.SCHEDULED) not in self.statuses

    @property
    def few(self) -> bool:
        """Whether they are few of many, and are read by their ids."""
        return self.asked.workflows or self.asked.unwell

    @property
    def of_owner(self) -> bool:
        """Whether the index of the owners has these jobs."""
        return not self.at_rest and self.asked.owner is not None

    @property
    def plain(self) -> bool:
        return self.asked == JobFilter()


Place = tuple[datetime, str]


async def list_jobs(
    connection: Connection,
    tenant: TenantId,
    chosen: RowFilter,
    before: Place | None,
    floor: Place | None,
    limit: int,
    *,
    light: bool = False,
) -> list[JobRow]:
    """Newest first, before `before` and down to `floor`. `light`: without payloads."""
    query = _list_jobs_at_rest if chosen.at_rest else _list_jobs
    if chosen.few:
        query = _list_workflows if chosen.asked.workflows else _list_unwell
    return await pages.read(
        connection,
        _LIGHT[query] if light else query,
        *_listed(tenant, chosen, before, floor, limit),
        straight=not chosen.few and (chosen.plain or floor is not None),
    )


def _listed(
    tenant: TenantId, chosen: RowFilter, before: Place | None, floor: Place | None, limit: int
) -> tuple[Any, ...]:
    """The arguments of the fragment listed_job, and the limit."""
    asked = chosen.asked
    return (
        tenant, *(before or (None, None)), chosen.statuses, asked.lane_ids, asked.owner, *(asked.label or (None, None)),
        contains(asked.text), *(floor or (None, None)), asked.created_after, asked.created_before,
        asked.next_fire_after, asked.next_fire_before, chosen.missed, asked.declared_by, asked.created_by,
        asked.within, asked.health, limit,
    )  # fmt: skip


def count_of(tenant: TenantId, chosen: RowFilter) -> Count:
    """How many jobs that have a row match."""
    return Count(_SQL["count_jobs"], _listed(tenant, chosen, None, None, 0)[:-1])


async def boundary(
    connection: Connection, tenant: TenantId, chosen: RowFilter, before: Place | None, count: int
) -> Place | None:
    """The job down to which `count` jobs come after `before`, of those that an index has. None if there are fewer."""
    if chosen.few:
        return None
    sql = _SQL["jobs_at_rest_boundary"] if chosen.at_rest else _SQL["jobs_boundary"]
    arguments = [tenant, *(before or (None, None)), count]
    if chosen.of_owner:
        sql = _SQL["jobs_of_owner_boundary"]
        arguments.append(chosen.asked.owner)
    row = await pages.place(connection, sql, *arguments)
    return None if row is None else (row["created_at"], row["job_id"])


async def prune(connection: Connection, days: float, batch: int = 10_000) -> int:
    """Forget the idempotency keys of jobs that ended long ago, chosen ids that are older than the history, and earlier
    generations that were replaced long ago; answers how many. A key outlives its job by the days of the history, and by
    30 days at least."""
    forgotten = 0
    key_days = max(days, KEY_DAYS)
    for query, age in (
        (_SQL["prune_keys"], key_days),
        (_SQL["prune_run_now_keys"], key_days),
        (_SQL["prune_ids"], days),
        (_SQL["prune_past_jobs"], days),
    ):
        while True:
            done = int((await connection.execute(query, age, batch)).rpartition(" ")[2])
            forgotten += done
            if done < batch:
                break
    return forgotten


def contains(text: str | None) -> str | None:
    """An ILIKE pattern that finds `text` literally."""
    if text is None:
        return None
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
