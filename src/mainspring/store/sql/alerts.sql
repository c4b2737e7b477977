-- Alerts: what rules have to tell, and have told. One process at a time works on them, under a lock.

-- name: alert_lock
-- One server at a time compares what has happened with the rules. Until the end of the transaction.
select pg_try_advisory_xact_lock({{lock_key('notifications')}})

-- name: seen_until
select seen_until from mainspring.notification_watermark

-- name: move_seen
-- guard: seen_until.
update mainspring.notification_watermark set seen_until = $2 where seen_until = $1

-- name: stop_watching
-- The last channel is gone.
-- guard: there is no channel.
delete from mainspring.notification_watermark where not exists (select from mainspring.channels)

-- name: watching_tenants
select distinct tenant_id from mainspring.channels

-- name: ended_runs
-- The runs of the tenants $3 that ended from $1 on and before $2, by lane and job: those that failed, and those that
-- succeeded and of which a rule may want to know: all of the tenants $4, those with rules of their own, and those of jobs
-- that have failed before.
select h.tenant_id, l.queue, l.task, h.job_id, h.failed, h.notify_text, h.labels_text, count(*) as count,
       bool_or(h.exhausted) as exhausted, min(h.ended_at) as first_at, max(h.ended_at) as last_at,
       (array_agg(h.run_id order by h.ended_at desc))[1] as run_id,
       (array_agg(h.words order by h.ended_at desc))[1] as words
from (select r.tenant_id, r.lane_id, r.job_id, r.state = {{FAILED}} as failed, (r.spec -> 'notify')::text as notify_text,
             (r.spec -> 'labels')::text as labels_text, r.attempt >= r.max_attempts as exhausted, r.ended_at, r.run_id,
             left(coalesce(r.error, r.reason), 500) as words
      from mainspring.run_history r
      where r.ended_at >= $1 and r.ended_at < $2 and r.tenant_id = any ($3::int[])
        and (r.state = {{FAILED}}
             or (r.state = {{SUCCESS}}
                 and (r.tenant_id = any ($4::int[]) or strpos(r.spec::text, '"notify"') > 0
                      or exists (select from mainspring.alerts a
                                 where a.tenant_id = r.tenant_id and a.job_id = r.job_id and a.closed_at is null))))) as h
join mainspring.lanes l on l.lane_id = h.lane_id
group by h.tenant_id, l.queue, l.task, h.job_id, h.failed, h.notify_text, h.labels_text

-- name: missed_jobs
-- The jobs of the tenants $3 whose fires were recorded as missed from $1 on and before $2.
select m.tenant_id, l.queue, l.task, m.job_id, (j.spec -> 'notify')::text as notify_text,
       (j.spec -> 'labels')::text as labels_text, sum(m.count)::bigint as count, min(m.recorded_at) as first_at,
       max(m.recorded_at) as last_at, max(m.reason) as words
from mainspring.missed_fires m
join mainspring.jobs j on j.tenant_id = m.tenant_id and j.job_id = m.job_id
join mainspring.lanes l on l.lane_id = j.lane_id
where m.recorded_at >= $1 and m.recorded_at < $2 and m.tenant_id = any ($3::int[])
group by m.tenant_id, l.queue, l.task, m.job_id, (j.spec -> 'notify')::text, (j.spec -> 'labels')::text

-- name: take_events
-- guard: the lock; a row that is not committed yet is taken the next time.
with taken as (
    delete from mainspring.notable_events
    where event_id in (select event_id from mainspring.notable_events order by event_id limit $1)
    returning tenant_id, event, subject, job_id, task, queue, path, reason, happened_at, notify, labels
)
select tenant_id, event, subject, job_id, task, queue, path, reason, happened_at, notify::text as notify_text,
       labels::text as labels_text
from taken order by happened_at

-- name: note_worker
-- A rule of the tenant wants to know of lost workers. A worker of all tenants concerns the default tenant.
-- unguarded: append-only; in the transaction of the cause.
insert into mainspring.notable_events (tenant_id, event, subject, path, reason)
select greatest(w.tenant_id, {{DEFAULT_TENANT}}), 'worker_lost', 'worker ' || w.name, '/ui/workers', $2
from mainspring.workers w
where w.worker_id = $1
  and exists (select from mainspring.rules r
              where r.tenant_id = greatest(w.tenant_id, {{DEFAULT_TENANT}}) and 'worker_lost' = any (r.events))

-- name: note_breakers
-- $2: whether they opened, or closed again.
-- unguarded: append-only; in the transaction of the cause.
insert into mainspring.notable_events (tenant_id, event, subject, path, reason)
select l.tenant_id, e.event, l.name, '/ui/limits', case when $2 then k.failed || ' failures in a row' end
from mainspring.limit_keys k
join mainspring.limits l on l.limit_id = k.limit_id
cross join (select case when $2 then 'breaker_opened' else 'breaker_closed' end as event) as e
where k.key_id = any ($1::bigint[])
  and exists (select from mainspring.rules r where r.tenant_id = l.tenant_id and e.event = any (r.events))

-- name: note_approvals
-- Steps that have begun to wait for people, with a link to the page on which they are decided.
-- unguarded: append-only; in the transaction of the cause.
insert into mainspring.notable_events (tenant_id, event, subject, job_id, path, reason)
select r.tenant_id, 'approval_waits', 'step ' || coalesce(r.job_id, r.name), r.job_id, '/ui/runs/' || r.run_id,
       (w.about ->> 'name') || case when w.wake_at is null then ''
           else ', until ' || to_char(w.wake_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') end
from mainspring.waits w
join mainspring.runs r on r.run_id = w.run_id
where w.run_id = any ($1::uuid[]) and w.kind = {{WAIT_FOR_APPROVAL}}
  and exists (select from mainspring.rules u where u.tenant_id = r.tenant_id and 'approval_waits' = any (u.events))

-- name: note_event
-- An event of a tenant, if a rule of it wants it.
-- unguarded: append-only; in the transaction of the cause.
insert into mainspring.notable_events (tenant_id, event, subject, job_id, path, reason)
select $1, $2, $3, $4, $5, $6
where exists (select from mainspring.rules r where r.tenant_id = $1 and $2 = any (r.events))

-- name: raise_alerts
-- Adds to alerts, or begins them. $11: when there is something to do; for what lasts and was told, nothing changes.
-- guard: the lock.
insert into mainspring.alerts as a
    (tenant_id, grp, event, subject, channels, job_id, item, opened_at, last_at, count, due_at)
select u.tenant_id, u.grp, u.event, u.subject,
       case when u.channels is not null then array(select json_array_elements_text(u.channels::json)) end, u.job_id,
       u.item::json, u.opened_at, u.last_at, u.count, u.due_at
from unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[],
            $9::timestamptz[], $10::bigint[], $11::timestamptz[])
    as u (tenant_id, grp, event, subject, channels, job_id, item, opened_at, last_at, count, due_at)
on conflict (tenant_id, grp, event, subject) do update
set item = excluded.item, last_at = greatest(a.last_at, excluded.last_at), count = a.count + excluded.count,
    closed_at = null, due_at = least(a.due_at, excluded.due_at)

-- name: close_alerts
-- The jobs ($1, $2) succeeded at $3, after they had failed; $4: now there is something to do.
-- guard: the lock; last_at.
update mainspring.alerts a
set closed_at = u.at, due_at = $4
from unnest($1::int[], $2::text[], $3::timestamptz[]) as u (tenant_id, job_id, at)
where a.tenant_id = u.tenant_id and a.job_id = u.job_id and a.closed_at is null and a.last_at < u.at
  and a.event = any ($5::text[])

-- name: close_condition
-- guard: the lock; it has not been closed.
update mainspring.alerts
set closed_at = $5, due_at = $5
where tenant_id = $1 and grp = $2 and event = $3 and subject = $4 and closed_at is null

-- name: due_alerts
-- Those that are due, and with them what else the same groups have not told yet.
with due as materialized (
    select distinct tenant_id, grp from mainspring.alerts where due_at <= $1
)
select {{alert_columns}}
from due d
join mainspring.alerts a on a.tenant_id = d.tenant_id and a.grp = d.grp
where a.due_at <= $1 or a.told_at is null
order by a.tenant_id, a.grp, a.opened_at, a.subject
limit $2

-- name: set_alerts
-- guard: the lock.
update mainspring.alerts a
set told_at = u.told_at, escalated_at = u.escalated_at, due_at = u.due_at
from unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[])
    as u (tenant_id, grp, event, subject, told_at, escalated_at, due_at)
where a.tenant_id = u.tenant_id and a.grp = u.grp and a.event = u.event and a.subject = u.subject

-- name: delete_alerts
-- guard: the lock.
delete from mainspring.alerts a
using unnest($1::int[], $2::text[], $3::text[], $4::text[]) as u (tenant_id, grp, event, subject)
where a.tenant_id = u.tenant_id and a.grp = u.grp and a.event = u.event and a.subject = u.subject

-- name: told_groups
select g.tenant_id, g.grp, g.told_at from mainspring.alert_groups g where (g.tenant_id, g.grp) in
    (select u.tenant_id, u.grp from unnest($1::int[], $2::text[]) as u (tenant_id, grp))

-- name: group_told
-- guard: the lock.
insert into mainspring.alert_groups (tenant_id, grp, told_at) values ($1, $2, $3)
on conflict (tenant_id, grp) do update set told_at = excluded.told_at

-- name: acknowledge_alerts
-- What the group was told until $3 and has not recovered.
-- guard: told_at; it is not acknowledged.
update mainspring.alerts
set acknowledged_at = (select clock_timestamp()), acknowledged_by = $4
where tenant_id = $1 and grp = $2 and told_at <= $3 and acknowledged_at is null

-- name: forget_group
-- guard: the caller has deleted its rule.
delete from mainspring.alerts where tenant_id = $1 and grp = $2

-- name: make_due
-- guard: the caller has locked its rule.
update mainspring.alerts set due_at = (select clock_timestamp()) where tenant_id = $1 and grp = $2

-- name: prune_groups
-- unguarded: a group that is told again has a new row.
delete from mainspring.alert_groups where told_at < (select clock_timestamp()) - $1 * interval '1 second'

