-- Fire: turn due jobs into runs, by compare-and-set on (job, version, next_fire_at), under this node's lease.
-- Jobs are read by primary key only. next_fire_at is compared with "is not distinct from", so that the planner cannot
-- use the index of the due-scan. With statistics from a time with few jobs, it read all jobs of the node's shards
-- (100,000 rows, and seconds for a batch of 100). "shard + 0" has the same purpose.
-- Hash joins are off here, so a join of two lists compares all pairs. So the values of all jobs of a batch are in one
-- concatenated list and are read by subscript. A join by position took 55 of 75 ms for a batch of 500.

-- name: due_scan
-- All jobs of the node's shards that are due within the look-ahead. There is no lower bound, so that a late commit is
-- not skipped. LATERAL makes it one index range per shard.
select due.*
from unnest($1::smallint[]) as s (shard)
cross join lateral (
    select {{due_columns}}
    from mainspring.jobs j
    where j.shard = s.shard and j.next_fire_at is not null
      and j.next_fire_at <= (select clock_timestamp()) + $2 * interval '1 second'
    order by j.next_fire_at
    limit $3
) as due

-- name: due_scan_of_lanes
-- The same for the jobs of some lanes. It passes over all due jobs of the shards, and returns few.
select due.*
from unnest($1::smallint[]) as s (shard)
cross join lateral (
    select {{due_columns}}
    from mainspring.jobs j
    where j.shard = s.shard and j.next_fire_at is not null
      and j.next_fire_at <= (select clock_timestamp()) + $2 * interval '1 second'
      and j.lane_id = any ($4::int[])
    order by j.next_fire_at
    limit $3
) as due

-- name: fire_one_time
-- A one-time job becomes its run: the jobs row is deleted into runs, or into the history if a run of the job is alive
-- and the job skips. The overlap rule needs no lock before this statement: who creates another run of a one-time job
-- writes its row (touch_one_time), and a row that was written since the due-scan read it does not match. Locked jobs are
-- left out.
-- creates: QUEUED, WAITING, HELD, SKIPPED
-- guard: lease owner and epoch, job version, next_fire_at and SCHEDULED; the row as the due-scan read it.
with lease as materialized (
    {{lease}}
), due as (
    select * from unnest($4::int[], $5::text[], $6::int[], $7::timestamptz[], $8::uuid[], $9::xid[])
        as d (tenant_id, job_id, version, next_fire_at, run_id, written_by)
), locked as materialized (
    select j.tenant_id, j.job_id, d.run_id
    from due d
    join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
    where j.version = d.version and j.next_fire_at is not distinct from d.next_fire_at
      and j.status = {{JOB_SCHEDULED}} and j.one_time and j.xmin = d.written_by
      and (j.last_fired_for is null or j.last_fired_for < j.next_fire_at)
      and (j.last_nominal_for is null or j.last_nominal_for < j.next_fire_at)
      and j.shard + 0 = any (array(select shard from lease))
    order by j.tenant_id, j.job_id
    for update of j skip locked
), gone as (
    delete from mainspring.jobs j
    using locked
    where j.tenant_id = locked.tenant_id and j.job_id = locked.job_id
    returning j.*, locked.run_id
), {{runs_of_gone($1)}}

-- name: lock_due
-- For jobs that skip overlapping runs: lock first, and decide in the next statement, whose snapshot is newer. Jobs that
-- another transaction has locked are left out. Returns the positions of the others.
with lease as materialized (
    {{lease}}
)
select d.position
from {{due_keys}}
join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
where j.shard + 0 = any (array(select shard from lease))
order by j.tenant_id, j.job_id
for no key update of j skip locked

-- name: still_due
-- Jobs that did not fire because they are locked or have changed: those that are due at $6, as they are now.
with lease as materialized (
    {{lease}}
)
select {{due_columns}}
from {{due_keys}}
join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
where j.status = {{JOB_SCHEDULED}} and (j.next_fire_at <= $6) is true
  and j.shard + 0 = any (array(select shard from lease))

-- name: await_due
-- Lock such jobs and return those that are due at $6, as they are now. The fire follows in the same transaction. A job
-- that is changed all the time has a new version whenever a fire without the lock reaches it. Each lock is waited for,
-- for $7 at most.
with patience as materialized (
    select set_config('lock_timeout', $7, true)
), lease as materialized (
    {{lease}}
)
select {{due_columns}}
from patience
cross join {{due_keys}}
join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
where j.status = {{JOB_SCHEDULED}} and (j.next_fire_at <= $6) is true
  and j.shard + 0 = any (array(select shard from lease))
order by j.tenant_id, j.job_id
for no key update of j

-- name: fire_recurring
-- Advance the jobs, and insert their runs, skipped runs and missed ranges in one statement, from the rows. It waits for
-- $23 at most if another transaction has locked a job.
-- creates: QUEUED, WAITING, HELD, SKIPPED
-- guard: lease owner and epoch, job version, generation, next_fire_at and SCHEDULED; last_fired_for and last_nominal_for
-- only rise.
with patience as materialized (
    select set_config('lock_timeout', $23, true)
), lease as materialized (
    {{lease}}
), due as (
    select d.* from patience, {{due_fires}}
), moved as (
    {{move_on(due)}}
      and j.shard + 0 = any (array(select shard from lease))
    returning {{moved_job}}
), {{runs_of_moved($1, $15, $16, $17, $18, $19, $20, $21)}}

-- name: fire_free
-- The same after that wait, for jobs that allow overlapping runs. Locked jobs are left out. It takes longer because it
-- locks the jobs first.
-- creates: QUEUED, WAITING, HELD, SKIPPED
-- guard: as above.
with lease as materialized (
    {{lease}}
), free as materialized (
    select d.*
    from {{due_fires}}
    join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
    where j.shard + 0 = any (array(select shard from lease))
    order by j.tenant_id, j.job_id
    for no key update of j skip locked
), moved as (
    {{move_on(free)}}
      and j.shard + 0 = any (array(select shard from lease))
    returning {{moved_job}}
), {{runs_of_moved($1, $15, $16, $17, $18, $19, $20, $21)}}

-- name: fire_locked_recurring
-- What was due before a change of one job, as planned with the definition that its row still has.
-- creates: QUEUED, WAITING, HELD, SKIPPED
-- guard: version, generation, next_fire_at and SCHEDULED; last_fired_for and last_nominal_for only rise; the row is locked
-- by the caller.
with due as (
    select $1::int as tenant_id, $2::text as job_id, $3::int as version, $4::timestamptz as next_fire_at,
           $5::timestamptz as through, $6::timestamptz as following, 1 as first_run,
           cardinality($7::uuid[]) as last_run, 1 as first_gap, cardinality($9::timestamptz[]) as last_gap,
           $13::int as generation, $14::timestamptz as nominal, 1 as position
), moved as (
    {{move_on(due)}}
    returning {{moved_job}}
), {{runs_of_moved(null, $7, $8, $9, $10, $11, $12, $15)}}

-- name: fire_locked_one_time
-- The same for a one-time job: it becomes its run. $5 is the id of the run, if the job has not got one that is ours.
-- creates: QUEUED, WAITING, HELD, SKIPPED
-- guard: version, next_fire_at and SCHEDULED; the row is locked by the caller, and the overlap rule is decided after that.
with gone as (
    delete from mainspring.jobs j
    where j.tenant_id = $1 and j.job_id = $2 and j.version = $3 and j.next_fire_at is not distinct from $4
      and j.status = {{JOB_SCHEDULED}} and j.one_time
      and (j.last_fired_for is null or j.last_fired_for < j.next_fire_at)
      and (j.last_nominal_for is null or j.last_nominal_for < j.next_fire_at)
    returning j.*, case when j.id_generated then cast(j.job_id as uuid) else $5::uuid end as run_id
), {{runs_of_gone(null)}}

-- name: run_now
-- A manual run of a job, independent of its schedule. The caller has locked the jobs row. $5: whether it has another
-- payload than the job, with the spec that follows from it.
-- creates: QUEUED, HELD, SKIPPED
-- guard: not cancelled; the overlap rule is decided after the lock.
with new_run as materialized (
    select $3::uuid as run_id, j.tenant_id, j.lane_id, j.max_attempts, j.overlap = {{OVERLAP_SKIP}} as exclusive,
           null::timestamptz as scheduled_for, j.job_id, j.generation, $4::text as trigger, j.name,
           case when $5 then $6::json else j.payload end as payload, case when $5 then $7::json else j.spec end as spec,
           null::uuid as node_id, true as fired, j.edges & {{EDGES_FOLLOWED}} as edges, $8::uuid as created_by,
           case when j.overlap = {{OVERLAP_SKIP}} and {{has_live_run(j)}} then {{STILL_ALIVE}} end as skip_reason
    from mainspring.jobs j
    where j.tenant_id = $1 and j.job_id = $2 and j.status <> {{JOB_CANCELLED}}
), {{manual_run}}, touched as (
    {{touch_one_time}}
    where j.tenant_id = $1 and j.job_id = $2 and (j.one_time or j.status = {{JOB_COMPLETED}})
)
{{manual_run_made}}

-- name: run_again
-- A manual run of a one-time job that has fired, as a repeat of its run. The caller has taken the lock of fired jobs and
-- read that run. $8: whether the job skips overlapping runs. $9: the run that is itself the job, if its id is ours.
-- creates: QUEUED, HELD, SKIPPED
-- guard: the overlap rule is decided after the lock; the run is fresh.
with new_run as materialized (
    select $3::uuid as run_id, o.tenant_id, $5::int as lane_id, $6::smallint as max_attempts, false as exclusive,
           null::timestamptz as scheduled_for, o.job_id, $12::int as generation, $4::text as trigger, $7::text as name,
           $10::json as payload, $11::json as spec, null::uuid as node_id, true as fired, $13::uuid as created_by,
           case when {{has_dependants(o)}} then {{EDGES_FOLLOWED}} end as edges,
           case when $8 and ({{has_live_run(o)}}
                             or exists (select from mainspring.runs r
                                        where r.tenant_id = o.tenant_id and r.run_id = $9 offset 0))
                then {{STILL_ALIVE}} end as skip_reason
    from (select $1::int as tenant_id, $2::text as job_id) as o
), {{manual_run}}
{{manual_run_made}}

-- name: oldest_due
-- How late the most overdue job of these shards is, in seconds. The readiness check uses it. A job is not late before it
-- was created, so a few are read: some may have a time that had passed by then.
select extract(epoch from (select clock_timestamp()) - min(greatest(j.next_fire_at, j.created_at)))::float8
from unnest($1::smallint[]) as s (shard)
cross join lateral (
    select next_fire_at, created_at from mainspring.jobs
    where shard = s.shard and next_fire_at is not null
    order by next_fire_at limit 5
) as j
