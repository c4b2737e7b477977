-- Reads live and ended runs.

-- name: live_run
select {{live_run_columns}}
from mainspring.runs r
where r.tenant_id = $1 and r.run_id = $2

-- name: ended_run
select {{ended_run_columns}}
from mainspring.run_history h
where h.run_id = $2 and h.tenant_id = $1
order by h.ended_at desc
limit 1

-- name: live_runs
-- Keyset by run_id, newest first, before $2 and down to $18: UUIDv7 is in order of creation. $3: runs of a job. $9: the run
-- that is itself a job; it is read by a separate query, because a condition with "or" would not use an index. Texts are
-- compared last, because that costs most.
select {{live_run_columns}}
from mainspring.runs r
where {{wanted_live_run}}
  and ($18::uuid is null or r.run_id >= $18)
order by r.run_id desc
limit $19

-- name: ended_runs
-- No run ends before it is due or created, so $7 and $10 also say which partitions to read. The hour is for clocks that
-- differ.
select {{ended_run_columns}}
from mainspring.run_history h
where {{wanted_ended_run}}
  and ($18::uuid is null or h.run_id >= $18)
order by h.run_id desc
limit $19

-- name: ended_runs_between
-- Those that ended from $18 on and before $19.
select {{ended_run_columns}}
from mainspring.run_history h
where {{wanted_ended_run}}
  and h.ended_at >= $18 and h.ended_at < $19
order by h.run_id desc
limit $20

-- name: count_live_runs
-- How many live runs match, at most $18.
select count(*)::int from (select from mainspring.runs r where {{wanted_live_run}} limit $18) as found

-- name: count_ended_runs
select count(*)::int from (select from mainspring.run_history h where {{wanted_ended_run}} limit $18) as found

-- name: live_runs_of_job
select {{live_run_columns}}
from mainspring.runs r
where r.tenant_id = $1 and r.job_id = $2 and ($3::uuid is null or r.run_id < $3)
  and ($4::int is null or r.generation = $4)
order by r.run_id desc
limit $5

-- name: ended_runs_of_job
select {{ended_run_columns}}
from mainspring.run_history h
where h.tenant_id = $1 and h.job_id = $2 and ($3::uuid is null or h.run_id < $3)
  and ($4::int is null or h.generation = $4)
order by h.run_id desc
limit $5

-- name: queue_depths
-- Waiting and running runs, by lane, as they are shown.
select lane_id,
       count(*) filter (where state = {{QUEUED}}) as depth,
       count(*) filter (where state = {{SHOWN_SCHEDULED}}) as scheduled,
       count(*) filter (where state = {{HELD}}) as held,
       count(*) filter (where state = {{RUNNING}}) as running,
       extract(epoch from (select clock_timestamp()) - min(ready_at) filter (where state = {{QUEUED}}))::float8 as oldest
from (select r.lane_id, r.ready_at, {{shown_state}} as state
      from mainspring.runs r
      where r.tenant_id = $1 and r.state <> {{WAITING}}) as shown
group by lane_id

-- name: ended_last_minute
select lane_id, count(*) as ended, count(*) filter (where state = {{SUCCESS}}) as succeeded,
       count(*) filter (where state = {{FAILED}}) as failed
from mainspring.run_history
where tenant_id = $1 and ended_at > (select clock_timestamp()) - interval '1 minute' and state <> {{SKIPPED}}
group by lane_id

-- name: attempts_of
-- The newest 1,000 attempts that were followed by another one, in order, and how many came before them. The newest errors
-- are read as long as they have 1 MiB in all, and 1,000 characters of each of the others. Samples of
-- the usage are not read.
select attempt, fence, worker_id, started_at, ended_at, outcome,
       case when errors <= 1048576 then error
            else left(error, 1000) || case when length(error) > 1000 then ' [the rest is left out]' else '' end
       end as error,
       ready_at, earlier, (usage::jsonb - 'samples')::text as usage_text
from (select attempt, fence, worker_id, started_at, ended_at, outcome, error, ready_at, usage,
             sum(octet_length(error)) over (order by fence desc rows unbounded preceding) as errors,
             greatest(0, count(*) over () - 1000)::int as earlier
      from mainspring.attempts
      where run_id = $1
      order by fence desc
      limit 1000) as newest
order by fence

-- name: last_attempts
-- When the last attempts of these runs ended that another one follows.
select run_id, max(ended_at) as ended_at from mainspring.attempts where run_id = any ($1::uuid[]) group by run_id

-- name: worker_names
-- Names are kept for a day after the end of a worker.
select worker_id, name from mainspring.workers where worker_id = any ($1::uuid[])

-- name: ahead_of
-- How many runs of the lane are ready before this time. The number is only shown in a sentence, so it is limited.
select count(*)::int from (
    select from mainspring.runs where lane_id = $1 and state = {{QUEUED}} and ready_at < $2 limit 10000
) as before
