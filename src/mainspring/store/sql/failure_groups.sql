-- Failures by fingerprint, in groups of each hour.

-- name: failed_runs
-- The runs that failed from $1 on and before $2, by task and first line.
select l.tenant_id, l.queue, l.task, f.line, f.count, f.failed, f.first_at, f.last_at, f.sample_run, f.job_ids
from (select lane_id, line, count(*) as count, count(*) as failed, min(ended_at) as first_at, max(ended_at) as last_at,
             (array_agg(run_id))[1] as sample_run, (array_remove(array_agg(distinct job_id), null))[1:{{SAMPLE_JOBS}}] as job_ids
      from (select lane_id, {{first_line(words)}} as line, ended_at, run_id, job_id
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

-- name: groups
-- From the hour $2 on, of a task or queue or of all.
select at, fingerprint, queue, task, title, count, failed, minutes, first_at, last_at, sample_run, job_ids
from mainspring.failure_groups
where tenant_id = $1 and at >= $2 and ($3::text is null or task = $3) and ($4::text is null or queue = $4)

-- name: prune_groups
-- unguarded: nobody adds to what is so old.
delete from mainspring.failure_groups where at < (select clock_timestamp()) - $1 * interval '1 second'
