-- Gauges: samples of what waits and runs, so that nobody has to count millions of live runs to look at them.

-- name: claim_sample
-- Returns the time if the next sample is due and no other server has begun. A claim ends after $1 seconds.
-- guard: due_at.
insert into mainspring.gauge_pass as p (taken_at, due_at)
select now, now + $1 * interval '1 second' from (select (select clock_timestamp()) as now) as clock
on conflict (only_row) do update
set taken_at = excluded.taken_at, due_at = excluded.due_at
where p.due_at <= excluded.taken_at
returning taken_at

-- name: finish_sample
-- The next sample is due after $2 seconds.
-- guard: the claim is still ours.
update mainspring.gauge_pass set due_at = $1 + $2 * interval '1 second' where taken_at = $1

-- name: sample_lanes
-- Counts the live runs of all lanes. Returns how many there are.
-- guard: taken_at only rises.
with counted as materialized (
    select lane_id, tenant_id, count(*) filter (where state = {{QUEUED}}) as depth,
           count(*) filter (where state = {{SHOWN_SCHEDULED}}) as scheduled, count(*) filter (where state = {{HELD}}) as held,
           count(*) filter (where state = {{RUNNING}}) as running,
           min(ready_at) filter (where state = {{QUEUED}}) as oldest_at
    from (select r.lane_id, r.tenant_id, r.ready_at, {{shown_state}} as state from mainspring.runs r) as shown
    group by lane_id, tenant_id
), put as (
    insert into mainspring.lane_gauges as g
        (lane_id, tenant_id, depth, scheduled, held, running, oldest_at, taken_at)
    select lane_id, tenant_id, depth, scheduled, held, running, oldest_at, $1 from counted
    on conflict (lane_id) do update
    set depth = excluded.depth, scheduled = excluded.scheduled, held = excluded.held, running = excluded.running,
        oldest_at = excluded.oldest_at, taken_at = excluded.taken_at
    where g.taken_at < excluded.taken_at
), dropped as (
    delete from mainspring.lane_gauges where lane_id not in (select lane_id from counted) and taken_at < $1
)
select coalesce(sum(depth + scheduled + held + running), 0)::bigint from counted

-- name: add_sample
-- Puts the sample into its minute and its hour, by queue and for the tenant: the largest values stay. Jobs that are due for
-- a second and have not fired are counted up to 10,000.
-- unguarded: greatest only rises.
with sampled as (
    select g.tenant_id, coalesce(l.queue, '') as queue, sum(g.depth)::bigint as waiting, sum(g.held)::bigint as held,
           sum(g.running)::bigint as running
    from mainspring.lane_gauges g
    join mainspring.lanes l on l.lane_id = g.lane_id
    group by grouping sets ((g.tenant_id, l.queue), (g.tenant_id))
), offered as (
    select tenant_id, sum(slots)::bigint as slots
    from mainspring.workers where state in ({{WORKERS_ALIVE}}) group by tenant_id
), due as (
    select tenant_id, count(*) as backlog
    from (select tenant_id from mainspring.jobs
          where shard between 0 and 127 and next_fire_at < $1::timestamptz - interval '1 second' limit 10000) as late
    group by tenant_id
), known as (
    select tenant_id, queue from sampled
    union
    select tenant_id, '' from offered where tenant_id <> {{EVERY_TENANT}}
    union
    select tenant_id, '' from due
)
insert into mainspring.gauge_rollups as r
    (span, tenant_id, queue, at, waiting, held, running, slots, backlog)
select each.span, k.tenant_id, k.queue, date_trunc(each.unit, $1, 'UTC'), coalesce(s.waiting, 0), coalesce(s.held, 0),
       coalesce(s.running, 0),
       case when k.queue = '' then coalesce(o.slots, 0)
            + coalesce((select slots from offered where tenant_id = {{EVERY_TENANT}}), 0) else 0 end,
       case when k.queue = '' then coalesce(d.backlog, 0) else 0 end
from known k
left join sampled s on s.tenant_id = k.tenant_id and s.queue = k.queue
left join offered o on o.tenant_id = k.tenant_id
left join due d on d.tenant_id = k.tenant_id
cross join (values ({{MINUTE}}, 'minute'), ({{HOUR}}, 'hour')) as each (span, unit)
on conflict (span, tenant_id, queue, at) do update
set waiting = greatest(r.waiting, excluded.waiting), held = greatest(r.held, excluded.held),
    running = greatest(r.running, excluded.running), slots = greatest(r.slots, excluded.slots),
    backlog = greatest(r.backlog, excluded.backlog)

-- name: many_live
-- When the last sample was taken, if more than $1 runs were alive then, of all tenants: to count those of one tenant reads
-- them all. Not if the next sample is overdue by a minute.
select max(taken_at)
from mainspring.lane_gauges
where (select due_at from mainspring.gauge_pass) > (select clock_timestamp()) - interval '1 minute'
having sum(depth + scheduled + held + running) > $1

-- name: depths
-- LaneDepth in store/history.py, of the last sample.
select lane_id, depth, scheduled, held, running,
       extract(epoch from (select clock_timestamp()) - oldest_at)::float8 as oldest
from mainspring.lane_gauges
where tenant_id = $1

-- name: gauge_series
select at, waiting, held, running, slots, backlog
from mainspring.gauge_rollups
where span = $1 and tenant_id = $2 and queue = coalesce($3, '') and at >= $4

-- name: prune_gauges
-- unguarded: nobody adds to what is so old.
delete from mainspring.gauge_rollups
where (span = {{MINUTE}} and at < (select clock_timestamp()) - $1 * interval '1 second')
   or (span = {{HOUR}} and at < (select clock_timestamp()) - $2 * interval '1 second')

-- name: show_gauges
-- Returns true if this server shows the state of the tenant in its metrics: nobody does, it did so last time, or the turn of
-- the other one is over. A turn lasts three times as long as the time between the last two requests, 20 s at least and 5
-- minutes at most; the first one 90 s.
-- guard: server_id, or the end of the turn.
insert into mainspring.gauge_servers as g (tenant_id, server_id, asked_at, until)
select $1, $2, now, now + interval '90 seconds' from (select (select clock_timestamp()) as now) as clock
on conflict (tenant_id) do update
set server_id = excluded.server_id, asked_at = excluded.asked_at,
    until = case when g.server_id <> excluded.server_id then excluded.until
                 else excluded.asked_at + least(interval '300 seconds', greatest(interval '20 seconds',
                                                                                3 * (excluded.asked_at - g.asked_at))) end
where g.server_id = excluded.server_id or g.until <= excluded.asked_at
returning true

-- name: leave_gauges
-- guard: server_id.
delete from mainspring.gauge_servers where server_id = $1

-- name: database_figures
-- DatabaseFigures in store/gauges.py. Each role may count the connections, and see its own transactions.
select (select count(*) from mainspring.shard_leases where expires_at > (select clock_timestamp()))::int as shards_held,
       (select sum(epoch) from mainspring.shard_leases)::bigint as epochs,
       (select sum(numbackends) from pg_stat_database)::int as connections,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           as connections_limit,
       (select max(age(datfrozenxid)) from pg_database)::bigint as transaction_age,
       (select coalesce(extract(epoch from max((select clock_timestamp()) - xact_start)), 0) from pg_stat_activity
        where backend_type = 'client backend')::float8 as longest_open,
       pg_database_size(current_database()) as bytes
