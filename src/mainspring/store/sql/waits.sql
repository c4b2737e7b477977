-- Waits: steps that wait without a slot. Locks are taken in this order: the run, joins, runs that wait for them. The row of
-- the wait belongs to the run, and is written under its lock. For waits for events its time is set without it: when an
-- event is there, it is due at once, and whoever ends it finds the event. Two sides look, each after the commit of what
-- the other one looks for: the matcher of events for waits that have begun, and who sweeps for events that were there
-- before. So one of them sees both.

-- name: open_waits
-- Steps whose rule is met begin to wait. $3: their payloads with what their references stand for. $4: the kind of the
-- wait. $5, $6: it ends after so many seconds, or at this time. $8 to $10: the event that it waits for, its key, and from
-- how many seconds before now on it counts. started_at alone says since when: a run that was not
-- claimed is not shown as RUNNING.
-- keeps: WAITING
-- guard: fence and WAITING for a join: it begins once. The caller has locked the runs, and compares the count.
with begun as (
    update mainspring.runs r
    set waits_for = null, started_at = t.now, payload = coalesce(u.payload, r.payload),
        follows = coalesce(r.follows, 0) | {{FOLLOWS_WAIT}}
    from unnest($1::uuid[], $2::int[], $3::json[], $4::smallint[], $5::float8[], $6::timestamptz[], $7::json[],
                $8::text[], $9::text[], $10::float8[])
             as u (run_id, fence, payload, kind, seconds, until, about, name, key, since),
         (select clock_timestamp() as now) as t
    where r.run_id = u.run_id and r.fence = u.fence and r.state + 0 = {{WAITING}} and r.waits_for is not null
    returning r.run_id, r.tenant_id, u.kind, r.fence, t.now, u.seconds, u.until, u.about, u.name, u.key, u.since
)
insert into mainspring.waits (run_id, tenant_id, kind, fence, began_at, wake_at, about, name, key, since)
select b.run_id, b.tenant_id, b.kind, b.fence, b.now, coalesce(b.until, b.now + b.seconds * interval '1 second'), b.about,
       b.name, b.key, b.now - b.since * interval '1 second'
from begun b
returning extract(epoch from wake_at - began_at)::float8 as seconds

-- name: suspend_runs
-- Services that these runs have called answer later. $3: what is shown of the wait. $4: its timeout in seconds. If one has
-- answered already, the wait is due at once.
-- moves: RUNNING -> WAITING
-- guard: fence and RUNNING; the caller has locked the runs, and compares the count.
with begun as (
    update mainspring.runs r
    set state = {{WAITING}}, fence = r.fence + 1, worker_id = null, claim_seq = null, claimed_at = null, gates = null,
        adopted = null, alone = null, waits_for = null, started_at = coalesce({{started_at}}, r.claimed_at, t.now),
        follows = coalesce(r.follows, 0) | {{FOLLOWS_WAIT}}
    from unnest($1::uuid[], $2::int[], $3::json[], $4::float8[]) as u (run_id, fence, about, seconds),
         (select clock_timestamp() as now) as t
    where r.run_id = u.run_id and r.fence = u.fence and r.state + 0 = {{RUNNING}}
    returning r.run_id, r.tenant_id, r.fence, t.now, u.about, u.seconds
)
insert into mainspring.waits (run_id, tenant_id, kind, fence, began_at, wake_at, about)
select b.run_id, b.tenant_id, {{WAIT_FOR_CALLBACK}}, b.fence, b.now,
       case when exists (select from mainspring.callbacks c where c.run_id = b.run_id and c.fence = b.fence - 1) then b.now
            else b.now + b.seconds * interval '1 second' end, b.about
from begun b
returning run_id

-- name: lock_called
-- State and fence of a run that has not ended, locked.
select r.state, r.fence
from mainspring.runs r
where r.run_id = $1
for no key update of r

-- name: keep_callback
-- What the service has sent that attempt $2 of the run has called. $4: the run waits for it, and is due.
-- guard: once for each attempt; the caller has locked the run.
with kept as (
    insert into mainspring.callbacks (run_id, fence, body)
    values ($1, $2, $3::json)
    on conflict do nothing
    returning run_id
), due as (
    update mainspring.waits w
    set wake_at = (select clock_timestamp())
    from kept k
    where w.run_id = k.run_id and w.kind = {{WAIT_FOR_CALLBACK}} and w.fence = $2 + 1 and $4
)
select count(*)::int from kept

-- name: forget_callbacks
-- Those of runs that have ended otherwise, or in another attempt.
-- guard: the run has ended, or another attempt of it is the last.
delete from mainspring.callbacks
where (run_id, fence) in (select c.run_id, c.fence
                          from mainspring.callbacks c
                          where c.at < (select clock_timestamp()) - interval '1 minute'
                            and not exists (select from mainspring.runs r
                                            where r.run_id = c.run_id and r.fence in (c.fence, c.fence + 1))
                          order by c.at
                          limit $1)

-- name: callback_key
-- The key of the installation. The first one that is given is kept.
-- unguarded: insert if absent.
with made as (
    insert into mainspring.callback_key (key) values ($1)
    on conflict do nothing
    returning key
)
select key from made
union all
select key from mainspring.callback_key
limit 1

-- name: due_waits
-- DueWait in store/waits.py: waits whose time has come, with their runs locked. Those that another process has locked are
-- left to it. The array keeps the planner from joining all waits and runs, of which it takes a third for due. With the
-- first event that it has waited for; a payload of more than $2 bytes is left out.
select r.run_id, r.fence, r.attempt, w.kind, w.about::text as about_text, e.event_id, e.name as event_name,
       e.key as event_key, e.at as event_at, e.payload_text, e.left_out, c.body::text as callback_text
from mainspring.runs r
join mainspring.waits w on w.run_id = r.run_id
left join mainspring.callbacks c on w.kind = {{WAIT_FOR_CALLBACK}} and c.run_id = w.run_id and c.fence = w.fence - 1
left join lateral (
    select v.event_id, v.name, v.key, v.at,
           case when octet_length(v.payload::text) <= $2 then v.payload::text end as payload_text,
           coalesce(octet_length(v.payload::text) > $2, false) as left_out
    from mainspring.events v
    where w.kind = {{WAIT_FOR_EVENT}} and v.tenant_id = w.tenant_id and v.name = w.name and v.key = w.key
      and v.at >= w.since
    order by v.at
    limit 1) as e on true
where r.run_id = any (array(select d.run_id
                            from mainspring.waits d
                            where d.wake_at is not null and d.wake_at <= (select clock_timestamp())
                            order by d.wake_at
                            limit $1))
  and r.fence = w.fence and r.state + 0 = {{WAITING}}
order by r.run_id
for no key update of r skip locked

-- name: next_wake
-- In how many seconds the next wait ends. Less than zero: it is late, or its run is locked.
select extract(epoch from w.wake_at - (select clock_timestamp()))::float8
from mainspring.waits w
where w.wake_at is not null
order by w.wake_at
limit 1

-- name: mark_waits
-- Events have come, with the newest time of each: what waits for them is due.
-- guard: an event that came before the time from which on one counts is none; what is due already is left as it is.
with hit as materialized (
    select w.run_id
    from unnest($1::int[], $2::text[], $3::text[], $4::timestamptz[]) as e (tenant_id, name, key, at)
    cross join lateral (select o.run_id
                        from mainspring.waits o
                        where o.kind = {{WAIT_FOR_EVENT}} and o.tenant_id = e.tenant_id and o.name = e.name
                          and o.key = e.key and o.since <= e.at
                          and (o.wake_at is null or o.wake_at > (select clock_timestamp()))
                        for no key update) as w
)
update mainspring.waits w
set wake_at = t.now
from hit, (select clock_timestamp() as now) as t
where w.run_id = hit.run_id
returning w.run_id

-- name: look_for_events
-- Waits that have begun look once for events that came before: if there is one, they are due. Those that another process
-- has locked are left to it, or to the next round.
-- guard: it has not looked.
with new as materialized (
    select o.run_id
    from mainspring.waits o
    where o.kind = {{WAIT_FOR_EVENT}} and not o.looked
    order by o.run_id
    limit $1
    for no key update skip locked
)
update mainspring.waits w
set looked = true,
    wake_at = case when exists (select from mainspring.events e
                                where e.tenant_id = w.tenant_id and e.name = w.name and e.key = w.key
                                  and e.at >= w.since)
                   then least(w.wake_at, t.now) else w.wake_at end
from new, (select clock_timestamp() as now) as t
where w.run_id = new.run_id and not w.looked
returning w.run_id

-- name: close_waits
-- guard: the caller has ended the runs in this transaction.
with callbacks as (
    delete from mainspring.callbacks where run_id = any ($1::uuid[])
), children as (
    update mainspring.child_runs c
    set state = {{closed_child(c)}}
    where c.run_id = any ($1::uuid[]) and c.state in ({{CHILD_TO_START}}, {{CHILD_RUNNING}}, {{CHILD_ENDED}})
)
delete from mainspring.waits where run_id = any ($1::uuid[])

-- name: forget_waits
-- Waits of runs that servers without waits have ended.
-- guard: the run is gone.
delete from mainspring.waits
where run_id = any (array(select w.run_id
                          from mainspring.waits w
                          where w.wake_at is not null and w.wake_at <= (select clock_timestamp()) - interval '1 minute'
                            and not exists (select from mainspring.runs r where r.run_id = w.run_id)
                          order by w.wake_at
                          limit $1))

-- name: waits_by_run
-- OpenWait in store/waits.py: those of these runs that wait.
select w.run_id, w.kind, w.began_at, w.wake_at, w.about::text as about_text, c.child
from mainspring.waits w
left join mainspring.child_runs c on w.kind = {{WAIT_FOR_WORKFLOW}} and c.run_id = w.run_id
where w.run_id = any ($1::uuid[])

-- name: lock_wait
-- LockedWait in store/waits.py: the run $2 of the tenant, locked, if it waits for something of the kind $3.
select r.run_id, r.fence, r.attempt, w.about::text as about_text
from mainspring.runs r
join mainspring.waits w on w.run_id = r.run_id
where r.run_id = $2 and r.tenant_id = $1 and w.kind = $3 and r.fence = w.fence and r.state + 0 = {{WAITING}}
for no key update of r

-- name: open_approvals
-- ApprovalRow in store/waits.py: those of the tenant with runs before $2, newest first, at most $3.
select w.run_id, r.lane_id, r.job_id, r.trigger, r.name, w.began_at, w.wake_at, w.about::text as about_text,
       r.spec::text as spec_text
from mainspring.waits w
join mainspring.runs r on r.run_id = w.run_id
where w.tenant_id = $1 and w.kind = {{WAIT_FOR_APPROVAL}} and ($2::uuid is null or w.run_id < $2)
order by w.run_id desc
limit $3
