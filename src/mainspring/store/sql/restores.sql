-- After a restore from a backup: whatever was handed out since the backup can write nothing.

-- name: end_leases
-- Shards have no owner, and their epochs are far above those that were granted since the backup.
-- guard: the caller is alone with the database.
update mainspring.shard_leases
set owner = null, expires_at = '-infinity', epoch = epoch + $1

-- name: forget_nodes
-- unguarded: nodes of a time that is over.
delete from mainspring.nodes

-- name: end_workers
-- guard: only from a living state.
update mainspring.workers
set state = {{WORKER_LOST}}, ended_at = (select clock_timestamp()), lost_because = $1
where state in ({{WORKERS_ALIVE}})
returning worker_id

-- name: raise_fences
-- A fence of a run rises with each claim, so those that were claimed since the backup have one below these.
-- keeps: QUEUED, RUNNING, WAITING, HELD
-- guard: the caller is alone with the database. A fence only rises.
update mainspring.runs
set fence = fence + $1
where state + 0 = any (array[{{QUEUED}}, {{RUNNING}}, {{WAITING}}, {{HELD}}])

-- name: end_sessions
-- unguarded: sessions of the page, some of which were ended since the backup.
delete from mainspring.sessions

-- name: end_links
-- unguarded: links that sign in once, some of which were used since the backup.
delete from mainspring.sign_in_links

-- name: workers_with_runs
select distinct worker_id from mainspring.runs where state = {{RUNNING}} and worker_id is not null order by worker_id

-- name: lock_unsure
-- The runs that must not begin twice, have not begun as far as the backup knows, and may have begun since: their time has
-- come, or they wait for other runs. So are workflow runs that have not begun and have such steps.
select {{locked_run}}
from mainspring.runs r
where (r.spec ->> 'delivery' = {{AT_MOST_ONCE}} and r.state <> {{RUNNING}}
       and (r.ready_at <= (select clock_timestamp()) or r.state = {{WAITING}}) and not {{is_container}})
   or (r.state = {{QUEUED}} and r.ready_at <= (select clock_timestamp()) and {{has_steps_at_most_once(r)}})
order by r.run_id
limit $1
for no key update

-- name: due_unsure
-- The jobs that must not run twice for one time, or are workflows with such steps, and are due, as the fire reads them.
select {{due_columns}}
from mainspring.jobs j
where j.next_fire_at <= (select clock_timestamp()) and j.status = {{JOB_SCHEDULED}}
  and (j.spec ->> 'delivery' = {{AT_MOST_ONCE}} or {{has_steps_at_most_once(j)}})
order by j.tenant_id, j.job_id
limit $1

-- name: counted
-- What the database has.
select (select count(*) from mainspring.jobs)::int8 as jobs, (select count(*) from mainspring.runs)::int8 as live_runs,
       (select count(*) from mainspring.run_history)::int8 as ended_runs
