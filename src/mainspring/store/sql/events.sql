-- Events that applications emit, and the runs that they start. The matcher notes in one transaction which jobs an event
-- starts, and that it is matched; the starter creates the runs under the lock of their job. So whatever is killed, an
-- event starts one run of each job: event_starts has one row for both, and its run is noted with the run.

-- name: insert_events
-- In the order of the request; an id that is stored already is left out. If an open transaction has inserted it, this
-- waits for its end, but not long.
-- unguarded: insert if absent.
with patience as materialized (
    select set_config('lock_timeout', '2s', true)
), stored as (
    insert into mainspring.events (tenant_id, event_id, name, key, payload, created_by, matched)
    select $1, e.event_id, e.name, e.key, e.payload::json, $6, true
    from patience, unnest($2::text[], $3::text[], $4::text[], $5::text[])
        with ordinality as e (event_id, name, key, payload, position)
    order by e.position
    on conflict do nothing
    returning seq, tenant_id, event_id
), to_match as (
    insert into mainspring.unmatched_events (seq, tenant_id, event_id)
    select s.seq, s.tenant_id, s.event_id from stored s
)
select event_id from stored

-- name: get_event
select e.event_id, e.seq, e.name, e.key, e.at, {{is_matched(e)}} as matched, e.payload::text as payload_text,
       {{creator}} as creator
from mainspring.events e
where e.tenant_id = $1 and e.event_id = $2

-- name: starts_of_event
select s.job_id, s.due_at, s.run_id, s.reason
from mainspring.event_starts s
where s.tenant_id = $1 and s.event_id = $2
order by s.job_id
limit $3

-- name: list_events
-- Newest first.
select e.event_id, e.seq, e.name, e.key, e.at, {{is_matched(e)}} as matched,
       (select count(*) from mainspring.event_starts s
        where s.tenant_id = e.tenant_id and s.event_id = e.event_id)::int as caused
from mainspring.events e
where e.tenant_id = $1 and ($2::bigint is null or e.seq < $2) and ($3::timestamptz is null or e.at >= $3)
  and ($4::timestamptz is null or e.at < $4)
order by e.seq desc
limit $5

-- name: list_events_by_name
-- The same of a name, and of a key if one is given.
select e.event_id, e.seq, e.name, e.key, e.at, {{is_matched(e)}} as matched,
       (select count(*) from mainspring.event_starts s
        where s.tenant_id = e.tenant_id and s.event_id = e.event_id)::int as caused
from mainspring.events e
where e.tenant_id = $1 and ($2::bigint is null or e.seq < $2) and ($3::timestamptz is null or e.at >= $3)
  and ($4::timestamptz is null or e.at < $4)
  and e.name = $6 and ($7::text is null or e.key = $7)
order by e.seq desc
limit $5

-- name: newest_of_name
select e.event_id, e.seq, e.tenant_id, e.name, e.key, e.at, e.payload::text as payload_text, false as marked
from mainspring.events e
where e.tenant_id = $1 and e.name = $2
order by e.seq desc
limit $3

-- name: only_matcher
-- One process matches at a time, so that events start runs in the order in which they arrived.
select pg_try_advisory_xact_lock({{lock_key('events')}})

-- name: events_to_match
-- The oldest that are not matched, of all tenants. marked: it was stored by a server of before, and has a mark of its own.
select f.event_id, f.seq, f.tenant_id, f.name, f.key, f.at, f.payload::text as payload_text, f.marked
from (
    (select e.event_id, e.seq, e.tenant_id, e.name, e.key, e.at, e.payload, false as marked
     from (select u.seq, u.tenant_id, u.event_id from mainspring.unmatched_events u order by u.seq limit $1) as u
     cross join lateral (select o.* from mainspring.events o
                         where o.tenant_id = u.tenant_id and o.event_id = u.event_id offset 0) as e)
    union all
    (select e.event_id, e.seq, e.tenant_id, e.name, e.key, e.at, e.payload, true
     from mainspring.events e
     where not e.matched
     order by e.seq
     limit $1)
) as f
order by f.seq
limit $1

-- name: jobs_started_by
-- The jobs that events of these tenants and names start, those that are paused included.
select distinct j.tenant_id, j.job_id, j.generation, j.schedule::text as schedule_text
from unnest($1::int[], $2::text[]) as e (tenant_id, name)
join mainspring.jobs j on j.tenant_id = e.tenant_id and j.schedule ->> 'event' = e.name
where j.status in ({{JOB_SCHEDULED}}, {{JOB_PAUSED}}) and j.schedule ->> 'event' is not null

-- name: insert_starts
-- due_at: as many seconds from now as the schedule of the job says.
-- unguarded: the matcher alone inserts, with the events that it marks; a second row of an event and a job is refused.
insert into mainspring.event_starts (tenant_id, event_id, job_id, generation, seq, part, due_at)
select n.tenant_id, n.event_id, n.job_id, n.generation, n.seq, n.part, t.now + n.delay * interval '1 second'
from unnest($1::int[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::text[], $7::float8[])
    as n (tenant_id, event_id, job_id, generation, seq, part, delay)
cross join (select clock_timestamp() as now) as t

-- name: mark_matched
-- guard: it is not matched; the caller compares the count.
delete from mainspring.unmatched_events u
where u.seq = any ($1::bigint[])
returning u.seq

-- name: mark_matched_of_before
-- The same of events that servers of before have stored.
-- guard: it is not matched; the caller compares the count.
update mainspring.events e
set matched = true
from unnest($1::int[], $2::text[]) as m (tenant_id, event_id)
where e.tenant_id = m.tenant_id and e.event_id = m.event_id and not e.matched
returning e.seq

-- name: prune_events
-- The oldest of each tenant that are matched, start nothing any more, and end no wait.
-- guard: the age is compared again with a row that was changed meanwhile.
with old as materialized (
    select o.tenant_id, o.event_id
    from mainspring.tenants t
    cross join lateral (select e.tenant_id, e.event_id, e.seq, e.name, e.key, e.at, e.matched
                        from mainspring.events e
                        where e.tenant_id = t.tenant_id
                        order by e.seq
                        limit $2) as o
    where o.at < (select clock_timestamp()) - $1 * interval '1 day' and {{is_matched(o)}}
      and not exists (select from mainspring.event_starts s
                      where s.tenant_id = o.tenant_id and s.event_id = o.event_id and s.due_at is not null)
      and not exists (select from mainspring.waits w
                      where w.kind = {{WAIT_FOR_EVENT}} and w.tenant_id = o.tenant_id and w.name = o.name
                        and w.key = o.key and w.since <= o.at)
), starts as (
    delete from mainspring.event_starts s
    using old
    where s.tenant_id = old.tenant_id and s.event_id = old.event_id
)
delete from mainspring.events e
using old
where e.tenant_id = old.tenant_id and e.event_id = old.event_id and e.matched
returning e.seq

-- name: jobs_to_start
-- Jobs with events that are due, in the order of the most overdue one. Those that are paused wait until they are resumed.
select s.tenant_id, s.job_id
from mainspring.event_starts s
join mainspring.jobs j on j.tenant_id = s.tenant_id and j.job_id = s.job_id
where s.due_at <= (select clock_timestamp()) and j.status <> {{JOB_PAUSED}}
group by s.tenant_id, s.job_id
order by min(s.due_at)
limit $1

-- name: jobs_gone
-- Jobs that no longer exist, and that events were to start.
select distinct s.tenant_id, s.job_id
from mainspring.event_starts s
where s.due_at <= (select clock_timestamp())
  and not exists (select from mainspring.jobs j where j.tenant_id = s.tenant_id and j.job_id = s.job_id)
limit $1

-- name: starts_of_job
-- What is still to start of a job, in the order of the events, with these. The caller has locked the job.
select s.event_id, s.generation, s.seq, s.part, s.due_at, e.name, e.key, e.at, e.payload::text as payload_text
from mainspring.event_starts s
join mainspring.events e on e.tenant_id = s.tenant_id and e.event_id = s.event_id
where s.tenant_id = $1 and s.job_id = $2 and s.due_at is not null
order by s.seq
limit $3

-- name: note_starts
-- guard: it has not started; the caller has locked the job.
update mainspring.event_starts s
set due_at = null, run_id = n.run_id, reason = n.reason
from unnest($3::text[], $4::uuid[], $5::text[]) as n (event_id, run_id, reason)
where s.tenant_id = $1 and s.event_id = n.event_id and s.job_id = $2 and s.due_at is not null
returning s.seq

-- name: create_event_runs
-- Runs of a job that events start, beside whatever is alive: $4 with triggers $5, payloads $6 and specs $7.
-- creates: QUEUED, HELD
-- guard: generation and status of the job; the caller has locked it.
with new_run as materialized (
    select n.run_id, j.tenant_id, j.lane_id, j.max_attempts, false as exclusive, null::timestamptz as scheduled_for,
           j.job_id, j.generation, n.trigger, j.name, n.payload, n.spec, null::uuid as node_id, true as fired,
           j.edges & {{EDGES_FOLLOWED}} as edges, j.created_by
    from mainspring.jobs j
    cross join unnest($4::uuid[], $5::text[], $6::json[], $7::json[]) as n (run_id, trigger, payload, spec)
    where j.tenant_id = $1 and j.job_id = $2 and j.generation = $3 and j.status = {{JOB_SCHEDULED}}
), created as (
    {{create_runs_of_jobs(null::timestamptz)}}
    returning run_id, lane_id, held_key
)
select (select count(*) from created)::int as created,
       (select array_agg(lane_id) from created where held_key is null) as lanes, {{held_of_created}}
