-- Jobs that will fire or can be fired manually.

-- name: insert_jobs
-- unguarded: an insert; the primary key and taken_ids are the guard.
{{new_jobs}}

-- name: renew_jobs
-- The same for later generations of ids. They replace the row of an ended job in its place, so that whoever waits for the
-- row's lock finds the new one. The version goes on: a change that was prepared for the old job must not match. The
-- caller compares the number of rows.
-- guard: the old job has ended; the caller has locked id and row.
{{new_jobs}}
{{replace_ended}}

-- name: take_ids
-- In sorted order, so that two batches cannot deadlock. Ids that are not returned were taken before.
-- A user's transaction may hold an id for long, so the wait for it is limited.
-- unguarded: insert if absent.
with patience as materialized (
    select set_config('lock_timeout', '2s', true)
)
insert into mainspring.taken_ids (tenant_id, job_id)
select $1, u.job_id from patience, unnest($2::text[]) as u (job_id) order by u.job_id
on conflict do nothing
returning job_id

-- name: lock_taken_ids
-- Ids that were taken before, in sorted order.
select job_id from mainspring.taken_ids where tenant_id = $1 and job_id = any ($2::text[]) order by job_id for update

-- name: lock_holders
-- The jobs of these ids that have a row, after the ids.
select job_id from mainspring.jobs where tenant_id = $1 and job_id = any ($2::text[]) order by job_id for no key update

-- name: holders
-- Who has these ids, which the caller has locked: the status of the job if it has a row, and one of its live runs.
select t.job_id, j.status, r.run_id
from mainspring.taken_ids t
left join mainspring.jobs j on j.tenant_id = t.tenant_id and j.job_id = t.job_id
left join lateral (select run_id from mainspring.runs
                   where tenant_id = t.tenant_id and job_id = t.job_id limit 1) as r on true
where t.tenant_id = $1 and t.job_id = any ($2::text[])

-- name: next_generations
-- Begin a new generation of each of these ids. The rows of their jobs are kept in past_jobs.
-- guard: the caller has locked ids and jobs, and has seen that the jobs have ended.
with past as (
    insert into mainspring.past_jobs (tenant_id, job_id, generation, job)
    select j.tenant_id, j.job_id, j.generation, row_to_json(j)
    from mainspring.jobs j
    where j.tenant_id = $1 and j.job_id = any ($2::text[])
)
update mainspring.taken_ids
set generation = generation + 1, taken_at = (select clock_timestamp())
where tenant_id = $1 and job_id = any ($2::text[])
returning job_id, generation

-- name: delete_ended
-- The rows of ended jobs whose new generation has none: it runs now.
-- guard: the job has ended; the caller has locked id and row.
delete from mainspring.jobs where tenant_id = $1 and job_id = any ($2::text[]) and status in ({{JOBS_ENDED}})

-- name: newest_generation
select generation from mainspring.taken_ids where tenant_id = $1 and job_id = $2

-- name: get_past_job
select {{job_columns}}
from (select (json_populate_record(null::mainspring.jobs, p.job)).*
      from mainspring.past_jobs p
      where p.tenant_id = $1 and p.job_id = $2 and p.generation = $3) as j

-- name: insert_keys
-- In sorted order. `known_keys` reads the others in a second statement, because a single get-or-insert returned nothing
-- if another transaction inserted the key at the same time. The wait is limited as above.
-- unguarded: insert if absent.
with patience as materialized (
    select set_config('lock_timeout', '2s', true)
)
insert into mainspring.idempotency_keys (tenant_id, key, body_hash, job_id)
select $1, u.key, u.body_hash, u.job_id
from patience, unnest($2::text[], $3::bytea[], $4::text[]) as u (key, body_hash, job_id)
order by u.key
on conflict do nothing
returning key

-- name: known_keys
select key, body_hash, job_id, generation, merged
from mainspring.idempotency_keys
where tenant_id = $1 and key = any ($2::text[])

-- name: set_key_generations
-- Of keys that this transaction has taken: the generation was not known yet.
-- guard: the caller has inserted the rows in this transaction.
update mainspring.idempotency_keys k
set generation = u.generation
from unnest($2::text[], $3::int[]) as u (key, generation)
where k.tenant_id = $1 and k.key = u.key

-- name: insert_run_now_key
-- Like insert_keys. The scope of the key is the generation of the job.
-- unguarded: insert if absent.
with patience as materialized (
    select set_config('lock_timeout', '2s', true)
)
insert into mainspring.run_now_keys (tenant_id, job_id, generation, key, body_hash, run_id)
select $1, $2, $3, $4, $5, $6 from patience
on conflict do nothing
returning run_id

-- name: known_run_now_key
select body_hash, run_id from mainspring.run_now_keys
where tenant_id = $1 and job_id = $2 and generation = $3 and key = $4

-- name: lock_fired_job
-- For whoever creates another run of one-time jobs that have fired: they have no row that could be locked.
select pg_advisory_xact_lock({{wide_lock_key('job/' || $1::int || '/' || f.job_id)}})
from unnest($2::text[]) as f (job_id)

-- name: get_job
select {{job_columns}}
from mainspring.jobs j
where tenant_id = $1 and job_id = $2

-- name: lock_job
-- The time is read when the lock is held. What was due by then belongs to the definition in this row.
with locked as materialized (
    select {{job_columns}}
    from mainspring.jobs j
    where tenant_id = $1 and job_id = $2
    for no key update
)
select l.*, (select clock_timestamp()) as now from locked l

-- name: change_job
-- Update, pause, resume and delete. The version rises, so that a fire that was prepared before fails.
-- $15 is the time from which the new definition holds. $17: the job is paused since its application no longer declares
-- it. $20: the nominal time up to which all are dealt with, which only rises.
-- guard: version; the caller has locked the row.
update mainspring.jobs
set status = $4, next_fire_at = $5, paused_from = $6, lane_id = $7, overlap = $8, max_attempts = $9, name = $10,
    schedule = $11, payload = $12, spec = $13, one_time = $14, version = version + 1,
    updated_at = $15, declared_by = $16, pruned_version = case when $17 then version + 1 end,
    runs_left = $18, edges = nullif(coalesce(edges & {{EDGES_FOLLOWED}}, 0) | $19, 0),
    last_nominal_for = greatest(last_nominal_for, $20)
where tenant_id = $1 and job_id = $2 and version = $3
returning version

-- name: cancel_unreadable
-- Delete a job whose definition cannot be read: it stays as it is.
-- guard: version; the caller has locked the row.
update mainspring.jobs
set status = $4, next_fire_at = null, paused_from = null, version = version + 1, updated_at = $5, pruned_version = null
where tenant_id = $1 and job_id = $2 and version = $3
returning version

-- name: count_jobs
-- How many jobs that have a row are listed, at most $21.
select count(*)::int from (select from mainspring.jobs j where {{listed_job}} limit $21) as found

-- name: list_jobs
-- Keyset pages, newest first: jobs before ($2, $3), down to ($10, $11). $16: also one-time jobs that were missed, which
-- are stored as COMPLETED.
select {{job_columns}}
from mainspring.jobs j
where {{listed_job}}
order by j.created_at desc, j.job_id desc
limit $21

-- name: list_jobs_at_rest
-- The same for statuses other than SCHEDULED, which have an index.
select {{job_columns}}
from mainspring.jobs j
where j.status <> {{JOB_SCHEDULED}} and {{listed_job}}
order by j.created_at desc, j.job_id desc
limit $21

-- name: list_workflows
-- The same for workflows: few of many jobs, whose ids are known from their versions.
select {{job_columns}}
from mainspring.jobs j
where j.job_id = any (array(select workflow_id from mainspring.workflow_versions where tenant_id = $1 group by workflow_id))
  and {{listed_job}}
order by j.created_at desc, j.job_id desc
limit $21

-- name: list_unwell
-- The same for jobs that are late, failing or silent: few of many, which have an index.
select {{job_columns}}
from mainspring.jobs j
where j.job_id = any (array(select k.job_id from mainspring.job_health k
                            where k.tenant_id = $1 and k.state = any ($20) and k.state <> {{HEALTH_HEALTHY}}))
  and {{listed_job}}
order by j.created_at desc, j.job_id desc
limit $21

-- name: jobs_boundary
-- The place of the job that comes $4 jobs after ($2, $3).
select created_at, job_id
from mainspring.jobs
where tenant_id = $1 and ($2::timestamptz is null or (created_at, job_id) < ($2, $3))
order by created_at desc, job_id desc
offset $4 limit 1

-- name: jobs_at_rest_boundary
select created_at, job_id
from mainspring.jobs
where tenant_id = $1 and ($2::timestamptz is null or (created_at, job_id) < ($2, $3)) and status <> {{JOB_SCHEDULED}}
order by created_at desc, job_id desc
offset $4 limit 1

-- name: jobs_of_owner_boundary
-- The same among the jobs of the owner $5, who has an index.
select created_at, job_id
from mainspring.jobs
where tenant_id = $1 and spec ->> 'owner' = $5 and ($2::timestamptz is null or (created_at, job_id) < ($2, $3))
order by created_at desc, job_id desc
offset $4 limit 1

-- name: prune_keys
-- Keys of jobs that ended more than $1 days ago, a batch at a time.
-- unguarded: by then nobody repeats the submission, and the look at the job is part of the statement.
delete from mainspring.idempotency_keys
where ctid = any (array({{keys_of_ended_jobs(idempotency_keys, $1, $2)}}))

-- name: prune_run_now_keys
-- The same for keys of run-now.
-- unguarded: as above.
delete from mainspring.run_now_keys
where ctid = any (array({{keys_of_ended_jobs(run_now_keys, $1, $2)}}))

-- name: keep_keys
-- Before history between $1 and $2 is dropped: a page of its runs, whose ends the keys of their jobs remember. Returns
-- the last run of the page.
-- unguarded: the time only rises.
with page as materialized (
    select {{run_with_keys}}
    from mainspring.run_history
    where ended_at >= $1 and ended_at < $2 and run_id > $3
    order by run_id
    limit $4
), {{kept_keys}}
select run_id from page order by run_id desc limit 1

-- name: prune_ids
-- Chosen ids of one-time jobs that are no longer in the history. A job that still has its row keeps its id. The next job
-- with such an id is of the first generation again, so nothing of an earlier one may be left.
-- guard: the age is compared again with a row that was changed meanwhile.
delete from mainspring.taken_ids
where taken_at < (select clock_timestamp()) - $1 * interval '1 day'
  and ctid = any (array(select t.ctid from mainspring.taken_ids t
                        where t.taken_at < (select clock_timestamp()) - $1 * interval '1 day'
                          and not exists (select from mainspring.jobs j
                                          where j.tenant_id = t.tenant_id and j.job_id = t.job_id)
                          and not exists (select from mainspring.runs r
                                          where r.tenant_id = t.tenant_id and r.job_id = t.job_id)
                          and not exists (select from mainspring.run_history h
                                          where h.job_id = t.job_id and h.tenant_id = t.tenant_id offset 0)
                        limit $2))

-- name: prune_past_jobs
-- unguarded: a row never changes.
delete from mainspring.past_jobs
where ctid = any (array(select ctid from mainspring.past_jobs
                        where replaced_at < (select clock_timestamp()) - $1 * interval '1 day' limit $2))
