-- Fan-outs: mapped steps, and the cursor over their members. Locks are taken in this order: the join of the members, the
-- workflow run, the fan-out, step runs.

-- name: open_fanouts
-- Mapped steps that are ready: what they wait for now is their members.
-- keeps: WAITING
-- guard: the caller has locked the runs as WAITING.
with opened as (
    update mainspring.runs r
    set rule = {{CONTAINER}} | {{MAPPED}}, waits_for = null, claimed_at = t.now, started_at = t.now
    from (select clock_timestamp() as now) as t
    where r.run_id = any ($1::uuid[]) and r.state + 0 = {{WAITING}}
    returning r.run_id, (r.spec -> 'step' ->> 'place')::int as step
)
insert into mainspring.fanouts (run_id, flow_id, step, state)
select o.run_id, f.flow_id, o.step, {{FANOUT_READY}}
from opened o
join mainspring.flows f on f.prefix = (left(o.run_id::text, 28) || '00000000')::uuid
returning run_id

-- name: get_fanout
select {{fanout_columns}} from mainspring.fanouts f where f.run_id = $1

-- name: lock_fanout
select {{fanout_columns}} from mainspring.fanouts f where f.run_id = $1 for no key update

-- name: fanouts_at_work
-- Those after $1 that are not closed, by id.
select f.run_id from mainspring.fanouts f where f.state <> {{FANOUT_CLOSED}} and f.run_id > $1 order by f.run_id limit $2

-- name: fanouts_of_joins
select f.run_id from mainspring.fanouts f where f.join_id = any ($1::bigint[])

-- name: begin_fanout
-- Its members are known.
-- guard: it is ready; the caller has locked it.
update mainspring.fanouts
set state = {{FANOUT_EXPANDING}}, join_id = $2, total = $3, first_number = $4, at_a_time = $5, failures = $6, targets = $7,
    origin = $8, repeats = $9
where run_id = $1 and state = {{FANOUT_READY}}
returning run_id

-- name: await_members
-- keeps: WAITING
-- guard: the state is WAITING; the caller compares the count.
update mainspring.runs r set waits_for = $2 where r.run_id = $1 and r.state + 0 = {{WAITING}} returning r.run_id

-- name: insert_items
-- unguarded: an insert in the transaction that begins the fan-out; the primary key is the guard.
insert into mainspring.fanout_items (run_id, chunk, items, position)
select $1, c.chunk, c.items, c.position from unnest($2::int[], $3::json[], $4::int[]) as c (chunk, items, position)

-- name: items_of_chunk
select i.items::text from mainspring.fanout_items i where i.run_id = $1 and i.chunk = $2

-- name: chunk_at
-- Of members that run again: the chunk with the member at the position $2. There are up to 1,000 chunks.
select i.chunk, i.items::text as items_text, i.position
from mainspring.fanout_items i
where i.run_id = $1
  and i.chunk = (select c.chunk
                 from mainspring.fanout_items c
                 where c.run_id = $1 and c.position <= $2
                 order by c.position desc
                 limit 1)

-- name: chunks_by_number
-- Chunks $2 of members that run again.
select i.chunk, i.items::text as items_text, i.position
from mainspring.fanout_items i
where i.run_id = $1 and i.chunk = any ($2::int[])

-- name: counted_of_join
-- How many members have ended, marks included.
select j.ok + coalesce(m.ok, 0), j.failed + coalesce(m.failed, 0), j.skipped + coalesce(m.skipped, 0),
       j.blocked + coalesce(m.blocked, 0)
from mainspring.joins j
left join lateral (select sum(k.ok)::int as ok, sum(k.failed)::int as failed, sum(k.skipped)::int as skipped,
                          sum(k.blocked)::int as blocked
                   from mainspring.join_marks k where k.join_id = j.join_id) as m on true
where j.join_id = $1

-- name: advance_fanout
-- So many members are created. $4: no more of them will be.
-- guard: it is expanding, and how many were created before; the caller compares the count.
update mainspring.fanouts
set expanded = $3, state = case when $4 then {{FANOUT_CLOSED}} else state end
where run_id = $1 and expanded = $2 and state = {{FANOUT_EXPANDING}}
returning run_id

-- name: close_fanouts
-- guard: the caller has locked their runs, and ends them.
update mainspring.fanouts f
set state = {{FANOUT_CLOSED}}
where f.run_id = any ($1::uuid[])
returning {{fanout_columns}}

-- name: close_fanouts_of_flow
-- guard: the caller has ended their runs, and the workflow run is being stopped.
update mainspring.fanouts f
set state = {{FANOUT_CLOSED}}
where f.flow_id = $1 and f.state <> {{FANOUT_CLOSED}}

-- name: broadcast_targets
-- The live workers of tenant $1, or of all tenants, with the labels $2 that offer the queue $3 and the task $4.
select distinct w.worker_id::text
from mainspring.workers w
where w.state = {{WORKER_LIVE}} and w.tenant_id in ($1, {{EVERY_TENANT}}) and w.labels::jsonb @> $2::jsonb
  and $3 = any (w.queues) and $4 = any (w.tasks)
order by 1
limit $5

