-- Joins: counters over the ends of parents, and the runs that wait for them. Locks are taken in this order: runs that end,
-- joins by id, runs that wait for them. Who cannot keep to it writes marks, and locks no join.

-- name: new_blocks
-- unguarded: numbers of a sequence.
select nextval('mainspring.join_blocks') as block from generate_series(1, $1::int)

-- name: insert_joins
-- unguarded: an insert under ids of a new block.
insert into mainspring.joins (join_id, total, ok, failed, skipped, blocked, cause)
select * from unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::int[], $6::int[], $7::text[])

-- name: count_ends
-- Count ends in joins that are not wide.
-- unguarded: each end is counted by the transaction that makes it; the rows are locked by id.
with t as materialized (
    select * from unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::int[], $6::text[])
        as t (join_id, ok, failed, skipped, blocked, cause)
), l as materialized (
    select join_id from mainspring.joins where join_id = any ($1::bigint[]) order by join_id for no key update
)
update mainspring.joins j
set ok = j.ok + t.ok, failed = j.failed + t.failed, skipped = j.skipped + t.skipped, blocked = j.blocked + t.blocked,
    cause = coalesce(j.cause, t.cause)
from t, l
where j.join_id = t.join_id and l.join_id = j.join_id
returning {{join_counts}}

-- name: mark_ends
-- The same for later. Whoever wrote a mark folds it after the commit.
-- unguarded: append-only; each end is marked by the transaction that makes it.
insert into mainspring.join_marks (join_id, ok, failed, skipped, blocked, cause)
select * from unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::int[], $6::text[])

-- name: marked_joins
-- Joins with marks after $1, at most $2. Each is found by one probe of the index, however many marks it has.
with recursive marked as (
    (select join_id from mainspring.join_marks where join_id > $1 order by join_id limit 1)
    union all
    select (select n.join_id from mainspring.join_marks n where n.join_id > m.join_id order by n.join_id limit 1)
    from marked m
    where m.join_id is not null
)
select join_id from marked where join_id is not null limit $2

-- name: lock_joins
-- By id. The fold follows as a statement of its own, so that it sees the marks of all who had the lock before.
select join_id from mainspring.joins where join_id = any ($1::bigint[]) order by join_id for no key update

-- name: fold_marks
-- Marks of joins that are gone are deleted too.
-- guard: the caller has locked the joins; a mark is counted by the transaction that deletes it.
with m as (
    delete from mainspring.join_marks
    where join_id = any ($1::bigint[])
    returning *
), s as (
    select m.join_id, sum(m.ok) as ok, sum(m.failed) as failed, sum(m.skipped) as skipped, sum(m.blocked) as blocked,
           min(m.cause) as cause
    from m
    group by m.join_id
)
update mainspring.joins j
set ok = j.ok + s.ok, failed = j.failed + s.failed, skipped = j.skipped + s.skipped, blocked = j.blocked + s.blocked,
    cause = coalesce(j.cause, s.cause)
from s
where j.join_id = s.join_id
returning {{join_counts}}

-- name: waiting_runs
-- The runs that wait for the joins $1 and whose rules are decided: the bits $2. At most $3, locked.
select w.*
from (select c.*
      from unnest($1::bigint[], $2::int[]) as d (join_id, decided)
      cross join lateral (
          select r.run_id, d.join_id, r.fence, r.attempt, r.rule, r.spec -> 'line' is not null as limited, r.follows
          from mainspring.runs r
          where r.waits_for = d.join_id and r.waits_for is not null and r.state = {{WAITING}}
            and d.decided >> (r.rule & {{RULE_BITS}}) & 1 = 1
          order by r.run_id
          limit $3
          for no key update of r
      ) as c
      limit $3) as w
order by w.run_id

-- name: to_resolve
-- What the payloads of these runs are made of. The caller has locked them.
select r.run_id, l.task, r.job_id, r.payload::text as payload_text, r.spec::text as spec_text
from mainspring.runs r
join mainspring.lanes l on l.lane_id = r.lane_id
where r.run_id = any ($1::uuid[])

-- name: make_ready
-- Runs that start now: their rule is met. $2, $3: payload and spec with results of other steps, or null.
-- moves: WAITING -> QUEUED
-- guard: the caller has locked the runs as WAITING, and their joins; it compares the counts.
update mainspring.runs r
set state = {{QUEUED}}, ready_at = (select clock_timestamp()), waits_for = null,
    payload = coalesce(u.payload, r.payload), spec = coalesce(u.spec, r.spec), expires_at = {{expires_when_ready}}
from unnest($1::uuid[], $2::json[], $3::json[]) as u (run_id, payload, spec)
where r.run_id = u.run_id and r.state + 0 = {{WAITING}}
returning r.lane_id

-- name: hold_ready
-- The same for runs with limits: each stands in the first of its lines.
-- moves: WAITING -> HELD
-- guard: as above.
update mainspring.runs r
set state = {{HELD}}, ready_at = (select clock_timestamp()), waits_for = null, exclusive = true,
    payload = coalesce(u.payload, r.payload), spec = u.spec, limit_keys = u.keys, held_key = u.keys[1],
    held_rank = (select clock_timestamp()) - {{boost(u)}}, expires_at = {{expires_when_ready}}
from (select n.run_id, n.payload, n.spec, {{line_ids(n)}} as keys
      from (select w.run_id, w.tenant_id, u.payload, coalesce(u.spec, w.spec) as spec
            from unnest($1::uuid[], $2::json[], $3::json[]) as u (run_id, payload, spec)
            join mainspring.runs w on w.run_id = u.run_id) as n) as u
where r.run_id = u.run_id and r.state + 0 = {{WAITING}}
returning r.held_key

-- name: succeed_waiting
-- Runs that end without a worker: workflow runs, and mapped steps. $2: their results.
-- moves: WAITING -> SUCCESS
-- guard: the caller has locked the runs as WAITING, and their joins; it compares the counts.
with gone as (
    delete from mainspring.runs r
    using unnest($1::uuid[], $2::json[]) as o (run_id, result)
    where r.run_id = o.run_id and r.state + 0 = {{WAITING}}
    returning r.*, o.result
), ended_run as (
    select run_id, tenant_id, lane_id, {{SUCCESS}} as state, attempt, max_attempts, fence, scheduled_for, started_at,
           {{waited_ms}} as ran_ms, worker_id, job_id, trigger, name, null::text as reason, null::text as error, result,
           payload, spec, node_id, fired_at, null::timestamptz as cancel_requested_at, follows, losses, snoozes,
           null::boolean as payload_dropped, generation, {{held_slots(gone)}} as held, feeds, null::json as usage,
           nominal_for, created_by
    from gone
)
{{enter_history}}

-- name: skip_waiting
-- Runs that wait for the joins $1 and are skipped: the bits $2 are their rules, $3 is the reason, and $4 the step whose
-- failure it is, or null. At most $5. Runs whose ends others than joins and their workflow run must know are left.
-- Returns how many there were, and how many have fed each join.
-- moves: WAITING -> SKIPPED
-- guard: the caller has locked the joins. A run waits for one of them; it is found, locked and deleted here.
with found as materialized (
    select c.run_id, d.reason, d.cause
    from unnest($1::bigint[], $2::int[], $3::text[], $4::text[]) as d (join_id, decided, reason, cause)
    cross join lateral (
        select r.run_id
        from mainspring.runs r
        where r.waits_for = d.join_id and r.waits_for is not null and r.state = {{WAITING}}
          and d.decided >> (r.rule & {{RULE_BITS}}) & 1 = 1 and (d.cause is null or r.rule & {{FAILS}} = 0)
          and r.follows & ~{{FOLLOWED_BY_JOINS}} = 0 and r.limit_keys is null and r.gates is null
        order by r.run_id
        limit $5
        for no key update of r
    ) as c
    limit $5
), gone as materialized (
    delete from mainspring.runs r
    using found f
    where r.run_id = f.run_id and r.state + 0 = {{WAITING}}
    returning r.*, f.reason, f.cause
), ended_run as (
    select run_id, tenant_id, lane_id, {{SKIPPED}} as state, attempt, max_attempts, fence, scheduled_for,
           {{started_at}} as started_at, {{waited_ms}} as ran_ms, worker_id, job_id, trigger, name, reason,
           null::text as error, null::json as result, payload, spec, node_id, fired_at, cancel_requested_at, follows,
           losses, snoozes, null::boolean as payload_dropped, generation, null::bigint[] as held, feeds, usage,
           nominal_for, created_by
    from gone r
), kept as (
    insert into mainspring.step_ends (run_id, state, reason)
    select run_id, {{SKIPPED}}, reason from gone where follows & {{FOLLOWS_STEP}} <> 0
), entered as (
    {{enter_history}}
)
select null::bigint as feed, follows, cause, count(*)::int as number from gone group by follows, cause
union all
select f.feed, g.follows, g.cause, count(*)::int
from gone g, unnest(g.feeds) as f (feed)
group by f.feed, g.follows, g.cause

-- name: delete_joins
-- Joins of one block that nobody needs any more, at most $3.
-- guard: the caller has locked the workflow run, which has ended.
delete from mainspring.joins
where join_id = any (array(select join_id from mainspring.joins where join_id >= $1 and join_id < $2 limit $3))
