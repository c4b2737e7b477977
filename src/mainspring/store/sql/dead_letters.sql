-- Dead letters: runs that failed for good, until they are replayed or discarded. Also replays of other ended runs.

-- name: page
-- Keyset by run_id, newest first. Texts are compared last, because that costs most.
select {{dead_letter_columns}}
from mainspring.dead_letters d
where d.tenant_id = $1
  and ($2::uuid is null or d.run_id < $2)
  and ($3::text is null or d.job_id = $3 or (d.job_id is null and d.run_id::text = $3))
  and ($4::int[] is null or d.lane_id = any ($4))
  and ($6::timestamptz is null or d.died_at >= $6)
  and ($7::timestamptz is null or d.died_at < $7)
  and ($8::jsonb is null or {{has_labels(d, $8)}})
  and ($5::text is null or d.error ilike $5)
order by d.run_id desc
limit $9

-- name: some
-- The ids of a batch, oldest first, from $2 on. $8: the start of the whole operation, so that a replay that fails
-- meanwhile is not replayed again.
select d.run_id
from mainspring.dead_letters d
where {{chosen_letter}}
order by d.run_id
limit $10

-- name: count_some
-- How many of them there are, at most $10.
select count(*)::int from (select from mainspring.dead_letters d where {{chosen_letter}} limit $10) as found

-- name: get
select {{dead_letter_columns}}
from mainspring.dead_letters d
where d.tenant_id = $1 and d.run_id = $2

-- name: count
-- Exact up to $2. What is above is estimated by the statistics: the rows of the table, and the share of the tenant.
select case when counted.n <= $2 then counted.n
            else greatest(counted.n, coalesce(c.reltuples * share.part, 0)::bigint) end as number,
       counted.n > $2 as estimated
from (select count(*) as n
      from (select from mainspring.dead_letters where tenant_id = $1 limit $2::bigint + 1) as first) as counted
join pg_class c on c.oid = 'mainspring.dead_letters'::regclass
left join lateral (
    select m.part
    from pg_stats s
    cross join lateral unnest(s.most_common_vals::text::int[], s.most_common_freqs) as m (tenant_id, part)
    where s.schemaname = 'mainspring' and s.tablename = 'dead_letters' and s.attname = 'tenant_id' and m.tenant_id = $1
) as share on counted.n > $2

-- name: lock
-- In key order, and before their jobs. $3: whether to return the definition. The payloads of 500 dead letters can have
-- 128 MiB.
select d.run_id, d.job_id, d.generation, d.lane_id, d.name, case when $3 then d.payload::text end as payload_text,
       case when $3 then d.spec::text end as spec_text, (d.spec ->> 'overlap')::smallint as overlap,
       d.attempts
from mainspring.dead_letters d
where d.tenant_id = $1 and d.run_id = any ($2::uuid[])
order by d.run_id
for update

-- name: lock_ids
-- The ids of dead letters, in key order and before the jobs: nobody creates a new generation of them meanwhile. The rows
-- are written, so that mainspring.submit in a transaction with an older snapshot fails. Generated ids are not here.
-- guard: the lock; nothing changes in the rows.
with locked as materialized (
    select tenant_id, job_id
    from mainspring.taken_ids
    where tenant_id = $1 and job_id = any ($2::text[])
    order by job_id
    for no key update
)
update mainspring.taken_ids t
set generation = t.generation
from locked l
where t.tenant_id = l.tenant_id and t.job_id = l.job_id

-- name: lock_jobs
-- The jobs of dead letters, in key order. The next statement decides what they allow, because its snapshot is newer
-- than the locks.
-- guard: the lock; nothing changes in the rows.
with locked as materialized (
    select j.tenant_id, j.job_id, j.one_time
    from mainspring.jobs j
    where j.tenant_id = $1 and j.job_id = any ($2::text[])
    order by j.job_id
    for no key update
), touched as (
    {{touch_one_time}}
    from locked l
    where j.tenant_id = l.tenant_id and j.job_id = l.job_id and l.one_time
)
select job_id from locked

-- name: allowed
-- Whether the jobs, locked by the caller, allow another run: the status, the overlap rule, and whether a run is alive.
select j.job_id, j.overlap = {{OVERLAP_SKIP}} as one_at_a_time, j.status = {{JOB_CANCELLED}} as cancelled,
       j.overlap = {{OVERLAP_SKIP}} and {{has_live_run(j)}} as alive, j.one_time, j.id_generated, j.overlap
from mainspring.jobs j
where j.tenant_id = $1 and j.job_id = any ($2::text[])

-- name: live_generations
-- The generations of these jobs that have a live run. $3: the ids that may be ours; such a job may be the run itself.
select distinct r.job_id, r.generation
from mainspring.runs r
where r.tenant_id = $1 and r.job_id = any ($2::text[])
union all
select r.run_id::text, r.generation
from mainspring.runs r
where r.tenant_id = $1 and r.run_id = any ($3::uuid[]) and r.job_id is null

-- name: replay
-- Dead letters become runs of the same generation with the same definition, scheduled_for and therefore idempotency key.
-- Those with $7 have another payload and spec, and a key of their own.
-- creates: QUEUED, HELD
-- guard: only one transaction deletes a dead letter; replays has each run once; the caller has locked the jobs.
with wanted as (
    select * from unnest($2::uuid[], $3::uuid[], $4::boolean[], $5::json[], $6::json[], $7::boolean[])
        as w (run_id, replay_id, exclusive, payload, spec, changed)
), taken as (
    delete from mainspring.dead_letters d
    using wanted w
    where d.tenant_id = $1 and d.run_id = w.run_id
    returning d.run_id, d.lane_id, d.job_id, d.generation, d.name, d.max_attempts, d.scheduled_for,
              w.replay_id, w.exclusive,
              case when w.changed then w.payload else d.payload end as payload,
              case when w.changed then w.spec else d.spec end as spec
), noted as (
    insert into mainspring.replays (run_id, tenant_id, replay_id)
    select run_id, $1, replay_id from taken
), new_run as (
    select replay_id as run_id, k.tenant_id, lane_id, max_attempts, exclusive, scheduled_for, k.job_id, generation,
           'replay:' || run_id as trigger, name, payload, spec,
           null::uuid as node_id, true as fired, case when {{has_dependants(k)}} then {{EDGES_FOLLOWED}} end as edges,
           $8::uuid as created_by
    from taken
    cross join lateral (select $1::int as tenant_id, coalesce(taken.job_id, taken.run_id::text) as job_id) as k
)
{{create_runs_of_jobs(null::timestamptz)}}
returning run_id, lane_id, held_key

-- name: repeat
-- The same for a run of the history that is not a dead letter, or no longer one.
-- creates: QUEUED, HELD
-- guard: replays has each run once; the caller has locked the job.
with source as (
    select h.run_id, h.lane_id, h.job_id, h.generation, h.name,
           (h.max_attempts - h.losses - h.snoozes)::smallint as max_attempts, h.scheduled_for,
           case when $6 then $4::json else h.payload end as payload, case when $6 then $5::json else h.spec end as spec
    from mainspring.run_history h
    where h.tenant_id = $1 and h.run_id = $2
), noted as (
    insert into mainspring.replays (run_id, tenant_id, replay_id)
    select run_id, $1, $3 from source
), new_run as (
    select $3::uuid as run_id, k.tenant_id, lane_id, max_attempts, $7::boolean as exclusive, scheduled_for, k.job_id, generation,
           'replay:' || run_id as trigger, name, payload, spec,
           null::uuid as node_id, true as fired, case when {{has_dependants(k)}} then {{EDGES_FOLLOWED}} end as edges,
           $8::uuid as created_by
    from source
    cross join lateral (select $1::int as tenant_id, coalesce(source.job_id, source.run_id::text) as job_id) as k
)
{{create_runs_of_jobs(null::timestamptz)}}
returning run_id, lane_id, held_key

-- name: discard
-- guard: a dead letter is deleted once; the caller counts the returned rows.
delete from mainspring.dead_letters
where tenant_id = $1 and run_id = any (array(
    select run_id from mainspring.dead_letters
    where tenant_id = $1 and run_id = any ($2::uuid[])
    order by run_id
    for update))
returning run_id

-- name: discard_of_steps
-- Those of the steps $4, by their places in the definition, of a workflow run whose step runs have ids from $2 to $3. At
-- most $5.
-- guard: a dead letter is deleted once; the caller counts the returned rows.
delete from mainspring.dead_letters
where tenant_id = $1 and run_id = any (array(
    select run_id from mainspring.dead_letters
    where tenant_id = $1 and run_id between $2 and $3 and (spec -> 'step' ->> 'place')::int = any ($4::int[])
    order by run_id
    limit $5
    for update))
returning run_id

-- name: replay_of
-- The run that repeats this one.
select replay_id from mainspring.replays where run_id = $1 and tenant_id = $2

-- name: prune_replays
-- Replays of runs that are no longer in the history, in batches.
-- unguarded: a row never changes, and its run no longer exists.
delete from mainspring.replays
where ctid = any (array(select ctid from mainspring.replays
                        where replayed_at < (select clock_timestamp()) - $1 * interval '1 day' limit $2))
