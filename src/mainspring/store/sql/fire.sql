-- Fire: turn due jobs into runs, by compare-and-set on (job, version, next_fire_at), under this node's lease.
-- Jobs are reached by primary key only. next_fire_at is compared with "is not distinct from", which hides it from the
-- index of the due-scan: with statistics from when there were few jobs, the planner went through all jobs of all our
-- shards instead (100,000 rows and seconds for a batch of 100). "shard + 0" hides the shard from it likewise.
-- Hash joins are off here, so a join of two lists goes through all pairs. What belongs to the jobs of a batch is laid
-- end to end instead and reached by subscript: joined by position, a batch of 500 took 75 ms, 55 of them for that.

-- name: due_scan
-- Everything due within the look-ahead over the node's shards, with no lower bound so that a late commit is not
-- skipped. LATERAL makes it one index range per shard.
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
-- A one-time job becomes its run: the jobs row is deleted into runs. Its trigger is stored as 'at' (shown as
-- 'schedule'), which tells it from a job that was to run now.
-- guard: lease owner and epoch, job version, next_fire_at and SCHEDULED.
with lease as materialized (
    select l.shard
    from mainspring.shard_leases l
    join unnest($2::smallint[], $3::bigint[]) as m (shard, epoch) on l.shard = m.shard and l.epoch = m.epoch
    where l.owner = $1
    order by l.shard
    for key share of l
), due as (
    select * from unnest($4::int[], $5::text[], $6::int[], $7::timestamptz[], $8::uuid[])
        as d (tenant_id, job_id, version, next_fire_at, run_id)
), locked as materialized (
    select j.tenant_id, j.job_id, d.run_id
    from due d
    join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
    where j.version = d.version and j.next_fire_at is not distinct from d.next_fire_at and j.status = 1 and j.one_time
      and (j.last_fired_for is null or j.last_fired_for < j.next_fire_at)
      and j.shard + 0 = any (array(select shard from lease))
    order by j.tenant_id, j.job_id
    for update of j
), gone as (
    delete from mainspring.jobs j
    using locked
    where j.tenant_id = locked.tenant_id and j.job_id = locked.job_id
    returning j.*, locked.run_id
), born as (
    insert into mainspring.runs
        (run_id, tenant_id, lane_id, state, max_attempts, exclusive, scheduled_for, ready_at, job_id, trigger, name,
         payload, spec, node_id, fired_at)
    select run_id, tenant_id, lane_id, 1, max_attempts,
           coalesce(spec ->> 'delivery' = 'at_most_once', false), next_fire_at, t.now,
           case when id_generated then null else job_id end, 'at', name, payload, spec, $1, t.now
    from gone, (select clock_timestamp() as now) as t
    returning lane_id
)
select born.lane_id, count(*)::int as born from born group by born.lane_id

-- name: lock_due
-- Where overlap matters: lock first, decide in the next statement, whose snapshot is younger than the lock.
with lease as materialized (
    select l.shard
    from mainspring.shard_leases l
    join unnest($2::smallint[], $3::bigint[]) as m (shard, epoch) on l.shard = m.shard and l.epoch = m.epoch
    where l.owner = $1
    order by l.shard
    for key share of l
)
select j.job_id
from unnest($4::int[], $5::text[]) as d (tenant_id, job_id)
join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id
where j.shard + 0 = any (array(select shard from lease))
order by j.tenant_id, j.job_id
for no key update of j

-- name: fire_recurring
-- Advance the jobs, insert their runs, skips and missed ranges: one statement, built from the rows. "offset 0" keeps
-- the planner from reading all runs into a hash table to see which jobs have one alive.
-- guard: lease owner and epoch, job version, next_fire_at and SCHEDULED; last_fired_for only rises.
with lease as materialized (
    select l.shard
    from mainspring.shard_leases l
    join unnest($2::smallint[], $3::bigint[]) as m (shard, epoch) on l.shard = m.shard and l.epoch = m.epoch
    where l.owner = $1
    order by l.shard
    for key share of l
), due as (
    select * from unnest($4::int[], $5::text[], $6::int[], $7::timestamptz[], $8::timestamptz[], $9::timestamptz[],
                         $10::int[], $11::int[], $12::int[], $13::int[])
        with ordinality as d (tenant_id, job_id, version, next_fire_at, through, following,
                              first_run, last_run, first_gap, last_gap, position)
), moved as (
    update mainspring.jobs j
    set next_fire_at = d.following, last_fired_for = d.through,
        status = case when d.following is null then 4 else 1 end
    from due d
    where j.tenant_id = d.tenant_id and j.job_id = d.job_id
      and j.version = d.version and j.next_fire_at is not distinct from d.next_fire_at and j.status = 1
      and (j.last_fired_for is null or j.last_fired_for < d.through)
      and j.shard + 0 = any (array(select shard from lease))
    returning j.tenant_id, j.job_id, j.lane_id, j.overlap, j.max_attempts, j.name, j.payload, j.spec, d.position,
              d.first_run, d.last_run, d.first_gap, d.last_gap
), wanted as (
    select m.*, ($14::uuid[])[i] as run_id, ($15::timestamptz[])[i] as scheduled_for,
           m.overlap = 0 and (i > m.first_run or exists (
               select from mainspring.runs r where r.tenant_id = m.tenant_id and r.job_id = m.job_id
               offset 0)) as skipped
    from moved m
    cross join lateral generate_series(m.first_run, m.last_run) as i
), born as (
    insert into mainspring.runs
        (run_id, tenant_id, lane_id, state, max_attempts, exclusive, scheduled_for, ready_at, job_id, name, payload,
         spec, node_id, fired_at)
    select run_id, tenant_id, lane_id, 1, max_attempts,
           overlap = 0 or coalesce(spec ->> 'delivery' = 'at_most_once', false), scheduled_for,
           t.now, job_id, name, payload, spec, $1, t.now
    from wanted, (select clock_timestamp() as now) as t
    where not skipped
    returning lane_id
), skips as (
    insert into mainspring.run_history
        (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, ended_at, job_id, name,
         reason, payload, spec, node_id, fired_at)
    select run_id, tenant_id, lane_id, 13, 0, max_attempts, 0, scheduled_for, t.now, job_id, name,
           'overlap: an earlier run of this job was still alive', payload, spec, $1, t.now
    from wanted, (select clock_timestamp() as now) as t
    where skipped
), missed as (
    insert into mainspring.missed_fires (tenant_id, job_id, first_at, last_at, count, reason)
    select m.tenant_id, m.job_id, ($16::timestamptz[])[i], ($17::timestamptz[])[i], ($18::int[])[i], ($19::text[])[i]
    from moved m
    cross join lateral generate_series(m.first_gap, m.last_gap) as i
)
select (select array_agg(position) from moved) as moved,
       (select array_agg(lane_id) from born) as lanes

-- name: run_now
-- A manual run of a job, whatever its schedule does; the job row is locked by the caller.
-- guard: not cancelled; the overlap rule is decided after the lock.
with source as (
    select j.*, j.overlap = 0 and exists (
               select from mainspring.runs r where r.tenant_id = j.tenant_id and r.job_id = j.job_id) as skipped
    from mainspring.jobs j
    where j.tenant_id = $1 and j.job_id = $2 and j.status <> 3
), born as (
    insert into mainspring.runs
        (run_id, tenant_id, lane_id, state, max_attempts, exclusive, scheduled_for, ready_at, job_id, trigger, name,
         payload, spec, fired_at)
    select $3, tenant_id, lane_id, 1, max_attempts,
           overlap = 0 or coalesce(spec ->> 'delivery' = 'at_most_once', false), t.now,
           t.now, job_id, $4, name, payload, spec, t.now
    from source, (select clock_timestamp() as now) as t
    where not skipped
    returning lane_id
), skips as (
    insert into mainspring.run_history
        (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, ended_at, job_id, trigger,
         name, reason, payload, spec, fired_at)
    select $3, tenant_id, lane_id, 13, 0, max_attempts, 0, t.now, t.now,
           job_id, $4, name, 'overlap: an earlier run of this job was still alive', payload, spec, t.now
    from source, (select clock_timestamp() as now) as t
    where skipped
)
select s.lane_id, s.skipped from source s

-- name: oldest_due
-- How late the most overdue job of these shards is, in seconds; for readiness.
select extract(epoch from (select clock_timestamp()) - min(j.next_fire_at))::float8
from unnest($1::smallint[]) as s (shard)
cross join lateral (
    select next_fire_at from mainspring.jobs
    where shard = s.shard and next_fire_at is not null
    order by next_fire_at limit 1
) as j
