-- Failures by fingerprint, in groups of each hour.

-- name: failed_runs
-- The runs that failed from $1 on and before $2, by task and first line.
select l.tenant_id, l.queue, l.task, f.line, f.count, f.failed, f.first_at, f.last_at, f.sample_run, f.job_ids
from (select lane_id, line, count(*) as count, count(*) as failed, min(ended_at) as first_at, max(ended_at) as last_at,
             (array_agg(run_id))[1] as sample_run, (array_remove(array_agg(distinct job_id), null))[1:{{SAMPLE_JOBS}}] as job_ids
      from (select lane_id, {{like_line(words)}} as line, ended_at, run_id, job_id
            from (select lane_id, coalesce(error, reason, '') as words, ended_at, run_id, job_id
                  from mainspring.run_history
                  where ended_at >= $1 and ended_at < $2 and state = {{FAILED}}) as each) as each
      group by lane_id, line) as f
join mainspring.lanes l on l.lane_id = f.lane_id

-- name: known_groups
-- The groups of the hour $1.
select tenant_id, fingerprint from mainspring.failure_groups where at = $1 group by tenant_id, fingerprint

-- name: add_groups
-- Adds to groups of the hour $1, in its minute $2 (from 1 on).
-- unguarded: the watermark moves in the same transaction.
insert into mainspring.failure_groups as g
    (tenant_id, at, fingerprint, queue, task, title, count, failed, minutes, first_at, last_at, sample_run, job_ids)
select u.tenant_id, $1, u.fingerprint, u.queue, u.task, u.title, u.count, u.failed,
       array_fill(0, array[$2::int - 1]) || u.count::int, u.first_at, u.last_at, u.sample_run,
       coalesce((select array_agg(value) from json_array_elements_text(u.job_ids)), '{}')
from unnest($3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::timestamptz[],
            $11::timestamptz[], $12::uuid[], $13::json[])
    as u (tenant_id, fingerprint, queue, task, title, count, failed, first_at, last_at, sample_run, job_ids)
on conflict (tenant_id, at, fingerprint, queue) do update
set count = g.count + excluded.count, failed = g.failed + excluded.failed,
    minutes[$2] = coalesce(g.minutes[$2], 0) + excluded.count::int,
    last_at = excluded.last_at, sample_run = excluded.sample_run,
    job_ids = coalesce((select (array_agg(distinct id))[1:{{SAMPLE_JOBS}}] from unnest(g.job_ids || excluded.job_ids) as id), '{}')

-- name: largest_groups
-- The $7 largest groups from $2 on, of a task or queue or of all, or the one with the fingerprint $8. $5 is the hour in which $2 lies, and $6 the minutes of it
-- that lie before: they do not count. groups: how many there are. First by task and queue, so that nothing is sorted that
-- has a row for each hour.
with counted as (
    select fingerprint, task, queue, max(title) as title, sum(inside) as count,
           sum(case when inside = count then failed else least(failed, inside) end) as failed, min(first_at) as first_at,
           max(last_at) as last_at, max(sample_run::text collate "C") as sample_run
    from (select fingerprint, task, queue, title, count, failed, first_at, last_at, sample_run,
                 case when at >= $2 then count
                      else (select coalesce(sum(n), 0) from unnest(minutes[$6 + 1:]) as n) end as inside
          from mainspring.failure_groups
          where tenant_id = $1 and at >= $5 and ($3::text is null or task = $3) and ($4::text is null or queue = $4)
            and ($8::text is null or fingerprint = $8)) as each
    where inside > 0
    group by fingerprint, task, queue
)
select fingerprint, max(title) as title, sum(count)::bigint as count, sum(failed)::bigint as failed,
       greatest(min(first_at), $2) as first_at, max(last_at) as last_at, max(sample_run)::uuid as sample_run,
       array_remove(array_agg(distinct task), '') as tasks, array_agg(distinct queue) as queues,
       count(*) over ()::int as groups
from counted
group by fingerprint
order by 3 desc, fingerprint
limit $7

-- name: minutes_of_groups
-- The failures in each minute of the groups $3, from the hour $2 on. first: minutes from $2 to the first of them.
select fingerprint, (extract(epoch from at - $2) / 60)::int as first, array_replace(minutes, null, 0) as counts
from mainspring.failure_groups
where tenant_id = $1 and at >= $2 and fingerprint = any ($3::text[])
  and ($4::text is null or task = $4) and ($5::text is null or queue = $5)

-- name: steps_of_groups
-- The same for steps of $6 seconds, each of which has whole hours; $2 is the beginning of the first. A row for each group.
select fingerprint, array_agg(step) as steps, array_agg(n) as counts
from (select fingerprint, floor(extract(epoch from at - $2) / $6)::int as step, sum(count)::bigint as n
      from mainspring.failure_groups
      where tenant_id = $1 and at >= $2 and fingerprint = any ($3::text[])
        and ($4::text is null or task = $4) and ($5::text is null or queue = $5)
      group by 1, 2) as each
group by fingerprint

-- name: jobs_of_groups
-- Some of the jobs that the groups $3 have hit, from the hour $2 on.
select fingerprint, job_ids
from mainspring.failure_groups
where tenant_id = $1 and at >= $2 and fingerprint = any ($3::text[]) and job_ids <> '{}'
  and ($4::text is null or task = $4) and ($5::text is null or queue = $5)

-- name: prune_groups
-- unguarded: nobody adds to what is so old.
delete from mainspring.failure_groups where at < (select clock_timestamp()) - $1 * interval '1 second'
