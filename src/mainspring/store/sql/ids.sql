-- Finds ids by a part of them. No index has the ends of ids: it would cost time for every run. So each statement reads a
-- bounded number of the newest rows, whoever they belong to, and says how many it has read.

-- name: newest_live
{{newest_runs_by_part(runs)}}

-- name: newest_ended
{{newest_runs_by_part(run_history)}}

-- name: live_between
{{runs_between(runs)}}

-- name: ended_between
{{runs_between(run_history)}}

-- name: dead_letters
with newest as materialized (
    select run_id, lane_id, name from mainspring.dead_letters where tenant_id = $1 order by run_id desc limit $3
)
select (select count(*) from newest)::int as scanned, false as job, found.id, found.lane_id, found.name
from (select) as one
left join (
    select run_id::text as id, lane_id, name
    from newest
    where starts_with(run_id::text, $2) or right(run_id::text, length($2)) = $2
    limit $4
) as found on true

-- name: jobs
-- jobs_newest has the ids, so that only the rows that are found are read.
with newest as materialized (
    select job_id from mainspring.jobs where tenant_id = $1 order by created_at desc, job_id desc limit $3
)
select (select count(*) from newest)::int as scanned, true as job, found.job_id as id, j.lane_id, j.name
from (select) as one
left join (
    select job_id from newest where starts_with(job_id, $2) or right(job_id, length($2)) = $2 limit $4
) as found on true
left join mainspring.jobs j on j.tenant_id = $1 and j.job_id = found.job_id

-- name: workers
-- Those that a list of workers shows.
with listed as materialized (
    select w.worker_id, w.name
    from mainspring.workers w
    where w.tenant_id in ($1, {{EVERY_TENANT}})
      and (w.state in ({{WORKERS_ALIVE}}) or w.ended_at > (select clock_timestamp()) - interval '1 hour')
    order by w.worker_id desc
    limit $3
)
select (select count(*) from listed)::int as scanned, false as job, found.id, null::int as lane_id, found.name
from (select) as one
left join (
    select worker_id::text as id, name
    from listed
    where starts_with(worker_id::text, $2) or right(worker_id::text, length($2)) = $2
    limit $4
) as found on true

-- name: jobs_by_name
-- The ids by their order, and the newest jobs by their names. Both read a bounded number of rows: an index of the names
-- would cost time with every fire.
with near as materialized (
    select job_id, name from mainspring.jobs where tenant_id = $1 and job_id >= $2 order by job_id limit 1000
),
newest as materialized (
    select job_id, name from mainspring.jobs where tenant_id = $1 order by created_at desc, job_id desc limit 10000
)
select job_id, max(name) as name
from (select job_id, name from near where starts_with(job_id, $2)
      union all
      select job_id, name from newest
      where starts_with(lower(job_id), lower($2)) or starts_with(lower(name), lower($2))) as found
group by job_id
order by job_id
limit $3
