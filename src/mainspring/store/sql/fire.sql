-- Fire: turn due jobs into runs, by compare-and-set on (job, version, next_fire_at), under this node's lease.
-- Jobs are read by primary key only. next_fire_at is compared with "is not distinct from", so that the planner cannot
-- use the index of the due-scan. With statistics from a time with few jobs, it read all jobs of the node's shards
-- (100,000 rows, and seconds for a batch of 100). "shard + 0" has the same purpose.
-- Hash joins are off here, so a join of two lists compares all pairs. So the values of all jobs of a batch are in one
-- concatenated list and are read by subscript. A join by position took 55 of 75 ms for a batch of 500.

-- name: due_scan
-- All jobs of the node's shards that are due within the look-ahead. There is no lower bound, so that a late commit is
-- not skipped. LATERAL makes it one index range per shard.
select j.*
from unnest($1::smallint[]) as s (shard)
cross join lateral (
    select tenant_id, job_id, version, shard, next_fire_at, one_time, id_generated, overlap,
           schedule::text as schedule_text, spec::text as spec_text
    from mainspring.jobs
    where shard = s.shard and next_fire_at is not null
      and next_fire_at <= (select clock_timestamp()) + $2 * interval '1 second'
    order by next_fire_at
    limit $3
) as j

-- name: fire_one_time
-- A one-time job becomes its run: the jobs row is deleted, and the run is created from it. Its trigger is stored as
-- 'at' and shown as 'schedule'. This distinguishes it from a job that runs immediately.
-- creates: QUEUED
-- guard: lease owner and epoch, job version, next_fire_at and SCHEDULED.
with lease as materialized (
    {{lease}}
), due as (
    select * from unnest($4::int[], $5::text[], $6::int[], $7::timestamptz[], $8::uuid[])
        as d (tenant_id, job_id, version, next_fire_at, run_id)
), locked as materialized (
    select j.tenant_id, j.job_id, d.run_id
    from due d
    join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
    where j.version = d.version and j.next_fire_at is not distinct from d.next_fire_at
      and j.status = {{JOB_SCHEDULED}} and j.one_time
      and (j.last_fired_for is null or j.last_fired_for < j.next_fire_at)
      and j.shard + 0 = any (array(select shard from lease))
    order by j.tenant_id, j.job_id
    for update of j
), gone as (
    delete from mainspring.jobs j
    using locked
    where j.tenant_id = locked.tenant_id and j.job_id = locked.job_id
    returning j.*, locked.run_id
), new_run as (
    select run_id, tenant_id, lane_id, max_attempts, false as exclusive, next_fire_at as scheduled_for,
           case when id_generated then null else job_id end as job_id, 'at' as trigger, name, payload, spec,
           $1::uuid as node_id, true as fired
    from gone
), created as (
    {{create_runs}}
    returning lane_id
)
select created.lane_id, count(*)::int as created from created group by created.lane_id

-- name: lock_due
-- For jobs that skip overlapping runs: lock first, and decide in the next statement, whose snapshot is newer.
with lease as materialized (
    {{lease}}
)
select j.job_id
from unnest($4::int[], $5::text[]) as d (tenant_id, job_id)
join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
where j.shard + 0 = any (array(select shard from lease))
order by j.tenant_id, j.job_id
for no key update of j

-- name: fire_recurring
-- Advance the jobs, and insert their runs, skipped runs and missed ranges in one statement, from the rows.
-- creates: QUEUED, SKIPPED
-- guard: lease owner and epoch, job version, next_fire_at and SCHEDULED; last_fired_for only rises.
with lease as materialized (
    {{lease}}
), due as (
    select * from unnest($4::int[], $5::text[], $6::int[], $7::timestamptz[], $8::timestamptz[], $9::timestamptz[],
                         $10::int[], $11::int[], $12::int[], $13::int[])
        with ordinality as d (tenant_id, job_id, version, next_fire_at, through, following,
                              first_run, last_run, first_gap, last_gap, position)
), moved as (
    update mainspring.jobs j
    set next_fire_at = d.following, last_fired_for = d.through,
        status = case when d.following is null then {{JOB_COMPLETED}} else {{JOB_SCHEDULED}} end
    from due d
    where j.tenant_id = d.tenant_id and j.job_id = d.job_id
      and j.version = d.version and j.next_fire_at is not distinct from d.next_fire_at and j.status = {{JOB_SCHEDULED}}
      and (j.last_fired_for is null or j.last_fired_for < d.through)
      and j.shard + 0 = any (array(select shard from lease))
    returning j.tenant_id, j.job_id, j.lane_id, j.overlap, j.max_attempts, j.name, j.payload, j.spec, d.position,
              d.first_run, d.last_run, d.first_gap, d.last_gap
), new_run as materialized (
    select ($14::uuid[])[i] as run_id, m.tenant_id, m.lane_id, m.max_attempts,
           m.overlap = {{OVERLAP_SKIP}} as exclusive, ($15::timestamptz[])[i] as scheduled_for, m.job_id,
           null::text as trigger, m.name, m.payload, m.spec, $1::uuid as node_id, true as fired,
           m.overlap = {{OVERLAP_SKIP}} and (i > m.first_run or {{has_live_run(m)}}) as skipped
    from moved m
    cross join lateral generate_series(m.first_run, m.last_run) as i
), created as (
    {{create_runs}}
    where not n.skipped
    returning lane_id
), ended_run as (
    {{skipped_runs}}
), skips as (
    {{enter_history}}
), missed as (
    insert into mainspring.missed_fires (tenant_id, job_id, first_at, last_at, count, reason)
    select m.tenant_id, m.job_id, ($16::timestamptz[])[i], ($17::timestamptz[])[i], ($18::int[])[i], ($19::text[])[i]
    from moved m
    cross join lateral generate_series(m.first_gap, m.last_gap) as i
)
select (select array_agg(position) from moved) as moved,
       (select array_agg(lane_id) from created) as lanes,
       (select array_agg((run_id, follows)) from skips where follows <> 0) as skipped

-- name: run_now
-- A manual run of a job, independent of its schedule. The caller has locked the jobs row.
-- creates: QUEUED, SKIPPED
-- guard: not cancelled; the overlap rule is decided after the lock.
with new_run as materialized (
    select $3::uuid as run_id, j.tenant_id, j.lane_id, j.max_attempts, j.overlap = {{OVERLAP_SKIP}} as exclusive,
           null::timestamptz as scheduled_for, j.job_id, $4::text as trigger, j.name, j.payload, j.spec,
           null::uuid as node_id, true as fired, j.overlap = {{OVERLAP_SKIP}} and {{has_live_run(j)}} as skipped
    from mainspring.jobs j
    where j.tenant_id = $1 and j.job_id = $2 and j.status <> {{JOB_CANCELLED}}
), created as (
    {{create_runs}}
    where not n.skipped
    returning lane_id
), ended_run as (
    {{skipped_runs}}
), skips as (
    {{enter_history}}
)
select n.lane_id, n.skipped, (select follows from skips) as follows from new_run n

-- name: oldest_due
-- How late the most overdue job of these shards is, in seconds. The readiness check uses it.
select extract(epoch from (select clock_timestamp()) - min(j.next_fire_at))::float8
from unnest($1::smallint[]) as s (shard)
cross join lateral (
    select next_fire_at from mainspring.jobs
    where shard = s.shard and next_fire_at is not null
    order by next_fire_at limit 1
) as j
