-- Limits: lines, slots, and the admission of HELD runs. Who locks lines has locked or written the runs that it ends or
-- creates before, and locks all lines in one statement, by id. Heads of lines are locked after that, without waiting.

-- name: limits_known
-- Whether no server is left that does not know limits.
select exists (select from mainspring.schema_migrations where name = 'limits_known')

-- name: declare_limits
-- Limits as jobs and tasks declare them. What a person has set stays.
-- guard: the name is unique; a pinned row keeps its values.
insert into mainspring.limits as l (tenant_id, name, slots, strict)
select $1, g.name, g.slots, g.strict
from unnest($2::text[], $3::int[], $4::boolean[]) as g (name, slots, strict)
order by g.name
on conflict (tenant_id, name) do update
set slots = excluded.slots, strict = excluded.strict, updated_at = (select clock_timestamp())
where not l.pinned and (l.slots, l.strict) is distinct from (excluded.slots, excluded.strict)

-- name: declared_limits
-- The lock keeps them from being pruned until their lines are open.
select l.name, l.limit_id
from mainspring.limits l
where l.tenant_id = $1 and l.name = any ($2::text[])
order by l.limit_id
for key share

-- name: open_lines
-- unguarded: a line that exists stays as it is.
insert into mainspring.limit_keys (key_id, limit_id, key)
select k.key_id, k.limit_id, k.key
from unnest($1::bigint[], $2::int[], $3::text[]) as k (key_id, limit_id, key)
order by k.key_id
on conflict (key_id) do nothing

-- name: specs_in_lines
-- For lines that have no row: the tenant and the slots of a run that stands in each.
select k.key_id, r.tenant_id, r.spec::text as spec_text
from unnest($1::bigint[]) as k (key_id)
cross join lateral (
    select tenant_id, spec from mainspring.runs
    where held_key = k.key_id and state = {{HELD}}
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
-- The rows of limits are not locked: a change of one reaches the next admission.
select k.key_id, k.in_use, l.slots, l.strict
from mainspring.limit_keys k
join mainspring.limits l on l.limit_id = k.limit_id
where k.key_id = any ($1::bigint[])
order by k.key_id
for no key update of k

-- name: pick_heads
-- The first runs of lines that have room, locked. `first`: whether nobody stands before it; a run that another
-- transaction has locked is left out.
select h.run_id, f.key_id, h.held_rank, h.limit_keys, h.lane_id,
       h.run_id = (select r.run_id from mainspring.runs r
                   where r.held_key = f.key_id and r.state = {{HELD}} and r.wake_at is null
                   order by r.held_rank, r.run_id limit 1) as first
from unnest($1::bigint[], $2::int[]) as f (key_id, room)
cross join lateral (
    select r.run_id, r.held_rank, r.limit_keys, r.lane_id
    from mainspring.runs r
    where r.held_key = f.key_id and r.state = {{HELD}} and r.wake_at is null
    order by r.held_rank, r.run_id
    limit f.room
    for no key update skip locked
) as h

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

-- name: hold_back
-- A failed or snoozed run that gives up its slots while it backs off.
-- moves: RUNNING -> HELD
-- guard: fence and RUNNING; the caller has locked the row.
update mainspring.runs r
set state = {{HELD}}, fence = r.fence + 1, worker_id = null, claim_seq = null, claimed_at = null, started_at = null,
    snoozes = r.snoozes + o.snoozed, max_attempts = r.max_attempts + o.snoozed,
    last_error = coalesce(o.error, r.last_error), progress = null, progress_text = null, progress_number = null,
    ready_at = t.now + o.delay * interval '1 second', wake_at = t.now + o.delay * interval '1 second',
    held_key = r.limit_keys[1],
    held_rank = t.now + o.delay * interval '1 second' - {{boost(r)}},
    snoozed_until = case when o.snoozed > 0 then t.now + o.delay * interval '1 second' end, gates = null, adopted = null
from unnest($1::uuid[], $2::int[], $3::float8[], $4::text[], $5::smallint[]) as o (run_id, fence, delay, error, snoozed),
     (select clock_timestamp() as now) as t
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
-- counts as room. Returns the last line that was looked at as well.
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
       (k.key_id is null or i.slots is null or k.in_use < i.slots)
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
      and not exists (select from mainspring.runs r where r.held_key = k.key_id and r.state = {{HELD}} offset 0)
    order by k.used_at
    limit $2
    for update skip locked
)
delete from mainspring.limit_keys k using idle where k.key_id = idle.key_id and k.in_use = 0
returning k.key_id

-- name: prune_limits
-- Limits that were declared, and have had no line for $1 seconds.
-- guard: nobody opens a line of it now; what a person has set stays.
with idle as materialized (
    select l.limit_id
    from mainspring.limits l
    where not l.pinned and l.updated_at < (select clock_timestamp()) - $1 * interval '1 second'
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
-- Live runs of a job get another slot: those that are QUEUED or RUNNING own it, HELD ones need it too.
-- keeps: QUEUED, RUNNING, HELD
-- guard: the caller has locked the runs and the line.
with joined as (
    update mainspring.runs r
    set limit_keys = array(select distinct k from unnest(r.limit_keys || $2::bigint) as k order by k), exclusive = true
    where r.run_id = any ($1::uuid[]) and not ($2 = any (coalesce(r.limit_keys, '{}')))
      and r.state + 0 = any (array[{{QUEUED}}, {{RUNNING}}, {{HELD}}])
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
