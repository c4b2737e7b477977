"""Rows for the tests of the store, the scheduler and the upkeep, written by the store's own functions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from mainspring.domain.job import DEFAULT_SPEC, JobDefinition, Overlap, Priority, Spec, spec_to_text
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from mainspring.kernel.ids import DEFAULT_TENANT, TenantId, uuid7, uuid7_batch
from mainspring.store import jobs, runs, workers
from mainspring.store.claimed_runs import ClaimedRun
from mainspring.store.pool import Connection, Record
from mainspring.wire.exchange import WorkerHello
from tests.eventually import PATIENCE

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


async def now_of(connection: Connection) -> datetime:
    """The database's time."""
    moment: datetime = await connection.fetchval("select clock_timestamp()")
    return moment


async def a_lane(
    connection: Connection, task: str = "work", *, queue: str = "default", priority: int = Priority.NORMAL
) -> int:
    lane_id: int = await connection.fetchval(
        "insert into mainspring.lanes (tenant_id, queue, priority, task) values ($1, $2, $3, $4) returning lane_id",
        DEFAULT_TENANT,
        queue,
        int(priority),
        task,
    )
    return lane_id


async def queued(
    connection: Connection,
    lane_id: int,
    count: int = 1,
    *,
    waited: float = 0.0,
    spec: Spec = DEFAULT_SPEC,
    max_attempts: int = 4,
    payload: str | None = '{"n": 1}',
    job_id: str | None = None,
) -> list[UUID]:
    """Runs that have been QUEUED for `waited` seconds. With a negative number they back off."""
    run_ids = uuid7_batch(count)
    new = runs.NewRuns()
    new.run_ids = [str(run_id) for run_id in run_ids]
    new.lane_ids = [lane_id] * count
    new.max_attempts = [max_attempts] * count
    new.job_ids = [job_id] * count
    new.names = [None] * count
    new.payloads = [payload] * count
    new.specs = [spec_to_text(spec)] * count
    new.generations = [1] * count
    await runs.insert(connection, DEFAULT_TENANT, new)
    await connection.execute(
        "update mainspring.runs set ready_at = ready_at - $2::interval where run_id = any ($1)",
        run_ids,
        timedelta(seconds=waited),
    )
    return run_ids


async def claim(
    connection: Connection, lane_ids: Sequence[int], limit: int, worker_id: UUID, seq: int = 1
) -> list[ClaimedRun]:
    """Claim as an exchange does, with the lanes' own priorities."""
    rows = await connection.fetch(
        "select lane_id, priority from mainspring.lanes where lane_id = any ($1) order by lane_id", list(lane_ids)
    )
    return await runs.claim(
        connection, [(row["lane_id"], row["priority"], BEGINNING) for row in rows], limit, worker_id, seq
    )


async def a_worker(
    connection: Connection,
    name: str = "a worker",
    *,
    registered_ago: float = 3600.0,
    rescue_after: float = 7.0,
    exclusive_rescue_after: float = 7.0,
    worker_id: UUID | None = None,
) -> UUID:
    """A live incarnation that registered a while ago and has sent no heartbeat since."""
    worker_id = worker_id or uuid7()
    assert await workers.register(
        connection,
        DEFAULT_TENANT,
        worker_id,
        WorkerHello(name=name, queues=["default"], tasks=["work"], slots=10),
        rescue_after=rescue_after,
        exclusive_rescue_after=exclusive_rescue_after,
    )
    await connection.execute(
        "update mainspring.workers set registered_at = registered_at - $2::interval where worker_id = $1",
        worker_id,
        timedelta(seconds=registered_ago),
    )
    return worker_id


async def claimed_long_ago(connection: Connection, worker_id: UUID, seconds: float = 3600.0) -> None:
    """The runs of this worker were claimed so long ago. A claim is a sign of life."""
    await connection.execute(
        "update mainspring.runs set claimed_at = claimed_at - $2::interval where worker_id = $1",
        worker_id,
        timedelta(seconds=seconds),
    )


async def all_fall_silent(connection: Connection) -> None:
    """Make the last sign of life of all workers an hour old."""
    await connection.execute("truncate mainspring.worker_beats_0, mainspring.worker_beats_1")
    await connection.execute(
        "update mainspring.workers set registered_at = registered_at - interval '1 hour', heard_at = null"
    )
    await connection.execute("update mainspring.runs set claimed_at = claimed_at - interval '1 hour'")


async def beat(
    connection: Connection, *worker_ids: UUID, ago: float, table: int = 0, server_id: UUID | None = None
) -> None:
    """A heartbeat of these workers, recorded by one server, `ago` seconds old."""
    await connection.execute(
        f"""insert into mainspring.worker_beats_{table} (server_id, at, worker_ids)
            values ($1, clock_timestamp() - $2::interval, $3)""",
        server_id or uuid7(),
        timedelta(seconds=ago),
        worker_ids,
    )


async def a_job(
    connection: Connection,
    lane_id: int,
    job_id: str,
    schedule: Schedule,
    next_fire_at: datetime | None,
    *,
    overlap: Overlap = Overlap.SKIP,
    spec: Spec = DEFAULT_SPEC,
    id_generated: bool = False,
    payload: str | None = '{"n": 1}',
    tenant: TenantId = DEFAULT_TENANT,
) -> str:
    definition = JobDefinition(task="work", payload=payload, schedule=schedule, overlap=overlap, spec=spec)
    await jobs.insert(connection, tenant, [jobs.NewJob(job_id, id_generated, lane_id, definition, next_fire_at)])
    return job_id


def every(seconds: float, anchor: datetime) -> Schedule:
    return Schedule(kind=ScheduleKind.EVERY, every=seconds, anchor=anchor)


def at(moment: datetime) -> Schedule:
    return Schedule(kind=ScheduleKind.AT, at=moment)


async def job_row(connection: Connection, job_id: str) -> Record:
    """The row of a job, with all its columns."""
    row: Record | None = await connection.fetchrow(
        "select * from mainspring.jobs where tenant_id = $1 and job_id = $2", DEFAULT_TENANT, job_id
    )
    assert row is not None, f"there is no job {job_id}"
    return row


async def live(connection: Connection, job_id: str | None = None) -> list[Record]:
    """The rows of runs, oldest first, of one job or of all."""
    rows: list[Record] = await connection.fetch(
        """select * from mainspring.runs
           where $1::text is null or job_id = $1 or run_id::text = $1 order by scheduled_for""",
        job_id,
    )
    return rows


async def ended(connection: Connection, job_id: str | None = None) -> list[Record]:
    """The rows of run_history by fire time, of one job or of all."""
    rows: list[Record] = await connection.fetch(
        """select * from mainspring.run_history
           where $1::text is null or job_id = $1 or run_id::text = $1 order by scheduled_for""",
        job_id,
    )
    return rows


async def until_blocked(observer: asyncpg.Connection, pid: int) -> None:
    """Return when that backend waits for a lock."""
    async with asyncio.timeout(PATIENCE):
        while not await observer.fetchval("select cardinality(pg_blocking_pids($1)) > 0", pid):
            pass


async def until_blocking(observer: asyncpg.Connection, pid: int) -> None:
    """Return when another backend waits for a lock of that backend."""
    waiting = "select exists (select from pg_stat_activity where $1 = any (pg_blocking_pids(pid)))"
    async with asyncio.timeout(PATIENCE):
        while not await observer.fetchval(waiting, pid):
            pass
