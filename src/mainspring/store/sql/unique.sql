-- The keys of unique jobs. A submission locks its keys, decides in later statements, and writes in the same transaction.

-- name: take_unique_keys
-- In sorted order, so that two batches cannot deadlock. Each key is returned and locked, by the insert or by an update that
-- changes nothing; `fresh` tells which. The wait is limited as in take_ids.
-- unguarded: insert if absent.
with patience as materialized (
    select set_config('lock_timeout', '2s', true)
)
insert into mainspring.unique_keys as u (tenant_id, digest, job_id, generation, states, taken_at, until)
select $1, n.digest, n.job_id, 1, n.states::text[], t.now, t.now + n.seconds * interval '1 second'
from patience, unnest($2::bytea[], $3::text[], $4::text[], $5::float8[]) as n (digest, job_id, states, seconds),
     (select clock_timestamp() as now) as t
order by n.digest
on conflict (tenant_id, digest) do update set tenant_id = excluded.tenant_id
returning u.digest, u.job_id, u.generation, u.states, u.until, u.xmax = 0 as fresh

-- name: take_over_unique_keys
-- Other jobs get the keys, or the same ones as another generation.
-- guard: the caller has locked the rows with take_unique_keys; it compares the number of rows.
update mainspring.unique_keys u
set job_id = n.job_id, generation = n.generation, states = n.states::text[], taken_at = t.now,
    until = t.now + n.seconds * interval '1 second'
from unnest($2::bytea[], $3::text[], $4::int[], $5::text[], $6::float8[])
         as n (digest, job_id, generation, states, seconds),
     (select clock_timestamp() as now) as t
where u.tenant_id = $1 and u.digest = n.digest

-- name: states_of_holders
-- In which of the states of a key each job is: a row for its time to come, and one for each live run. A job without a row
-- has ended. A paused job waits for its time. A claimed run may have started, so it counts as running.
select h.job_id, h.generation, live.state, (select clock_timestamp()) as now
from unnest($2::text[], $3::int[]) as h (job_id, generation)
cross join lateral (
    select 'scheduled' as state
    from mainspring.jobs j
    where j.tenant_id = $1 and j.job_id = h.job_id and j.generation = h.generation
      and j.status in ({{JOB_SCHEDULED}}, {{JOB_PAUSED}})
    union all
    select {{unique_state(r)}}
    from mainspring.runs r
    where r.tenant_id = $1 and r.job_id = h.job_id and r.generation = h.generation
    union all
    select {{unique_state(r)}}
    from mainspring.runs r
    where r.run_id = {{own_id(h)}} and r.tenant_id = $1 and r.job_id is null
) as live

-- name: places_of_holders
-- Queue, task and labels of the live jobs that have keys, for tokens that do not reach all of them.
select h.job_id, h.generation, live.lane_id, live.spec_text
from unnest($2::text[], $3::int[]) as h (job_id, generation)
cross join lateral (
    select j.lane_id, j.spec::text as spec_text
    from mainspring.jobs j
    where j.tenant_id = $1 and j.job_id = h.job_id and j.generation = h.generation
    union all
    select r.lane_id, r.spec::text
    from mainspring.runs r
    where r.tenant_id = $1 and r.job_id = h.job_id and r.generation = h.generation
    union all
    select r.lane_id, r.spec::text
    from mainspring.runs r
    where r.run_id = {{own_id(h)}} and r.tenant_id = $1 and r.job_id is null
) as live

-- name: lock_waiting_jobs
-- Jobs that wait for their time, in sorted order.
select job_id, generation, version, next_fire_at, paused_from, lane_id, schedule::text as schedule_text,
       spec::text as spec_text, created_by
from mainspring.jobs
where tenant_id = $1 and job_id = any ($2::text[]) and status in ({{JOB_SCHEDULED}}, {{JOB_PAUSED}})
order by job_id
for no key update

-- name: lock_waiting_runs
-- The runs of these jobs that no worker has, in key order, after the jobs. `own` are the jobs whose ids are ours.
select r.run_id, {{job_of(r)}} as job_id, r.generation, r.fence, r.attempt, r.trigger, r.ready_at, r.lane_id,
       r.spec::text as spec_text, r.created_by
from mainspring.runs r
where r.run_id = any (array(select o.run_id from mainspring.runs o
                            where o.tenant_id = $1 and o.job_id = any ($2::text[])
                            union all
                            select unnest($3::uuid[])))
  and r.tenant_id = $1 and (r.job_id is null or r.job_id = any ($2::text[]))
  and r.state + 0 in ({{QUEUED}}, {{WAITING}}, {{HELD}})
order by r.run_id
for no key update

-- name: redefine_waiting_jobs
-- Another payload ($6: whether there is one), or a later time. The version rises, so that a fire that was prepared before
-- fails.
-- guard: version, generation and status; the caller has locked the rows and compares their number.
update mainspring.jobs j
set payload = case when n.replaced then n.payload else j.payload end,
    spec = case when n.replaced then n.spec else j.spec end,
    schedule = n.schedule, next_fire_at = n.next_fire_at, paused_from = n.paused_from, version = j.version + 1,
    updated_at = (select clock_timestamp())
from unnest($2::text[], $3::int[], $4::int[], $5::json[], $6::boolean[], $7::json[], $8::json[], $9::timestamptz[],
            $10::timestamptz[])
         as n (job_id, generation, version, schedule, replaced, payload, spec, next_fire_at, paused_from)
where j.tenant_id = $1 and j.job_id = n.job_id and j.generation = n.generation and j.version = n.version
  and j.status in ({{JOB_SCHEDULED}}, {{JOB_PAUSED}})

-- name: redefine_waiting_runs
-- The same for runs that have not started. One that is pushed expires later too.
-- keeps: QUEUED, WAITING, HELD
-- guard: fence, no attempt and a state in which no worker has the run; the caller has locked the rows and compares their
-- number.
update mainspring.runs r
set payload = case when n.replaced then n.payload else r.payload end,
    spec = case when n.replaced then n.spec else r.spec end,
    ready_at = coalesce(n.ready_at, r.ready_at),
    expires_at = case when n.ready_at is null then r.expires_at
                      else n.ready_at + (r.spec ->> 'expires_in')::float8 * interval '1 second' end
from unnest($2::uuid[], $3::int[], $4::boolean[], $5::json[], $6::json[], $7::timestamptz[])
         as n (run_id, fence, replaced, payload, spec, ready_at)
where r.tenant_id = $1 and r.run_id = n.run_id and r.fence = n.fence and r.attempt = 0
  and r.state + 0 in ({{QUEUED}}, {{WAITING}}, {{HELD}})

-- name: set_merged_keys
-- Idempotency keys of submissions that were merged into another job: a repeat gets the same answer.
-- guard: the caller has inserted the rows in this transaction.
update mainspring.idempotency_keys k
set job_id = n.job_id, generation = n.generation, merged = n.merged
from unnest($2::text[], $3::text[], $4::int[], $5::text[]) as n (key, job_id, generation, merged)
where k.tenant_id = $1 and k.key = n.key

-- name: prune_unique_keys
-- Keys that nobody has any more: their time is over. A row that a submission has locked is left out.
-- guard: the end is compared again with the row as it is locked.
delete from mainspring.unique_keys
where (tenant_id, digest) in (select tenant_id, digest from mainspring.unique_keys
                              where until < (select clock_timestamp())
                              order by until
                              limit $1
                              for update skip locked)
