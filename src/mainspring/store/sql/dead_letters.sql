-- Dead letters: runs that failed for good, until they are replayed or discarded. And replays of runs that ended.

-- name: page
-- Keyset by run_id, newest first.
select {{dead_letter_columns}}
from mainspring.dead_letters d
where d.tenant_id = $1
  and ($2::uuid is null or d.run_id < $2)
  and ($3::text is null or d.job_id = $3 or (d.job_id is null and d.run_id::text = $3))
  and ($4::int[] is null or d.lane_id = any ($4))
  and ($5::text is null or d.error ilike $5)
  and ($6::timestamptz is null or d.died_at >= $6)
  and ($7::timestamptz is null or d.died_at < $7)
order by d.run_id desc
limit $8

-- name: some
-- The ids of a batch, oldest first, from $2 on. $8: the moment at which the whole began, so that a replay that fails
-- meanwhile is not replayed in its turn.
select d.run_id
from mainspring.dead_letters d
where d.tenant_id = $1
  and ($2::uuid is null or d.run_id > $2)
  and ($3::text is null or d.job_id = $3 or (d.job_id is null and d.run_id::text = $3))
  and ($4::int[] is null or d.lane_id = any ($4))
  and ($5::text is null or d.error ilike $5)
  and ($6::timestamptz is null or d.died_at >= $6)
  and ($7::timestamptz is null or d.died_at < $7)
  and d.died_at <= $8
order by d.run_id
limit $9

-- name: get
select {{dead_letter_columns}}
from mainspring.dead_letters d
where d.tenant_id = $1 and d.run_id = $2

-- name: count
select count(*)::int from mainspring.dead_letters where tenant_id = $1

-- name: lock
-- In key order, and before their jobs. $3: whether the definition is looked at, or only goes over into the new run; of
-- 500 letters, the payloads may be 128 MiB.
select d.run_id, d.job_id, d.lane_id, d.name, case when $3 then d.payload::text end as payload_text,
       case when $3 then d.spec::text end as spec_text
from mainspring.dead_letters d
where d.tenant_id = $1 and d.run_id = any ($2::uuid[])
order by d.run_id
for update

-- name: lock_jobs
-- The jobs that letters belong to, in key order. What they allow is decided by the next statement, whose snapshot is
-- younger than the locks.
select j.job_id
from mainspring.jobs j
where j.tenant_id = $1 and j.job_id = any ($2::text[])
order by j.job_id
for no key update

-- name: allowed
-- What the jobs, locked by the caller, say to another run: cancelled, or one is alive and there may be one only.
select j.job_id, j.overlap = 0 as one_at_a_time, j.status = 3 as cancelled,
       j.overlap = 0 and exists (
           select from mainspring.runs r where r.tenant_id = j.tenant_id and r.job_id = j.job_id offset 0) as alive
from mainspring.jobs j
where j.tenant_id = $1 and j.job_id = any ($2::text[])

-- name: replay
-- Letters become runs. Same definition (or that of $5 and $6), same scheduled_for and so the same idempotency key.
-- guard: a letter is deleted by one transaction only; replays has each run once; jobs are locked by the caller.
with wanted as (
    select * from unnest($2::uuid[], $3::uuid[], $4::boolean[], $5::json[], $6::json[])
        as w (run_id, replay_id, exclusive, payload, spec)
), taken as (
    delete from mainspring.dead_letters d
    using wanted w
    where d.tenant_id = $1 and d.run_id = w.run_id
    returning d.run_id, d.lane_id, d.job_id, d.name, d.max_attempts, d.scheduled_for, w.replay_id, w.exclusive,
              case when $7 then w.payload else d.payload end as payload,
              case when $7 then w.spec else d.spec end as spec
), noted as (
    insert into mainspring.replays (run_id, tenant_id, replay_id)
    select run_id, $1, replay_id from taken
)
insert into mainspring.runs
    (run_id, tenant_id, lane_id, state, max_attempts, exclusive, scheduled_for, ready_at, job_id, trigger, name,
     payload, spec, fired_at)
select replay_id, $1, lane_id, 1, max_attempts, exclusive or coalesce(spec ->> 'delivery' = 'at_most_once', false),
       scheduled_for, t.now, coalesce(job_id, run_id::text), 'replay:' || run_id, name, payload, spec, t.now
from taken, (select clock_timestamp() as now) as t
returning run_id, lane_id

-- name: repeat
-- The same for a run of the history that is no dead letter (any more).
-- guard: replays has each run once; its job is locked by the caller.
with source as (
    select h.run_id, h.lane_id, h.job_id, h.name, h.max_attempts, h.scheduled_for,
           case when $6 then $4::json else h.payload end as payload, case when $6 then $5::json else h.spec end as spec
    from mainspring.run_history h
    where h.tenant_id = $1 and h.run_id = $2 and h.state <> 10
), noted as (
    insert into mainspring.replays (run_id, tenant_id, replay_id)
    select run_id, $1, $3 from source
)
insert into mainspring.runs
    (run_id, tenant_id, lane_id, state, max_attempts, exclusive, scheduled_for, ready_at, job_id, trigger, name,
     payload, spec, fired_at)
select $3, $1, lane_id, 1, max_attempts, $7 or coalesce(spec ->> 'delivery' = 'at_most_once', false), scheduled_for,
       t.now, coalesce(job_id, run_id::text), 'replay:' || run_id, name, payload, spec, t.now
from source, (select clock_timestamp() as now) as t
returning run_id, lane_id

-- name: discard
-- guard: a letter is deleted once; the caller counts what came back.
delete from mainspring.dead_letters
where tenant_id = $1 and run_id = any (array(
    select run_id from mainspring.dead_letters
    where tenant_id = $1 and run_id = any ($2::uuid[])
    order by run_id
    for update))
returning run_id

-- name: replay_of
-- The run that repeats this one.
select replay_id from mainspring.replays where run_id = $1 and tenant_id = $2

-- name: prune_replays
-- Replays of runs that the history has forgotten, a batch at a time.
-- unguarded: a row never changes, and its run is gone.
delete from mainspring.replays
where ctid = any (array(select ctid from mainspring.replays
                        where replayed_at < (select clock_timestamp()) - $1 * interval '1 day' limit $2))
