-- The output of attempts: the valid length of each log, and which worker may append. The log store has the bytes.

-- name: look
-- The state before a shipment is stored: whether the worker holds each run, the tenant of the run, and the length of
-- its log. The worker must have the tenant of the token. A shared worker ($3: 0) has runs of any tenant.
select c.run_id, c.fence, r.attempt, r.tenant_id, coalesce(g.bytes, 0) as bytes,
       coalesce(g.truncated, false) as truncated
from unnest($1::uuid[], $2::int[]) as c (run_id, fence)
left join mainspring.runs r
    on r.run_id = c.run_id and r.fence = c.fence and $3 in (r.tenant_id, {{EVERY_TENANT}}) and r.worker_id = $4
       and r.state + 0 = {{RUNNING}}
       and exists (select from mainspring.workers w where w.worker_id = $4 and w.tenant_id = $3)
left join mainspring.run_logs g
    on g.run_id = c.run_id and g.fence = c.fence and $3 in (g.tenant_id, {{EVERY_TENANT}}) and g.worker_id = $4

-- name: sizes
-- The output of all attempts of these runs.
select g.run_id, sum(g.bytes)::bigint as bytes
from mainspring.run_logs g
where g.run_id = any ($1::uuid[])
group by g.run_id

-- name: advance
-- Advance the valid length of logs.
-- guard: run, fence, incarnation and RUNNING; the offset is the end of the log. The caller compares the returned rows.
with {{advanced_logs}}
select run_id, fence, attempt from advanced

-- name: record
-- As `advance`, and store the chunks of the logs that were advanced.
-- guard: run, fence, incarnation and RUNNING; the offset is the end of the log. The caller compares the returned rows.
with {{advanced_logs}}, stored as (
    insert into mainspring.log_chunks (run_id, stored_at, first_byte, tenant_id, fence, size, data, words, lane_id)
    select c.run_id, (select clock_timestamp()), c.first_byte, a.tenant_id, c.fence, c.size, c.data, c.words, h.lane_id
    from unnest($9::uuid[], $10::int[], $11::bigint[], $12::int[], $13::bytea[], $14::bytea[])
        as c (run_id, fence, first_byte, size, data, words)
    join advanced a on a.run_id = c.run_id and a.fence = c.fence
    join held h on h.run_id = c.run_id
)
select run_id, fence, attempt from advanced

-- name: standings
-- Runs as readers of their logs see them, each with the logs of its attempts, by fence. An attempt number that was
-- given back and used again has two logs. One statement has one snapshot, so the logs of an ended run are complete. The
-- history, with a partition per day, is only searched for runs that are not live. A log that its job keeps for longer than
-- the history is there without its run.
select w.run_id, coalesce(r.state, h.state, {{UNKNOWN_STATE}}) as state, coalesce(r.attempt, h.attempt, g.attempt) as attempt,
       r.run_id is null as over, g.attempt as log_attempt, g.fence, g.bytes, g.truncated, g.ended
from unnest($1::int[], $2::uuid[]) as w (tenant_id, run_id)
left join mainspring.runs r on r.run_id = w.run_id and r.tenant_id = w.tenant_id
left join lateral (
    select p.state, p.attempt
    from mainspring.run_history p
    where r.run_id is null and p.run_id = w.run_id and p.tenant_id = w.tenant_id
    order by p.ended_at desc
    limit 1
) h on true
left join mainspring.run_logs g on g.run_id = w.run_id and g.tenant_id = w.tenant_id
where r.run_id is not null or h.state is not null or g.keep_until > (select clock_timestamp())
order by g.fence

-- name: expired
-- Logs without new output since the retention began, of runs that are no longer in the history. A run that printed
-- early and ended days later is still in the history. Where the job says how long its output is kept, that counts.
select g.run_id, g.attempt, g.fence, g.tenant_id
from mainspring.run_logs g
where g.keep_until is null and g.created_at < (select clock_timestamp()) - make_interval(days => $1)
  and g.updated_at < (select clock_timestamp()) - make_interval(days => $1)
  and not exists (select from mainspring.runs r where r.run_id = g.run_id)
  and not exists (select from mainspring.run_history h where h.run_id = g.run_id)
union all
select g.run_id, g.attempt, g.fence, g.tenant_id
from mainspring.run_logs g
where g.keep_until < (select clock_timestamp()) and g.updated_at < (select clock_timestamp()) - interval '1 hour'
  and not exists (select from mainspring.runs r where r.run_id = g.run_id)
limit $2

-- name: forget
-- And the chunks of those whose time is over before that of their partition.
-- guard: the run is not live, so no worker appends; the objects are deleted already.
with chunks as (
    delete from mainspring.log_chunks c
    using mainspring.run_logs g
    where g.run_id = any ($1::uuid[]) and g.keep_until is not null and c.run_id = g.run_id and c.fence = g.fence
      and (g.run_id, g.fence) in (select * from unnest($1::uuid[], $2::int[]))
      and not exists (select from mainspring.runs r where r.run_id = g.run_id)
)
delete from mainspring.run_logs g
using unnest($1::uuid[], $2::int[]) as o (run_id, fence)
where g.run_id = o.run_id and g.fence = o.fence
  and not exists (select from mainspring.runs r where r.run_id = g.run_id)
