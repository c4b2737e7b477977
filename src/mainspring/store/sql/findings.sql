-- What goes wrong slowly, and how near the installation is to its limits. $1 is the tenant; $2 a task and $3 a queue, or
-- null.

-- name: forgotten_pauses
-- Queues, tenants and jobs that have been paused for more than $4 seconds, the oldest pause first; $5 at most. A job counts
-- from its last change.
select * from (
    select case when g.queue is null then 'everything' else 'queue ' || g.queue end as subject, g.paused_at as since
    from mainspring.gates g
    where g.tenant_id in ($1, {{EVERY_TENANT}}) and g.paused_at < (select clock_timestamp()) - $4 * interval '1 second'
      and $2::text is null and ($3::text is null or g.queue = $3)
    union all
    (select 'job ' || j.job_id, j.updated_at
     from mainspring.jobs j
     join mainspring.lanes l on l.lane_id = j.lane_id
     where j.tenant_id = $1 and j.status = {{JOB_PAUSED}} and j.updated_at < (select clock_timestamp()) - $4 * interval '1 second'
       and ($2::text is null or l.task = $2) and ($3::text is null or l.queue = $3)
     order by j.updated_at
     limit $5)
) as found
order by since
limit $5

-- name: never_ran
-- Jobs that should have run since their creation, which is more than $4 seconds ago, and of which no run has succeeded or
-- failed. The 10,000 oldest jobs are looked at, and $5 named.
select 'job ' || j.job_id as subject, j.created_at as since
from (select e.tenant_id, e.job_id, e.generation, e.lane_id, e.status, e.one_time, e.created_at, e.next_fire_at,
             e.last_nominal_for, e.last_fired_for
      from mainspring.jobs e
      where e.tenant_id = $1 and e.created_at < (select clock_timestamp()) - $4 * interval '1 second'
      order by e.created_at, e.job_id
      limit 10000) as j
join mainspring.lanes l on l.lane_id = j.lane_id
where j.status = {{JOB_SCHEDULED}} and not j.one_time
  and (j.last_nominal_for is not null or j.last_fired_for is not null or j.next_fire_at < (select clock_timestamp()))
  and ($2::text is null or l.task = $2) and ($3::text is null or l.queue = $3)
  and not exists (select from mainspring.job_health h
                  where h.tenant_id = j.tenant_id and h.job_id = j.job_id and h.generation = j.generation
                    and coalesce(h.before, h.state) <> {{HEALTH_SILENT}})
  and not exists (select from (select r.tenant_id, r.generation, r.state from mainspring.run_history r where r.job_id = j.job_id
                               order by r.run_id desc limit 1000) as r
                  where r.tenant_id = j.tenant_id and r.generation = j.generation
                    and r.state in ({{SUCCESS}}, {{FAILED}}))
order by j.created_at
limit $5

-- name: always_fails
-- Jobs whose last $4 runs failed, and of whose last 1,000 runs none has succeeded; $5 at most.
select 'job ' || h.job_id as subject, h.since
from mainspring.job_health h
join mainspring.jobs j on j.tenant_id = h.tenant_id and j.job_id = h.job_id and j.generation = h.generation
join mainspring.lanes l on l.lane_id = j.lane_id
where h.tenant_id = $1 and h.state = {{HEALTH_FAILING}} and h.failures >= $4 and j.status = {{JOB_SCHEDULED}}
  and ($2::text is null or l.task = $2) and ($3::text is null or l.queue = $3)
  and not exists (select from (select r.tenant_id, r.generation, r.state from mainspring.run_history r where r.job_id = h.job_id
                               order by r.run_id desc limit 1000) as r
                  where r.tenant_id = h.tenant_id and r.generation = h.generation and r.state = {{SUCCESS}})
order by h.since
limit $5

-- name: wrong_clocks
-- Live nodes whose clock differs by more than $1 seconds; $2: how long a node that is not seen counts as live.
select n.host, n.clock_off::float8 as off
from mainspring.nodes n
where abs(n.clock_off) > $1 and n.seen_at > (select clock_timestamp()) - $2 * interval '1 second'
order by abs(n.clock_off) desc

-- name: database_limits
-- DatabaseLimits in store/findings.py. Each role may read this; what it may not see is null.
select (select sum(numbackends) from pg_stat_database)::int as connections,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           as connections_limit,
       (select max(age(datfrozenxid)) from pg_database)::bigint as transaction_age,
       (select coalesce(extract(epoch from max((select clock_timestamp()) - xact_start)), 0) from pg_stat_activity
        where backend_type = 'client backend')::float8 as longest_open,
       (select max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) from pg_replication_slots)::bigint as kept_by_slots,
       (select extract(epoch from max(replay_lag)) from pg_stat_replication)::float8 as replay_lag,
       (select t.relname from pg_stat_user_tables t
        where t.schemaname = 'mainspring' and t.n_dead_tup > 1000000 and t.n_dead_tup > t.n_live_tup
        order by t.n_dead_tup desc limit 1)::text as bloated,
       current_setting('synchronous_standby_names') <> ''
           and not exists (select from pg_stat_replication where sync_state in ('sync', 'quorum')) as waits_for_standby
