-- Limits: lines, slots, and the admission of HELD runs. Who locks lines has locked or written the runs that it ends or
-- creates before, and locks all lines in one statement, by id. Heads of lines are locked after that, without waiting.

-- name: declare_limits
-- Limits as jobs and tasks declare them. What a person has set stays, unless the order becomes strict. The
-- strict order of a limit that several jobs share stays: only a person ends it.
-- guard: the name is unique; a pinned row keeps its number, and a strict one its order.
insert into mainspring.limits as l (tenant_id, name, slots, declared, strict, every, burst, failures, open_for)
select $1, g.name, g.slots, g.slots, g.strict, g.every, g.burst, g.failures, g.open_for
from unnest($2::text[], $3::int[], $4::boolean[], $5::float8[], $6::int[], $7::int[], $8::float8[])
    as g (name, slots, strict, every, burst, failures, open_for)
order by g.name
on conflict (tenant_id, name) do update
set slots = case when l.pinned and not excluded.strict then l.slots else excluded.slots end,
    pinned = l.pinned and not excluded.strict, declared = excluded.declared, strict = excluded.strict,
    every = excluded.every, burst = excluded.burst, failures = excluded.failures, open_for = excluded.open_for,
    updated_at = (select clock_timestamp())
where not (l.strict and not excluded.strict and l.name like 'task:%')

-- name: declared_limits
-- The lock keeps them from being pruned until their lines are open.
select l.name, l.limit_id, l.declared, l.strict, l.every, l.burst, l.failures, l.open_for
from mainspring.limits l
where l.tenant_id = $1 and l.name = any ($2::text[])
order by l.limit_id
for key share

-- name: restore_limits
-- Limits that a run needs and that were pruned.
-- unguarded: a limit that exists stays as it is.
insert into mainspring.limits (tenant_id, name, slots, declared, strict, every, burst, failures, open_for)
select $1, g.name, g.slots, g.slots, g.strict, g.every, g.burst, g.failures, g.open_for
from unnest($2::text[], $3::int[], $4::boolean[], $5::float8[], $6::int[], $7::int[], $8::float8[])
    as g (name, slots, strict, every, burst, failures, open_for)
order by g.name
on conflict (tenant_id, name) do nothing

-- name: open_lines
-- unguarded: a line that exists stays as it is.
insert into mainspring.limit_keys (key_id, limit_id, key)
select k.key_id, k.limit_id, k.key
from unnest($1::bigint[], $2::int[], $3::text[]) as k (key_id, limit_id, key)
order by k.key_id
on conflict (key_id) do nothing

-- name: specs_in_lines
-- For lines that have no row: the tenant and the slots of a run that needs each, and stands in one of the lines $2.
select k.key_id, r.tenant_id, r.spec::text as spec_text
from unnest($1::bigint[]) as k (key_id)
cross join lateral (
    select tenant_id, spec from mainspring.runs
    where held_key = any ($2::bigint[]) and state = {{HELD}} and k.key_id = any (limit_keys)
    limit 1
) as r

-- name: lines_of_heads
-- The lines that the first runs of these lines need, without locks: at most $2 runs of each.
select distinct k.key_id
from unnest($1::bigint[]) as f (key_id)
cross join lateral (
    select r.limit_keys
    from mainspring.runs r
    where r.held_key = f.key_id and r.state = {{HELD}} and r.wake_at is null
    order by r.held_rank, r.run_id
    limit $2
) as h
cross join lateral unnest(h.limit_keys) as k (key_id)

-- name: lock_lines
-- The rows of limits are not locked: a change of one reaches the next admission. `changed_at`: when the limit was changed
-- last. If this had to wait for a lock, the limit may have changed since; pick_heads finds out.
select k.key_id, k.in_use, l.slots, l.strict, l.every, l.burst, l.failures, l.open_for, k.tat, k.next_at, k.failed,
       k.opened_at, k.probe, (select clock_timestamp()) as now, l.updated_at as changed_at
from mainspring.limit_keys k
join mainspring.limits l on l.limit_id = k.limit_id
where k.key_id = any ($1::bigint[])
order by k.key_id
for no key update of k

-- name: pick_heads
-- The first runs of lines that have room, by rank, locked; a run that another transaction has locked is left out.
-- `changed`: see limits_changed.
select h.run_id, f.key_id, h.held_rank, h.limit_keys, h.lane_id, {{limits_changed($3, $4)}} as changed
from unnest($1::bigint[], $2::int[]) as f (key_id, room)
cross join lateral (
    select r.run_id, r.held_rank, r.limit_keys, r.lane_id
    from mainspring.runs r
    where r.held_key = f.key_id and r.state = {{HELD}} and r.wake_at is null
    order by r.held_rank, r.run_id
    limit f.room
    for no key update skip locked
) as h

-- name: pick_firsts
-- `first_id`: the first of all runs that need a slot of a strict line. The other columns are null unless it
-- can be admitted here: it stands in the line, does not back off, and is locked now.
select h.run_id, f.key_id, h.held_rank, h.limit_keys, h.lane_id, {{limits_changed($2, $3)}} as changed, e.first_id
from unnest($1::bigint[]) as f (key_id)
left join lateral ({{first_in_order(f.key_id)}}) as o on true
cross join lateral (
    select coalesce(mainspring.first_elsewhere(f.key_id, coalesce(o.fresh, true), coalesce(o.submitted_at, 'infinity')),
                    o.run_id) as first_id
    offset 0  -- once for each line
) as e
left join lateral (
    select r.run_id, r.held_rank, r.limit_keys, r.lane_id
    from mainspring.runs r
    where r.run_id = e.first_id and r.held_key = f.key_id and r.state + 0 = {{HELD}} and r.wake_at is null
    for no key update skip locked
) as h on true

-- name: admit
-- Admit runs ($1), move others to the line of a limit that is full ($2, $3), and count ($4, $5).
-- moves: HELD -> QUEUED
-- keeps: HELD
-- guard: the caller has locked the runs as HELD, and the lines; it compares the counts.
with admitted as (
    update mainspring.runs r
    set state = {{QUEUED}}, held_key = null, held_rank = null, ready_at = (select clock_timestamp())
    where r.run_id = any ($1::uuid[]) and r.state + 0 = {{HELD}}
    returning r.lane_id
), moved as (
    update mainspring.runs r
    set held_key = m.key_id
    from unnest($2::uuid[], $3::bigint[]) as m (run_id, key_id)
    where r.run_id = m.run_id and r.state + 0 = {{HELD}}
    returning r.run_id
), counted as (
    update mainspring.limit_keys k
    set in_use = k.in_use + c.change, used_at = (select clock_timestamp())
    from unnest($4::bigint[], $5::int[]) as c (key_id, change)
    where k.key_id = c.key_id
    returning k.key_id
)
select (select array_agg(lane_id) from admitted) as lanes, (select count(*) from moved)::int as moved,
       (select count(*) from counted)::int as counted

-- name: unstarted
-- How many runs of each line have a token of its rate, and have not started as far as known: at most $2 of each.
select k.key_id,
       (select count(*) from (
            select from mainspring.runs r
            where r.rate_keys[1] = k.key_id and r.rate_keys is not null and r.started_at is null
            limit $2) as first)::int
       + (select count(*) from (
            select from mainspring.runs r
            where r.rate_keys[2] = k.key_id and r.rate_keys[2] is not null and r.started_at is null
            limit $2) as second)::int as unstarted
from unnest($1::bigint[]) as k (key_id)

-- name: admit_once
-- Admit runs ($1) with a rate or a circuit breaker. $2: when each may start. $3, $4: the lines that have a rate, and those
-- that have a breaker. The place in the line is kept for a run that is returned, lost or taken back.
-- moves: HELD -> QUEUED
-- guard: the caller has locked the runs as HELD, and the lines; it compares the counts.
update mainspring.runs r
set state = {{QUEUED}}, held_key = null, ready_at = a.at,
    rate_keys = nullif(array(select k from unnest(r.limit_keys) as k where k = any ($3::bigint[])), '{}'),
    breaker_key = (select k from unnest(r.limit_keys) as k where k = any ($4::bigint[]) limit 1)
from unnest($1::uuid[], $2::timestamptz[]) as a (run_id, at)
where r.run_id = a.run_id and r.state + 0 = {{HELD}}
returning r.lane_id, extract(epoch from r.ready_at - (select clock_timestamp()))::float8 as delay

-- name: pace_lines
-- guard: the caller has locked the lines.
update mainspring.limit_keys k
set tat = p.tat, next_at = p.next_at, used_at = (select clock_timestamp())
from unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) as p (key_id, tat, next_at)
where k.key_id = p.key_id
returning k.key_id

-- name: set_breakers
-- guard: the caller has locked the lines.
update mainspring.limit_keys k
set failed = b.failed, opened_at = b.opened_at, next_at = b.next_at, probe = b.probe, used_at = (select clock_timestamp())
from unnest($1::bigint[], $2::int[], $3::timestamptz[], $4::timestamptz[], $5::uuid[])
    as b (key_id, failed, opened_at, next_at, probe)
where k.key_id = b.key_id
returning k.key_id

-- name: live_probes
-- Which of these runs are admitted and have not ended.
select r.run_id from mainspring.runs r where r.run_id = any ($1::uuid[]) and r.state + 0 in ({{QUEUED}}, {{RUNNING}})

-- name: due_lines
-- Lines whose time to be looked at has come, at most $1.
select k.key_id
from mainspring.limit_keys k
where k.next_at is not null and k.next_at <= (select clock_timestamp())
order by k.next_at
limit $1

-- name: open_breakers
-- Lines after $1 whose breaker is open, at most $2.
select k.key_id from mainspring.limit_keys k where k.opened_at is not null and k.key_id > $1 order by k.key_id limit $2

-- name: take_back
-- Runs that were admitted before the breaker of the line $1 opened stand in the line again, at most $2. Returns the slots
-- that they give back.
-- moves: QUEUED -> HELD
-- guard: the rows are locked as QUEUED in the same statement, and the state is checked again. If the breaker was closed
-- meanwhile, or the run is its probe, the caller's look at the line admits it again.
with picked as materialized (
    select r.ctid as tid
    from mainspring.runs r
    where r.breaker_key = $1 and r.breaker_key is not null and r.state + 0 = {{QUEUED}}
      and exists (select from mainspring.limit_keys k
                  where k.key_id = $1 and k.opened_at is not null and k.probe is distinct from r.run_id)
    limit $2
    for no key update skip locked
)
update mainspring.runs r
set state = {{HELD}}, held_key = $1, held_rank = coalesce(r.held_rank, r.ready_at - {{boost(r)}}), rate_keys = null,
    breaker_key = null
where r.ctid = any (array(select tid from picked)) and r.state + 0 = {{QUEUED}}
returning r.limit_keys

-- name: hold_back
-- A run that gives up its slots: it failed or was snoozed, and backs off. Or an attempt has used up a slot that the next
-- one must get again (a rate, a circuit breaker): also after a loss, and if it was returned unstarted. A run that need not
-- wait stands in its line at once. $9: the end of the attempt, from which the delay counts.
-- moves: RUNNING -> HELD
-- guard: fence and RUNNING; the caller has locked the row.
update mainspring.runs r
set state = {{HELD}}, attempt = r.attempt - o.given_back, fence = r.fence + 1, worker_id = null, claim_seq = null,
    claimed_at = null, started_at = null, losses = r.losses + o.lost,
    snoozes = r.snoozes + o.snoozed, max_attempts = r.max_attempts + o.lost + o.snoozed,
    last_error = coalesce(o.error, r.last_error), progress = null, progress_text = null, progress_number = null, usage = null,
    rate_keys = null, breaker_key = null, alone = case when o.given_back > 0 then r.alone else o.alone end,
    ready_at = t.now + o.delay * interval '1 second',
    wake_at = case when o.delay > 0 then t.now + o.delay * interval '1 second' end,
    held_key = r.limit_keys[1],
    held_rank = case when o.delay > 0 then t.now + o.delay * interval '1 second' - {{boost(r)}}
                     else coalesce(r.held_rank, r.ready_at - {{boost(r)}}) end,
    snoozed_until = case when o.snoozed > 0 then t.now + o.delay * interval '1 second' end, gates = null,
    adopted = null
from unnest($1::uuid[], $2::int[], $3::float8[], $4::text[], $5::smallint[], $6::smallint[], $7::smallint[], $8::boolean[])
         as o (run_id, fence, delay, error, snoozed, lost, given_back, alone),
     (select coalesce($9::timestamptz, (select clock_timestamp())) as now) as t
where r.run_id = o.run_id and r.fence = o.fence and r.state + 0 = {{RUNNING}} and r.limit_keys is not null
returning r.run_id, r.limit_keys

-- name: wake
-- Runs whose backoff is over stand in their line again. Returns the lines.
-- keeps: HELD
-- guard: the rows are locked as HELD in the same statement.
with due as materialized (
    select r.ctid as tid
    from mainspring.runs r
    where r.wake_at is not null and r.wake_at <= (select clock_timestamp()) and r.state + 0 = {{HELD}}
    order by r.wake_at
    limit $1
    for no key update skip locked
)
update mainspring.runs r
set wake_at = null
where r.ctid = any (array(select tid from due)) and r.state + 0 = {{HELD}}
returning r.held_key

-- name: lines_with_room
-- Lines in which runs are HELD although the limit has room, after $1, at most $2 lines are looked at. A missing row
-- counts as room. A line that is looked at later (due_lines) counts as full, unless its rate has become faster meanwhile.
-- So do one whose probe lives, and a strict one whose first run backs off. Returns the last line that was looked at as well.
with recursive line as (
    (select held_key from mainspring.runs
     where held_key is not null and state = {{HELD}} and held_key > $1
     order by held_key limit 1)
    union all
    select (select r.held_key from mainspring.runs r
            where r.held_key is not null and r.state = {{HELD}} and r.held_key > l.held_key
            order by r.held_key limit 1)
    from line l
    where l.held_key is not null
), looked as (
    select held_key from line where held_key is not null limit $2
)
select l.held_key,
       (k.key_id is null or ((i.slots is null or k.in_use < i.slots)
                             and (k.next_at is null
                                  or i.every is not null and k.next_at > (select clock_timestamp())
                                      + greatest(i.every, {{LONGEST_LOOK}}) * interval '1 second')
                             and (k.probe is null or not exists (select from mainspring.runs r
                                                                 where r.run_id = k.probe and r.state + 0 <> {{HELD}}
                                                                 offset 0))
                             and (not i.strict or (select o.wake_at from ({{first_in_order(l.held_key)}}) as o) is null)))
       and exists (select from mainspring.runs r
                   where r.held_key = l.held_key and r.state = {{HELD}} and r.wake_at is null) as room
from looked l
left join mainspring.limit_keys k on k.key_id = l.held_key
left join mainspring.limits i on i.limit_id = k.limit_id

-- name: prune_lines
-- Lines that nobody has used for $1 seconds, at most $2. Whoever needs one again opens it again.
-- guard: nobody owns a slot; locked lines are left out.
with idle as materialized (
    select k.key_id
    from mainspring.limit_keys k
    where k.in_use = 0 and k.used_at < (select clock_timestamp()) - $1 * interval '1 second'
      and (k.tat is null or k.tat < (select clock_timestamp()))
      and (k.opened_at is null or k.used_at < (select clock_timestamp()) - interval '30 days')
      and not exists (select from mainspring.runs r where r.held_key = k.key_id and r.state = {{HELD}} offset 0)
    order by k.used_at
    limit $2
    for update skip locked
)
delete from mainspring.limit_keys k using idle where k.key_id = idle.key_id and k.in_use = 0
returning k.key_id

-- name: prune_limits
-- Limits that were declared, and have had no line for $1 seconds. The strict order of a task is kept for a year: jobs that
-- fire rarely count on it.
-- guard: nobody opens a line of it now; what a person has set stays.
with idle as materialized (
    select l.limit_id
    from mainspring.limits l
    where not l.pinned and l.updated_at < (select clock_timestamp()) - $1 * interval '1 second'
      and not (l.strict and l.name like 'task:%' and l.updated_at > (select clock_timestamp()) - interval '366 days')
      and not exists (select from mainspring.limit_keys k where k.limit_id = l.limit_id offset 0)
    limit $2
    for update skip locked
)
delete from mainspring.limits l
using idle
where l.limit_id = idle.limit_id
  and not exists (select from mainspring.limit_keys k where k.limit_id = l.limit_id offset 0)
returning l.limit_id

-- name: join_line
-- Live runs of a job get another slot: those that are QUEUED or RUNNING own it, and workflow runs at work. HELD ones need
-- it too.
-- keeps: QUEUED, RUNNING, WAITING, HELD
-- guard: the caller has locked the runs and the line.
with joined as (
    update mainspring.runs r
    set limit_keys = array(select distinct k from unnest(r.limit_keys || $2::bigint) as k order by k), exclusive = true
    where r.run_id = any ($1::uuid[]) and not ($2 = any (coalesce(r.limit_keys, '{}')))
      and (r.state + 0 = any (array[{{QUEUED}}, {{RUNNING}}, {{HELD}}])
           or r.state + 0 = {{WAITING}} and r.rule = {{CONTAINER}})
    returning r.state
)
update mainspring.limit_keys k
set in_use = k.in_use + (select count(*) from joined where state <> {{HELD}}), used_at = (select clock_timestamp())
where k.key_id = $2

-- name: leave_line
-- HELD runs of a job need a slot no longer: they are QUEUED, or HELD in another line.
-- moves: HELD -> QUEUED
-- keeps: HELD
-- guard: the caller holds the lock of the job, under which such runs are created; HELD is checked in the row.
with left_runs as (
    update mainspring.runs r
    set limit_keys = nullif(array_remove(r.limit_keys, $3), '{}'),
        held_key = (array_remove(r.limit_keys, $3))[1],
        state = case when cardinality(array_remove(r.limit_keys, $3)) > 0 then {{HELD}} else {{QUEUED}} end,
        held_rank = case when cardinality(array_remove(r.limit_keys, $3)) > 0 then r.held_rank end,
        ready_at = case when r.wake_at is null then (select clock_timestamp()) else r.ready_at end,
        wake_at = case when cardinality(array_remove(r.limit_keys, $3)) > 0 then r.wake_at end
    where r.tenant_id = $1 and r.job_id = $2 and r.state + 0 = {{HELD}} and $3 = any (r.limit_keys)
    returning r.lane_id, r.held_key
)
select lane_id, held_key from left_runs

-- name: lines_that_stand_still
-- Full lines in which runs wait, and in which nothing has changed for $1 seconds, the longest first.
select k.key_id
from mainspring.limit_keys k
join mainspring.limits l on l.limit_id = k.limit_id
where k.in_use > 0 and k.in_use >= l.slots and k.used_at < (select clock_timestamp()) - $1 * interval '1 second'
  and exists (select from mainspring.runs r
              where r.held_key = k.key_id and r.state = {{HELD}} and r.wake_at is null offset 0)
order by k.used_at
limit $2

-- name: owned_slots
-- How many runs own a slot of each of these lines. A WAITING run that has lines is a workflow run at work.
select s.key_id, count(*)::int
from mainspring.runs r
cross join lateral unnest(r.limit_keys) as s (key_id)
where r.limit_keys && $1::bigint[] and r.state in ({{QUEUED}}, {{RUNNING}}, {{WAITING}}) and s.key_id = any ($1)
group by s.key_id

-- name: correct_lines
-- $3: all lines that were looked at; they are looked at again later.
-- guard: the caller has locked the lines and counted after that.
update mainspring.limit_keys k
set in_use = coalesce(c.slots, k.in_use), used_at = (select clock_timestamp())
from unnest($3::bigint[]) as a (key_id)
left join unnest($1::bigint[], $2::int[]) as c (key_id, slots) on c.key_id = a.key_id
where k.key_id = a.key_id
