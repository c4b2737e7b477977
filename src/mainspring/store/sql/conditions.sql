-- Conditions of rules: figures of a tenant, of one of its queues ($3) or tasks ($2), that are above or below a bound.

-- name: rates
-- Of the last $4 seconds, from the rollups.
select coalesce(sum(succeeded), 0)::bigint as succeeded, coalesce(sum(failed), 0)::bigint as failed,
       coalesce(sum(retried), 0)::bigint as retried
from mainspring.rollups
where span = {{MINUTE}} and tenant_id = $1 and at >= (select clock_timestamp()) - $4 * interval '1 second'
  and task = coalesce($2, '')
  and (case when $2::text is null then queue = coalesce($3, '') else $3::text is null or queue = $3 end)

-- name: dead_letters
-- Not more than $4 are counted.
select count(*)::int
from (select from mainspring.dead_letters d
      join mainspring.lanes l on l.lane_id = d.lane_id
      where d.tenant_id = $1 and ($2::text is null or l.task = $2) and ($3::text is null or l.queue = $3)
      limit $4) as each

-- name: oldest_ready
-- For how many seconds the run has been ready that waits longest, and its queue and task. $4: only where no worker that
-- is alive takes its queue and task.
select extract(epoch from (select clock_timestamp()) - f.ready_at)::float8 as seconds, l.queue, l.task
from mainspring.lanes l
cross join lateral (select r.ready_at from mainspring.runs r
                    where r.lane_id = l.lane_id and r.state = {{QUEUED}} and r.ready_at <= (select clock_timestamp())
                    order by r.ready_at limit 1) as f
where l.tenant_id = $1 and ($2::text is null or l.task = $2) and ($3::text is null or l.queue = $3)
  and not ($4 and exists (select from mainspring.workers w
                          where w.state in ({{WORKERS_ALIVE}}) and w.tenant_id in (l.tenant_id, {{EVERY_TENANT}})
                            and l.queue = any (w.queues) and l.task = any (w.tasks)))
order by f.ready_at
limit 1
