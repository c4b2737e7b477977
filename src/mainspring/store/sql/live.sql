-- Looks for the event stream: the state of what somebody watches, of all who watch at a server together.

-- name: watched_runs
-- WatchedRun in store/watched_objects.py. The history, with a partition per day, is only searched for runs that are not live.
select w.tenant_id, w.run_id, coalesce(r.state, h.state) as state, coalesce(r.attempt, h.attempt) as attempt, r.progress,
       r.progress_number, coalesce(r.stopping, false) as stopping
from unnest($1::int[], $2::uuid[]) as w (tenant_id, run_id)
left join lateral (
    select {{listed_state}} as state, r.attempt, r.progress, r.progress_number,
           r.cancel_requested_at is not null as stopping
    from mainspring.runs r
    where r.run_id = w.run_id and r.tenant_id = w.tenant_id
) r on true
left join lateral (
    select p.state, p.attempt
    from mainspring.run_history p
    where r.state is null and p.run_id = w.run_id and p.tenant_id = w.tenant_id
    order by p.ended_at desc
    limit 1
) h on true
where r.state is not null or h.state is not null

-- name: watched_jobs
-- WatchedJob in store/watched_objects.py: the row of the job, a digest of up to 100 live runs, and the newest ended run.
select w.tenant_id, w.job_id, j.version, j.status, j.next_fire_at, l.live, l.digest, h.run_id as ended
from unnest($1::int[], $2::text[]) as w (tenant_id, job_id)
left join mainspring.jobs j on j.tenant_id = w.tenant_id and j.job_id = w.job_id
left join lateral (
    select count(*)::int as live, coalesce(sum(hashtext(s.run_id::text || s.state || '.' || s.attempt)), 0)::bigint as digest
    from (select r.run_id, {{shown_state}} as state, r.attempt
          from mainspring.runs r
          where r.tenant_id = w.tenant_id and r.job_id = w.job_id
          limit 100) as s
) l on true
left join lateral (
    select p.run_id
    from mainspring.run_history p
    where p.job_id = w.job_id and p.tenant_id = w.tenant_id
    order by p.run_id desc
    limit 1
) h on true
where j.job_id is not null or l.live > 0 or h.run_id is not null

-- name: watched_flows
-- WatchedFlow in store/watched_objects.py, with a row for each state of its step runs. Their ids are one range. Those of an ended
-- workflow run are not counted.
select f.tenant_id, f.flow_id, f.state, f.reruns, s.state as step_state, s.number
from unnest($1::int[], $2::uuid[]) as w (tenant_id, run_id)
join mainspring.flows f on f.flow_id = w.run_id and f.tenant_id = w.tenant_id
left join lateral (
    select t.state, count(*)::int as number
    from (
        select {{listed_state}} as state
        from mainspring.runs r
        where r.run_id between f.prefix and (left(f.prefix::text, 28) || 'ffffffff')::uuid
        union all
        select e.state
        from mainspring.step_ends e
        where e.run_id between f.prefix and (left(f.prefix::text, 28) || 'ffffffff')::uuid
    ) as t
    where f.state <> {{FLOW_ENDED}}
    group by t.state
) s on true

-- name: watched_workers
-- Of each tenant, how many workers are alive, and a digest of them.
select w.tenant_id, count(*)::int as alive, sum(hashtext(w.worker_id::text || w.state))::bigint as digest
from mainspring.workers w
where w.state in ({{WORKERS_ALIVE}}) and w.tenant_id = any ($1::int[])
group by w.tenant_id

-- name: tenants_of_runs
-- How many of these runs each tenant has, of live ones and of those that ended a moment ago.
select s.tenant_id, count(*)::int as number
from (
    select r.tenant_id from mainspring.runs r where r.run_id = any ($1::uuid[])
    union all
    select h.tenant_id
    from mainspring.run_history h
    where h.run_id = any ($1::uuid[]) and h.ended_at > (select clock_timestamp()) - interval '1 hour'
) as s
group by s.tenant_id
