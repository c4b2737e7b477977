"""Rows of a database with very many jobs and ended runs, made by PostgreSQL itself, straight into the tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import asyncpg

from mainspring.domain.transitions import StoredJobStatus, StoredState
from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.store import partitions

_BATCH = 100_000
_NORMAL = "sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())"
# $1 tenant, $2 lanes, $3 first, $4 last, $5 first end, $6 time between two, $7 worker, $8 jobs. One in a hundred fails,
# three are tried again.
_RUNS = f"""
with drawn as materialized (
    select n, $5::timestamptz + n * $6::interval as ended_at, exp(3 + {_NORMAL}) as ran, exp(1.5 + {_NORMAL}) as lag,
           random() < 0.01 as failed, random() < 0.03 as retried
    from generate_series($3::bigint, $4::bigint) as n
), timed as (
    select *, ended_at - ran * interval '1 millisecond' as started_at,
           ended_at - (ran + lag) * interval '1 millisecond' as scheduled_for
    from drawn
), made as (
    insert into mainspring.run_history
        (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, started_at, ended_at, ran_ms,
         worker_id, job_id, reason, error, payload)
    select (lpad(to_hex((extract(epoch from scheduled_for) * 1000)::bigint), 12, '0')
            || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
           $1, ($2::int[])[n % cardinality($2) + 1],
           case when failed then {StoredState.FAILED:d} else {StoredState.SUCCESS:d} end, 1 + retried::int, 4,
           1 + retried::int, scheduled_for, started_at, ended_at, ran, $7,
           case when $8::bigint > 0 then 'job-' || lpad((n * 7919 % $8)::text, 7, '0') end,
           case when failed then 'the last attempt failed' end,
           case when failed then
               case n % 3 when 0 then 'TimeoutError: smtp.example.com did not answer within 30.5 s'
                          when 1 then 'ValueError: account ' || n % 1000 || ' has no address'
                          else 'FileNotFoundError: no such file: ''/srv/reports/' || n % 1000 || '.csv''' end end,
           '{{"account": "a1", "cents": 900, "note": "made by the benchmark"}}'
    from timed
    returning run_id, attempt, started_at
)
insert into mainspring.attempts (run_id, attempt, fence, worker_id, started_at, ended_at, outcome, error, ready_at)
select run_id, 1, 1, $7, started_at - interval '3 milliseconds', started_at - interval '1 millisecond', 'FAILED',
       'TimeoutError: smtp.example.com did not answer within 30.5 s', started_at
from made where attempt = 2
"""
# Copies of the job $2, which a server has stored: numbers $5 to $6 of $3, with 100 owners and 100 values of a label.
_JOBS = f"""
insert into mainspring.jobs
    (tenant_id, job_id, lane_id, shard, status, max_attempts, one_time, id_generated, next_fire_at, created_at,
     updated_at, name, schedule, payload, spec)
select j.tenant_id, 'job-' || lpad(n::text, 7, '0'), ($4::int[])[n % cardinality($4) + 1], n % 128,
       case when n % 50 = 0 then {StoredJobStatus.PAUSED:d} else {StoredJobStatus.SCHEDULED:d} end, j.max_attempts,
       false, false, case when n % 50 > 0 then j.next_fire_at + n % 86400 * interval '1 second' end,
       j.created_at - ($3 - n) * interval '1 millisecond', j.updated_at, 'Report ' || n || ' of team ' || n % 100,
       j.schedule, j.payload, replace(j.spec::text, 'team-0', 'team-' || n % 100)::json
from mainspring.jobs j
cross join generate_series($5::int, $6::int) as n
where j.tenant_id = $1 and j.job_id = $2
"""

_DEAD_LETTERS = f"""
insert into mainspring.dead_letters
    (run_id, tenant_id, lane_id, job_id, attempts, max_attempts, error, reason, scheduled_for, died_at, payload)
select run_id, tenant_id, lane_id, job_id, attempt, max_attempts, error, reason, scheduled_for, ended_at, payload
from mainspring.run_history where state = {StoredState.FAILED:d}
"""

_MISSED = """
insert into mainspring.missed_fires (tenant_id, job_id, generation, first_at, last_at, count, reason, recorded_at)
select tenant_id, job_id, generation, $1, $1, 1, 'paused', $1
from mainspring.jobs where tenant_id = $2 and hashtext(job_id) % 10 = 0
"""


async def add_lanes(connection: asyncpg.Connection, tasks: int, queues: int = 1) -> list[int]:
    rows = await connection.fetch(
        "insert into mainspring.lanes (tenant_id, queue, priority, task)"
        " select $1, case n % $3 when 0 then 'default' else 'queue_' || n % $3 end, 1, 'tasks.task_' || n"
        " from generate_series(0, $2 - 1) as n returning lane_id",
        DEFAULT_TENANT, tasks, queues,
    )  # fmt: skip
    return [row["lane_id"] for row in rows]


async def add_jobs(connection: asyncpg.Connection, template: str, lanes: Sequence[int], number: int) -> None:
    for first in range(0, number, _BATCH):
        last = min(number, first + _BATCH) - 1
        await connection.execute(_JOBS, DEFAULT_TENANT, template, number, lanes, first, last)


async def add_runs(
    connection: asyncpg.Connection,
    lanes: Sequence[int],
    number: int,
    start: datetime,
    end: datetime,
    *,
    jobs: int = 0,
) -> None:
    """Ended runs, evenly between two times, and the attempts of those that were tried again. With `jobs` they are the
    runs of such jobs, otherwise of one-time jobs."""
    await _add_days(connection, start, end)
    worker, step = uuid7(), (end - start) / number
    for first in range(0, number, _BATCH):
        last = min(number, first + _BATCH) - 1
        await connection.execute(_RUNS, DEFAULT_TENANT, lanes, first, last, start, step, worker, jobs)


async def add_dead_letters(connection: asyncpg.Connection) -> None:
    """Add a dead letter for each run that failed."""
    await connection.execute(_DEAD_LETTERS)


async def add_missed_fires(connection: asyncpg.Connection, at: datetime) -> None:
    """Add missed fires for about a tenth of the jobs."""
    await connection.execute(_MISSED, at, DEFAULT_TENANT)


async def _add_days(connection: asyncpg.Connection, start: datetime, end: datetime) -> None:
    """Partitions for the days of the runs. Servers need none for days before yesterday."""
    day = start.date()
    while day <= end.date():
        low = datetime(day.year, day.month, day.day, tzinfo=UTC)
        for parent in partitions.PARTITIONED:
            await connection.execute(
                f"create table if not exists mainspring.{parent}_{day:%Y%m%d} partition of mainspring.{parent}"
                f" for values from ('{low.isoformat()}') to ('{(low + timedelta(days=1)).isoformat()}')"
            )
        day += timedelta(days=1)
