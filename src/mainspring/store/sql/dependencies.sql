-- Jobs after jobs: edges between jobs, and what WAITING runs wait for. Locks are taken in this order: runs of parents, runs
-- that wait for them. Whoever makes edges takes the lock of the tenant's graph before all others.

-- name: lock_graph
-- One transaction at a time makes edges between the jobs of a tenant, so that two cannot close a cycle.
select pg_advisory_xact_lock({{wide_lock_key('job_edges/' || $1::int)}})

-- name: known_jobs
-- Which of the jobs $2 exist: the status of those with a row, and whether there are runs of others. $3: their ids as ids of
-- runs, where they are.
select p.job_id, j.status,
       exists (select from mainspring.runs r where r.tenant_id = $1 and r.job_id = p.job_id offset 0)
       or exists (select from mainspring.runs r where r.run_id = p.own and r.tenant_id = $1 and r.job_id is null offset 0)
       or exists (select from mainspring.run_history h where h.job_id = p.job_id and h.tenant_id = $1 offset 0)
       or exists (select from mainspring.run_history h
                  where h.run_id = p.own and h.tenant_id = $1 and h.job_id is null offset 0) as has_runs
from unnest($2::text[], $3::uuid[]) as p (job_id, own)
left join mainspring.jobs j on j.tenant_id = $1 and j.job_id = p.job_id

-- name: drop_edges
-- Edges of the children $2 that are not among the pairs ($3, $4) with the kinds $5.
-- guard: the caller has locked the graph.
delete from mainspring.job_edges e
where e.tenant_id = $1 and e.child = any ($2::text[])
  and not exists (select from unnest($3::text[], $4::text[], $5::boolean[]) as k (parent, child, after)
                  where k.parent = e.parent and k.child = e.child and k.after = e.after)

-- name: add_edges
-- unguarded: insert if absent; the caller has locked the graph.
insert into mainspring.job_edges (tenant_id, parent, child, after, fired_for)
select $1, k.parent, k.child, k.after, k.fired_for
from unnest($2::text[], $3::text[], $4::boolean[], $5::timestamptz[]) as k (parent, child, after, fired_for)
order by k.parent, k.child
on conflict do nothing

-- name: is_parent
-- Whether another job depends on one of these.
select exists (select from mainspring.job_edges e where e.tenant_id = $1 and e.parent = any ($2::text[]))

-- name: edges_above
select e.child, e.parent from mainspring.job_edges e where e.tenant_id = $1 and e.child = any ($2::text[])

-- name: follow_jobs
-- The ends of the runs of these jobs are looked at from now on. Fires copy the bit.
-- guard: it only sets a bit; the rows are locked by id.
with locked as materialized (
    select job_id from mainspring.jobs
    where tenant_id = $1 and job_id = any ($2::text[]) and coalesce(edges & {{EDGES_FOLLOWED}}, 0) = 0
    order by job_id
    for no key update
)
update mainspring.jobs j
set edges = coalesce(j.edges, 0) | {{EDGES_FOLLOWED}}
from locked l
where j.tenant_id = $1 and j.job_id = l.job_id

-- name: follow_runs
-- The same for their live runs. They are locked, so that none ends meanwhile. $3: jobs whose id is that of their run.
-- A run that changed while its lock was waited for is first compared as it was before: it may have had another state.
-- keeps: QUEUED, RUNNING, WAITING, HELD
-- guard: it only sets a bit; the rows are locked by id.
with locked as materialized (
    select r.run_id
    from mainspring.runs r
    where r.run_id = any (array(select x.run_id from mainspring.runs x
                                where x.tenant_id = $1 and x.job_id = any ($2::text[])
                                  and {{of_backfill(x)}} is not true
                                union all
                                select x.run_id from mainspring.runs x
                                where x.run_id = any ($3::uuid[]) and x.tenant_id = $1 and x.job_id is null))
      and coalesce(r.follows & {{FOLLOWS_JOBS}}, 0) = 0
      and r.state + 0 in ({{QUEUED}}, {{RUNNING}}, {{WAITING}}, {{HELD}})
    order by r.run_id
    for no key update
)
update mainspring.runs r
set follows = coalesce(r.follows, 0) | {{FOLLOWS_JOBS}}
from locked l
where r.run_id = l.run_id and r.state + 0 = any (array[{{QUEUED}}, {{RUNNING}}, {{WAITING}}, {{HELD}}])

-- name: hold_parents
-- Nobody ends the live runs of these jobs until the transaction ends. Claims go on.
select r.run_id
from mainspring.runs r
where r.run_id = any (array(select x.run_id from mainspring.runs x
                            where x.tenant_id = $1 and x.job_id = any ($2::text[])
                            union all
                            select u.run_id from unnest($3::uuid[]) as u (run_id)))
order by r.run_id
for key share

-- name: insert_waits
-- What new runs of jobs without a row wait for.
-- unguarded: an insert in the transaction that creates the runs.
insert into mainspring.job_waits (run_id, tenant_id, parent, for_time)
select w.run_id, r.tenant_id, w.parent, r.scheduled_for
from unnest($1::uuid[], $2::text[]) as w (run_id, parent)
join mainspring.runs r on r.run_id = w.run_id

-- name: to_look_at
-- Runs after $1 of which it is not known what they wait for, at most $2, and the next fires of these parents, to compare.
select w.run_id, w.tenant_id, array_agg(w.parent order by w.parent) as parents,
       string_agg(coalesce((select j.next_fire_at::text
                            from mainspring.jobs j
                            where j.tenant_id = w.tenant_id and j.job_id = w.parent and j.status = {{JOB_SCHEDULED}}), '-'),
                  ' ' order by w.parent) as next_fires
from mainspring.job_waits w
where not w.looked and w.run_id > $1
group by w.run_id, w.tenant_id
order by w.run_id
limit $2

-- name: all_waiting
-- All runs after $1 that wait for other jobs, at most $2.
select w.run_id, w.tenant_id, array_agg(w.parent) as parents, null::text as next_fires
from mainspring.job_waits w
where w.run_id > $1
group by w.run_id, w.tenant_id
order by w.run_id
limit $2

-- name: lock_waiting
-- Those of the runs $1 that still WAIT.
select r.run_id, r.tenant_id, r.fence, r.attempt, {{job_of(r)}} as job_id, r.payload::text as payload_text,
       r.spec::text as spec_text, r.spec -> 'line' is not null as limited
from mainspring.runs r
where r.run_id = any ($1::uuid[]) and r.state + 0 = {{WAITING}}
order by r.run_id
for no key update

-- name: waits_of
select w.run_id, w.parent, w.for_time, w.since, w.looked, w.parent_run, w.parent_end, w.cause
from mainspring.job_waits w
where w.run_id = any ($1::uuid[])

-- name: waits_to_look_at
-- Those of the runs $1 without an end.
select w.run_id, w.parent, w.for_time, w.since, w.looked, w.parent_run, w.parent_end, w.cause
from mainspring.job_waits w
where w.run_id = any ($1::uuid[]) and w.parent_end is null

-- name: parents_now
-- What is known of the parents $2 of tenant $1, for runs with the nominal times $4 after the fires $5. $3: as in known_jobs.
-- $6: runs for the same time have higher ids. $7: when the parents fire for these times.
select w.place, j.status, j.next_fire_at, coalesce(j.one_time, true) as one_time, j.schedule::text as schedule_text,
       (select r.run_id from mainspring.runs r
        where r.tenant_id = $1 and r.job_id = w.parent and coalesce(r.nominal_for, r.scheduled_for) = w.for_time
          and (r.trigger is null or r.trigger = 'at')
        limit 1) as live_run,
       coalesce((select r.run_id from mainspring.runs r
                 where r.tenant_id = $1 and r.job_id = w.parent and {{of_backfill(r)}} is not true
                 limit 1),
                (select r.run_id from mainspring.runs r
                 where r.run_id = w.own and r.tenant_id = $1 and r.job_id is null)) as any_run,
       same.run_id as ended_run, same.state as ended_state, same.reason as ended_reason,
       ok.run_id as success_run, last.state as last_state, last.reason as last_reason,
       exists (select from mainspring.missed_fires m
               where m.tenant_id = $1 and m.job_id = w.parent and m.first_at <= w.fire and m.last_at >= w.fire
               offset 0) as missed
from unnest($2::text[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::uuid[], $7::timestamptz[])
         with ordinality as w (parent, own, for_time, since, lowest, fire, place)
left join mainspring.jobs j on j.tenant_id = $1 and j.job_id = w.parent
left join lateral (
    select h.run_id, h.state, h.reason
    from mainspring.run_history h
    where h.job_id = w.parent and h.run_id >= w.lowest and h.tenant_id = $1
      and coalesce(h.nominal_for, h.scheduled_for) = w.for_time
      and h.ended_at >= w.for_time - interval '1 hour' and (h.trigger is null or h.trigger = 'at')
    order by h.run_id desc
    limit 1
) as same on true
left join lateral (
    select f.run_id
    from ((select h.run_id
           from mainspring.run_history h
           where h.job_id = w.parent and h.tenant_id = $1 and h.state = {{SUCCESS}} and {{of_backfill(h)}} is not true
             and h.ended_at > coalesce(w.since, '-infinity')
           order by h.run_id
           limit 1)
          union all
          select h.run_id
          from mainspring.run_history h
          where h.run_id = w.own and h.tenant_id = $1 and h.job_id is null and h.state = {{SUCCESS}}) as f
    limit 1
) as ok on true
left join lateral (
    select f.state, f.reason
    from ((select h.state, h.reason
           from mainspring.run_history h
           where h.job_id = w.parent and h.tenant_id = $1 and h.ended_at > coalesce(w.since, '-infinity')
           order by h.run_id desc
           limit 1)
          union all
          select h.state, h.reason
          from mainspring.run_history h
          where h.run_id = w.own and h.tenant_id = $1 and h.job_id is null) as f
    limit 1
) as last on true

-- name: write_waits
-- guard: the caller has locked the runs; an end stays.
update mainspring.job_waits w
set looked = u.looked, parent_run = u.parent_run, parent_end = u.parent_end, cause = u.cause
from unnest($1::uuid[], $2::text[], $3::boolean[], $4::uuid[], $5::smallint[], $6::text[])
         as u (run_id, parent, looked, parent_run, parent_end, cause)
where w.run_id = u.run_id and w.parent = u.parent and w.parent_end is null

-- name: delete_waits
-- Of runs that wait no longer. The edges of a job that has no row go with its run.
-- guard: the runs wait no longer; the caller has locked those that are alive.
with gone as (
    delete from mainspring.job_waits w where w.run_id = any ($1::uuid[]) returning w.run_id
), ids as (
    select distinct u.tenant_id, u.job_id
    from unnest($2::int[], $3::text[]) as u (tenant_id, job_id)
    where not exists (select from mainspring.jobs j where j.tenant_id = u.tenant_id and j.job_id = u.job_id offset 0)
)
delete from mainspring.job_edges e
using ids
where e.tenant_id = ids.tenant_id and e.child = ids.job_id

-- name: ended_parents
-- Runs that have just ended, of jobs on which others depend.
select h.run_id, h.tenant_id, {{job_of(h)}} as job_id, h.state, h.reason
from mainspring.run_history h
where h.run_id = any ($1::uuid[]) and h.ended_at > (select clock_timestamp()) - interval '1 day'

-- name: waiting_for
-- The runs that wait for the ends of the runs $1, of the jobs $3, at most $4. Others than $1 of the same job do not matter
-- to a run that waits for one of them. A run that waits for several is there several times. Runs that are being polled are
-- among them: the poller may have read the parents before these ends. The caller waits for its lock and decides then.
select w.run_id
from unnest($1::uuid[], $2::int[], $3::text[]) as e (run_id, tenant_id, job_id)
join mainspring.job_waits w on w.tenant_id = e.tenant_id and w.parent = e.job_id
where w.parent_end is null and (w.parent_run is null or w.parent_run = e.run_id)
limit $4

-- name: look_again
-- It must be found out anew what the runs wait for that wait for these jobs; at most $3 of them.
-- guard: an end stays.
update mainspring.job_waits w
set looked = false, parent_run = null
from (select k.run_id, k.parent
      from unnest($1::int[], $2::text[]) as u (tenant_id, parent)
      cross join lateral (select x.run_id, x.parent
                          from mainspring.job_waits x
                          where x.tenant_id = u.tenant_id and x.parent = u.parent and x.parent_end is null and x.looked
                          order by x.run_id
                          limit $3) as k
      limit $3) as l
where w.run_id = l.run_id and w.parent = l.parent and w.parent_end is null and w.looked

-- name: results
select h.run_id, h.result::text as result
from mainspring.run_history h
where h.run_id = any ($1::uuid[])

-- name: newest_successes
-- The newest success of each of the jobs $2. $3: as in known_jobs.
select p.job_id, ok.run_id
from unnest($2::text[], $3::uuid[]) as p (job_id, own)
cross join lateral (
    select f.run_id
    from ((select h.run_id
           from mainspring.run_history h
           where h.job_id = p.job_id and h.tenant_id = $1 and h.state = {{SUCCESS}}
           order by h.run_id desc
           limit 1)
          union all
          select h.run_id
          from mainspring.run_history h
          where h.run_id = p.own and h.tenant_id = $1 and h.job_id is null and h.state = {{SUCCESS}}) as f
    limit 1
) as ok

-- name: after_children
-- The jobs behind ($3, $4) that fire after one of these, in order, at most $5.
select distinct e.tenant_id, e.child
from unnest($1::int[], $2::text[]) as u (tenant_id, parent)
join mainspring.job_edges e on e.tenant_id = u.tenant_id and e.parent = u.parent
where e.after and (e.tenant_id, e.child) > ($3, $4)
order by e.tenant_id, e.child
limit $5

-- name: lock_children
-- Fires of these jobs wait for the lock.
select j.tenant_id, j.job_id, j.spec ->> 'rule' as rule
from mainspring.jobs j
join unnest($1::int[], $2::text[]) as u (tenant_id, job_id) on j.tenant_id = u.tenant_id and j.job_id = u.job_id
order by j.tenant_id, j.job_id
for no key update of j

-- name: satisfy_edges
-- guard: the caller has locked the children.
update mainspring.job_edges e
set satisfied_at = (select clock_timestamp()), satisfied_run = u.run_id, satisfied_end = u.parent_end
from unnest($1::int[], $2::text[], $3::text[], $4::uuid[], $5::smallint[])
         as u (tenant_id, parent, child, run_id, parent_end)
where e.tenant_id = u.tenant_id and e.parent = u.parent and e.child = u.child and e.after

-- name: after_edges
-- The edges of these children.
select e.tenant_id, e.child, e.parent, e.satisfied_at is not null as satisfied
from unnest($1::int[], $2::text[]) as u (tenant_id, child)
join mainspring.job_edges e on e.tenant_id = u.tenant_id and e.child = u.child
where e.after

-- name: set_due
-- Jobs that fire now, because their parents have ended.
-- guard: SCHEDULED, and not due yet; the caller has locked the rows.
update mainspring.jobs j
set next_fire_at = greatest((select clock_timestamp()), j.last_fired_for + interval '1 microsecond',
                            j.last_nominal_for + interval '1 microsecond')
from unnest($1::int[], $2::text[]) as u (tenant_id, job_id)
where j.tenant_id = u.tenant_id and j.job_id = u.job_id and j.status = {{JOB_SCHEDULED}} and j.next_fire_at is null
  and j.edges & {{EDGES_AFTER}} <> 0
