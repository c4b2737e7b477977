-- The health of jobs, and live runs with limits of time. One process at a time works on them, under a lock.

-- name: health_lock
-- Until the end of the transaction.
select pg_try_advisory_xact_lock({{lock_key('health')}})

-- name: begin_health
-- From the first day of the history on.
-- guard: there is none.
insert into mainspring.health_watermark (ended_until, looked_until)
select {{first_day_of_history}}, (select clock_timestamp())
on conflict (only_row) do nothing

-- name: health_watermark
select ended_until, looked_until from mainspring.health_watermark

-- name: move_health
-- guard: ended_until and looked_until.
update mainspring.health_watermark set ended_until = $3, looked_until = $4 where ended_until = $1 and looked_until = $2

-- name: watch_runs
-- Live runs with limits of time that were created ($1: the first id) or became ready or were claimed since ($2). A run that
-- is not found here, such as one whose transaction was long, is looked at when it has ended.
-- guard: the lock; a run is watched once.
insert into mainspring.watched_runs (run_id, tenant_id, job_id, due_at)
select r.run_id, r.tenant_id, r.job_id, (select clock_timestamp())
from (
    select n.run_id, n.tenant_id, n.job_id from mainspring.runs n where n.run_id >= $1 and {{has_limits_of_time(n)}}
    union all
    select q.run_id, q.tenant_id, q.job_id
    from mainspring.lanes l
    join lateral (select * from mainspring.runs w
                  where w.lane_id = l.lane_id and w.state = {{QUEUED}} and w.ready_at >= $2
                    and w.ready_at <= (select clock_timestamp())) as q on {{has_limits_of_time(q)}}
    union all
    select b.run_id, b.tenant_id, b.job_id from mainspring.runs b
    where b.state = {{RUNNING}} and b.claimed_at >= $2 and {{has_limits_of_time(b)}}
) as r
on conflict (run_id) do nothing

-- name: due_watched
-- $1 of those that are due. Without a state: the run has ended.
select w.run_id, w.tenant_id, w.job_id, r.generation, w.told, r.state, coalesce(r.attempt, 0)::int as attempt, l.task, l.queue,
       {{due_from(r)}} as due_from, case when r.started_at >= r.claimed_at then r.started_at end as began_at,
       r.spec::text as spec_text, (select clock_timestamp()) as now
from mainspring.watched_runs w
left join mainspring.runs r on r.run_id = w.run_id
left join mainspring.lanes l on l.lane_id = r.lane_id
where w.due_at <= (select clock_timestamp())
order by w.due_at
limit $1

-- name: set_watched
-- guard: the lock.
update mainspring.watched_runs w
set told = u.told, due_at = u.due_at, to_cancel = w.to_cancel or u.to_cancel
from unnest($1::uuid[], $2::smallint[], $3::timestamptz[], $4::boolean[]) as u (run_id, told, due_at, to_cancel)
where w.run_id = u.run_id

-- name: ended_watched
-- Runs with limits of time that ended from $1 on and before $2. Most runs are not of a job and say nothing: they are left
-- out before anything is joined.
select e.run_id, e.tenant_id, e.job_id, e.generation, e.told, e.state, e.attempt::int as attempt, l.task, l.queue,
       {{due_from(e)}} as due_from, e.started_at as began_at, e.spec::text as spec_text, e.ended_at,
       e.ran_ms::float8 / 1000 as ran
from (select h.run_id, h.tenant_id, h.lane_id, h.job_id, h.generation, h.state, h.attempt, h.trigger, h.scheduled_for,
             h.fired_at, h.started_at, h.spec, h.ended_at, h.ran_ms, coalesce(w.told, 0::smallint) as told
      from mainspring.run_history h
      left join mainspring.watched_runs w on w.run_id = h.run_id
      where h.ended_at >= $1 and h.ended_at < $2 and (h.spec is not null or h.job_id is not null)
        and (w.run_id is not null or {{has_limits_of_time(h)}})
      offset 0) as e
join mainspring.lanes l on l.lane_id = e.lane_id

-- name: unwatch
-- guard: the lock; the runs have ended.
delete from mainspring.watched_runs where run_id = any ($1::uuid[])

-- name: runs_to_cancel
-- Runs that missed their deadline, locked. Those that others have locked are left for the next round.
select {{locked_run}}
from mainspring.runs r
where r.run_id = any (array(select run_id from mainspring.watched_runs where to_cancel order by run_id limit $1))
order by r.run_id
for no key update skip locked

-- name: cancels_requested
-- guard: the caller has locked the runs.
update mainspring.watched_runs set to_cancel = false where run_id = any ($1::uuid[])

-- name: ended_jobs
-- What ended from $1 on and before $2 of jobs that can fire again, and how they did before: the last success, and what
-- failed after it.
with ended as materialized (
    select h.tenant_id, h.job_id, h.generation, h.ended_at, h.state = {{FAILED}} as failed,
           case when h.state = {{FAILED}} then left(coalesce(h.error, h.reason), 500) end as words,
           max(h.ended_at) filter (where h.state = {{SUCCESS}})
               over (partition by h.tenant_id, h.job_id, h.generation) as succeeded_at
    from mainspring.run_history h
    where h.ended_at >= $1 and h.ended_at < $2 and h.job_id is not null and h.state in ({{SUCCESS}}, {{FAILED}})
), judged as materialized (
    select e.tenant_id, e.job_id, e.generation, e.succeeded_at,
           count(*) filter (where e.failed and (e.succeeded_at is null or e.ended_at > e.succeeded_at))::int as failures,
           min(e.ended_at) filter (where e.failed and (e.succeeded_at is null or e.ended_at > e.succeeded_at)) as failed_from,
           (array_agg(e.words order by e.ended_at desc) filter (where e.failed))[1] as words
    from ended e
    group by e.tenant_id, e.job_id, e.generation, e.succeeded_at
)
select d.tenant_id, d.job_id, d.generation, d.succeeded_at, d.failures, d.failed_from, d.words, k.state, k.since,
       coalesce(k.failures, 0) as failures_before,
       exists (select from mainspring.watched_runs w
               where w.tenant_id = d.tenant_id and w.job_id = d.job_id and w.told <> 0
                 and not exists (select from mainspring.runs r
                                 where r.run_id = w.run_id and r.generation <> d.generation)) as late
from judged d
join mainspring.jobs j on j.tenant_id = d.tenant_id and j.job_id = d.job_id and j.generation = d.generation
                      and not j.one_time
left join mainspring.job_health k on k.tenant_id = d.tenant_id and k.job_id = d.job_id and k.generation = d.generation

-- name: set_health
-- guard: the lock.
insert into mainspring.job_health as h (tenant_id, job_id, generation, state, since, reason, failures)
select u.tenant_id, u.job_id, u.generation, u.state, u.since, u.reason, u.failures
from unnest($1::int[], $2::text[], $3::int[], $4::smallint[], $5::timestamptz[], $6::text[], $7::int[])
    as u (tenant_id, job_id, generation, state, since, reason, failures)
on conflict (tenant_id, job_id) do update
set generation = excluded.generation, state = excluded.state, since = excluded.since, reason = excluded.reason,
    usual = case when h.generation = excluded.generation then h.usual end,
    learned_at = case when h.generation = excluded.generation then h.learned_at end,
    failures = excluded.failures, before = null

-- name: set_late
-- Live runs of jobs that can fire again are late. A job that fails or is silent stays so.
-- guard: the lock; state.
insert into mainspring.job_health as h (tenant_id, job_id, generation, state, since, reason)
select j.tenant_id, j.job_id, j.generation, {{HEALTH_LATE}}, (select clock_timestamp()), u.reason
from unnest($1::int[], $2::text[], $3::int[], $4::text[]) as u (tenant_id, job_id, generation, reason)
join mainspring.jobs j on j.tenant_id = u.tenant_id and j.job_id = u.job_id and j.generation = u.generation
                      and not j.one_time
on conflict (tenant_id, job_id) do update
set generation = excluded.generation, state = excluded.state, since = excluded.since, reason = excluded.reason,
    usual = case when h.generation = excluded.generation then h.usual end,
    learned_at = case when h.generation = excluded.generation then h.learned_at end,
    failures = 0, before = null
where h.state = {{HEALTH_HEALTHY}} or h.generation <> excluded.generation

-- name: running_long
-- Runs that have taken a minute at least, of jobs that have run before and say nothing of their duration, with what was
-- learned. $1: of how many.
select r.run_id, r.tenant_id, r.job_id, j.generation, l.task, l.queue, {{due_from(r)}} as due_from,
       extract(epoch from (select clock_timestamp()) - r.started_at)::float8 as ran, k.usual::float8 as usual,
       coalesce(k.learned_at < (select clock_timestamp()) - interval '1 hour', true) as stale, r.spec::text as spec_text
from mainspring.runs r
join mainspring.jobs j on j.tenant_id = r.tenant_id and j.job_id = r.job_id and j.generation = r.generation
                      and not j.one_time
join mainspring.job_health k on k.tenant_id = j.tenant_id and k.job_id = j.job_id and k.generation = j.generation
join mainspring.lanes l on l.lane_id = r.lane_id
where r.state = {{RUNNING}} and r.worker_id is not null and r.job_id is not null and r.started_at >= r.claimed_at
  and r.started_at < (select clock_timestamp()) - interval '1 minute'
  and (coalesce(k.learned_at < (select clock_timestamp()) - interval '1 hour', true)
       or r.started_at < (select clock_timestamp()) - greatest(2 * k.usual, k.usual + 60) * interval '1 second')
  and r.spec ->> 'expected_duration' is null
  and not exists (select from mainspring.watched_runs w
                  where w.run_id = r.run_id and w.told & {{TOLD_RAN_TOO_LONG}} <> 0)
limit $1

-- name: learn
-- How many seconds the longest of the last runs took that succeeded; of too few nothing is learned. Of each id the last
-- 1,000 runs are read.
-- guard: the lock.
update mainspring.job_health k
set usual = t.usual, learned_at = (select clock_timestamp())
from (select u.tenant_id, u.job_id, u.generation,
             case when count(h.ran_ms) >= {{LEAST_LEARNED}} then max(h.ran_ms) / 1000 end as usual
      from unnest($1::int[], $2::text[], $3::int[]) as u (tenant_id, job_id, generation)
      left join lateral (select e.ran_ms
                         from (select * from mainspring.run_history n where n.job_id = u.job_id
                               order by n.run_id desc
                               limit 1000) as e
                         where e.tenant_id = u.tenant_id and e.generation = u.generation and e.state = {{SUCCESS}}
                         order by e.run_id desc
                         limit {{LAST_RUNS}}) as h on true
      group by u.tenant_id, u.job_id, u.generation) as t
where k.tenant_id = t.tenant_id and k.job_id = t.job_id and k.generation = t.generation
returning k.tenant_id, k.job_id, k.usual::float8 as usual

-- name: watch_long
-- guard: the lock; what was told is added.
insert into mainspring.watched_runs as w (run_id, tenant_id, job_id, told)
select u.run_id, u.tenant_id, u.job_id, {{TOLD_RAN_TOO_LONG}}
from unnest($1::uuid[], $2::int[], $3::text[]) as u (run_id, tenant_id, job_id)
on conflict (run_id) do update set told = w.told | excluded.told

-- name: set_silent
-- Jobs of which nothing is heard are SILENT, and others no longer: those that should have fired five minutes ago, and those
-- with a run that has been ready for an hour. Of each shard and lane the first 1,000 are looked at.
-- guard: the lock; state.
with silent as materialized (
    select distinct on (tenant_id, job_id) tenant_id, job_id, generation, reason
    from (
        select d.tenant_id, d.job_id, d.generation, 'it should have fired at ' || {{in_words(d.next_fire_at)}} as reason
        from generate_series(0, {{LAST_SHARD}}) as s (shard)
        cross join lateral (select j.tenant_id, j.job_id, j.generation, j.next_fire_at, j.one_time from mainspring.jobs j
                            where j.shard = s.shard and j.next_fire_at is not null
                              and j.next_fire_at < (select clock_timestamp()) - interval '300 seconds'
                            order by j.next_fire_at
                            limit 1000) as d
        where not d.one_time
        union all
        select j.tenant_id, j.job_id, j.generation,
               'its run for ' || {{in_words(q.scheduled_for)}} || ' has been ready for an hour and nobody runs it'
        from mainspring.lanes l
        cross join lateral (select r.tenant_id, r.job_id, r.generation, r.scheduled_for, r.spec from mainspring.runs r
                            where r.lane_id = l.lane_id and r.state = {{QUEUED}}
                              and r.ready_at < (select clock_timestamp()) - interval '1 hour'
                            order by r.ready_at
                            limit 1000) as q
        join mainspring.jobs j on j.tenant_id = q.tenant_id and j.job_id = q.job_id and j.generation = q.generation
                              and not j.one_time
        where q.job_id is not null
    ) as found
    order by tenant_id, job_id
), heard as (
    update mainspring.job_health h
    set state = coalesce(h.before, {{HEALTH_HEALTHY}}), since = (select clock_timestamp()), reason = null, before = null
    where h.state = {{HEALTH_SILENT}} and h.before is not null
      and not exists (select from silent s where s.tenant_id = h.tenant_id and s.job_id = h.job_id)
    returning 1
), forgotten as (
    delete from mainspring.job_health h
    where h.state = {{HEALTH_SILENT}} and h.before is null
      and not exists (select from silent s where s.tenant_id = h.tenant_id and s.job_id = h.job_id)
    returning 1
)
insert into mainspring.job_health as h (tenant_id, job_id, generation, state, since, reason)
select s.tenant_id, s.job_id, s.generation, {{HEALTH_SILENT}}, (select clock_timestamp()), s.reason from silent s
on conflict (tenant_id, job_id) do update
set generation = excluded.generation, state = excluded.state, since = excluded.since, reason = excluded.reason,
    usual = case when h.generation = excluded.generation then h.usual end,
    learned_at = case when h.generation = excluded.generation then h.learned_at end,
    before = case when h.generation = excluded.generation then h.state end
where h.state in ({{HEALTH_HEALTHY}}, {{HEALTH_LATE}}) or h.generation <> excluded.generation

-- name: prune_health
-- unguarded: a job that is gone has no health.
delete from mainspring.job_health h
where not exists (select from mainspring.jobs j
                  where j.tenant_id = h.tenant_id and j.job_id = h.job_id and j.generation = h.generation)

-- name: prune_watched
-- $1: what ended before it has been judged.
-- unguarded: the run has ended, and its end has been judged.
delete from mainspring.watched_runs w
where w.due_at is null and not exists (select from mainspring.runs r where r.run_id = w.run_id)
  and not exists (select from mainspring.run_history h where h.run_id = w.run_id and h.ended_at >= $1)

-- name: note_delays
-- Events of runs, where a rule of the tenant or of the job ($10) wants them.
-- unguarded: append-only; in the transaction that notes that they were told.
insert into mainspring.notable_events (tenant_id, event, subject, job_id, task, queue, path, reason, notify, labels)
select u.tenant_id, u.event, u.subject, u.job_id, u.task, u.queue, u.path, u.reason, u.notify::json, u.labels::json
from unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
            $10::boolean[], $11::text[])
    as u (tenant_id, event, subject, job_id, task, queue, path, reason, notify, own, labels)
where exists (select from mainspring.channels c where c.tenant_id = u.tenant_id)
  and (u.own or exists (select from mainspring.rules r where r.tenant_id = u.tenant_id and u.event = any (r.events)))

-- name: health_of_jobs
select h.job_id, h.generation, h.state, h.since, h.reason, h.usual::float8 as usual
from mainspring.job_health h
where h.tenant_id = $1 and h.job_id = any ($2::text[])
