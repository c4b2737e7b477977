-- One-time jobs that have fired: they have no jobs row any more, only their runs.
-- $5: statuses of jobs by rank (live), or states of runs (ended). $14: the limit of the page.

-- name: live
-- In the order of the ids of the deciding runs, newest first.
select {{live_run_columns}}
from mainspring.runs r
where {{wanted_job(r)}} and {{live_rank(r)}} = any ($5::int[]) and {{live_decides}}
order by r.run_id desc
limit $14

-- name: held
-- The same for RUNNING and CANCELLED: the runs that workers hold. They are few, and have an index in another order.
select {{live_run_columns}}
from mainspring.runs r
where r.run_id = any (array(
    select r.run_id
    from mainspring.runs r
    where r.state = {{RUNNING}} and {{wanted_job(r)}} and {{live_rank(r)}} = any ($5::int[]) and {{live_decides}}
    order by r.run_id desc
    limit $14))
order by r.run_id desc

-- name: ended
-- The inner query keeps the planner from asking what decides once for each partition.
select {{ended_run_columns}}
from (select {{ended_row}}
      from mainspring.run_history h
      where {{wanted_job(h)}} and h.state = any ($5::int[])
      order by h.run_id desc
      offset 0) as h
where {{ended_decides}}
order by h.run_id desc
limit $14

-- name: unsuccessful
-- The same for ends other than SUCCESS, which have an index.
select {{ended_run_columns}}
from (select {{ended_row}}
      from mainspring.run_history h
      where h.state <> {{SUCCESS}} and {{wanted_job(h)}} and h.state = any ($5::int[])
      order by h.run_id desc
      offset 0) as h
where {{ended_decides}}
order by h.run_id desc
limit $14

-- name: live_boundary
-- The run that comes $2 runs after $1.
select run_id from mainspring.runs where $1::uuid is null or run_id < $1 order by run_id desc offset $2 limit 1

-- name: ended_boundary
select run_id from mainspring.run_history where $1::uuid is null or run_id < $1 order by run_id desc offset $2 limit 1

-- name: unsuccessful_boundary
select run_id from mainspring.run_history
where state <> {{SUCCESS}} and ($1::uuid is null or run_id < $1)
order by run_id desc offset $2 limit 1

-- name: deciding_live
-- The live run of a generation that decides, of those that are not themselves the job.
select {{live_run_columns}}
from mainspring.runs r
where r.tenant_id = $1 and r.job_id = $2 and r.generation = $3
order by {{live_rank(r)}} desc, r.run_id desc
limit 1

-- name: deciding_ended
-- The same for ended runs. $4: those that were skipped because another run was alive, or the others.
select {{ended_run_columns}}
from mainspring.run_history h
where h.tenant_id = $1 and h.job_id = $2 and h.generation = $3 and {{overlapped(h)}} = $4
order by h.run_id desc
limit 1

-- name: fire_live
-- The run that the schedule of a one-time job with a chosen id made, while it is alive.
select {{live_run_columns}}
from mainspring.runs r
where r.tenant_id = $1 and r.job_id = $2 and r.generation = $3
  and (r.trigger = 'at' or r.trigger is null and r.fired_at is null)
order by r.run_id desc
limit 1

-- name: fire_ended
select {{ended_run_columns}}
from mainspring.run_history h
where h.tenant_id = $1 and h.job_id = $2 and h.generation = $3
  and (h.trigger = 'at' or h.trigger is null and h.fired_at is null)
order by h.run_id desc
limit 1

-- name: newest_runs
-- The newest run of each of these jobs, without what is large, if it is of this generation. An error is cut after 2,000
-- characters.
select newest.*
from unnest($2::text[], $3::int[]) as w (job_id, generation)
cross join lateral (
    select * from (
        (select {{brief_live_columns}}
         from mainspring.runs r
         where r.tenant_id = $1 and r.job_id = w.job_id
         order by r.run_id desc
         limit 1)
        union all
        (select {{brief_ended_columns}}
         from mainspring.run_history h
         where h.tenant_id = $1 and h.job_id = w.job_id
         order by h.run_id desc
         limit 1)
    ) as two
    order by run_id desc
    limit 1
) as newest
where newest.generation = w.generation

-- name: taken_at
select job_id, taken_at, generation from mainspring.taken_ids where tenant_id = $1 and job_id = any ($2::text[])
