-- Workers: incarnations, their sequence numbers and their heartbeats. A worker of tenant 0 is shared: it takes runs of
-- every tenant. So every tenant sees the same of shared workers as of its own.

-- name: register
-- unguarded: the own row of a new incarnation; a repeated hello changes only what it offers.
insert into mainspring.workers (worker_id, tenant_id, name, queues, tasks, labels, version, slots)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (worker_id) do update
set name = excluded.name, queues = excluded.queues, tasks = excluded.tasks, labels = excluded.labels,
    version = excluded.version, slots = excluded.slots
where workers.tenant_id = excluded.tenant_id and workers.state in ({{WORKERS_ALIVE}})
returning state

-- name: advance
-- Locks the worker's row and takes the sequence number. Of two copies of one exchange, only one gets the row.
-- $4: the same exchange continues after a long poll, and its number must still be the newest.
-- $5: how long this transaction waits for a lock, from this statement on.
-- guard: the number must rise and the incarnation must be alive.
with patience as materialized (
    select set_config('lock_timeout', $5, true)
)
update mainspring.workers
set last_seq = $3
from patience
where worker_id = $1 and tenant_id = $2 and (last_seq < $3 or ($4 and last_seq = $3)) and state in ({{WORKERS_ALIVE}})
returning state

-- name: look
select queues, tasks, labels::text as labels_text, slots, state, last_seq
from mainspring.workers
where worker_id = $1 and tenant_id = $2

-- name: states
select worker_id, state from mainspring.workers where worker_id = any ($1::uuid[])

-- name: set_state
-- guard: only from a live state.
update mainspring.workers
set state = $2, ended_at = case when $2 in ({{WORKERS_ENDED}}) then (select clock_timestamp()) end
where worker_id = $1 and state in ({{WORKERS_ALIVE}}) and state <> $2
returning worker_id

-- name: mark_lost
-- Workers whose rows are locked, for example by an exchange, are left out.
-- guard: only from a living state.
with free as materialized (
    select worker_id
    from mainspring.workers
    where worker_id = any ($1::uuid[]) and state in ({{WORKERS_ALIVE}})
    order by worker_id
    for no key update skip locked
)
update mainspring.workers w
set state = {{WORKER_LOST}}, ended_at = (select clock_timestamp())
from free
where w.worker_id = free.worker_id and w.state in ({{WORKERS_ALIVE}})
returning w.worker_id

-- name: note_progress
-- The progress of attempts. The rows are locked in key order first, as in all statements. The runs of a shared worker
-- ($7: 0) can have any tenant.
-- keeps: RUNNING
-- It waits for $8 at most if another transaction has locked a run.
-- guard: run, fence, worker incarnation, RUNNING and a higher number than the last one; the caller compares the
-- returned runs with those that it sent. All runs that the worker still holds are returned, also those with older
-- progress.
with patience as materialized (
    select set_config('lock_timeout', $8, true)
), word as materialized (
    select distinct on (w.run_id, w.fence) w.*
    from patience, unnest($2::uuid[], $3::int[], $4::int[], $5::real[], $6::text[])
        as w (run_id, fence, number, fraction, message)
    order by w.run_id, w.fence, w.number desc
), locked as materialized (
    select r.run_id, r.fence, w.number, w.fraction, w.message
    from mainspring.runs r
    join word w on r.run_id = w.run_id and r.fence = w.fence
    where r.worker_id = $1 and $7 in (r.tenant_id, {{EVERY_TENANT}}) and r.state + 0 = {{RUNNING}}
    order by r.run_id
    for no key update of r
), told as (
    update mainspring.runs r
    set progress = l.fraction, progress_text = l.message, progress_number = l.number
    from locked l
    where r.run_id = l.run_id and r.fence = l.fence and r.state + 0 = {{RUNNING}}
      and l.number > coalesce(r.progress_number, 0)
)
select run_id from locked

-- name: beat_0
-- unguarded: append-only.
insert into mainspring.worker_beats_0 (server_id, at, worker_ids) values ($1, (select clock_timestamp()), $2)

-- name: beat_1
-- unguarded: append-only.
insert into mainspring.worker_beats_1 (server_id, at, worker_ids) values ($1, (select clock_timestamp()), $2)

-- name: silent
-- Workers that have not ended and have sent no heartbeat for $1 seconds.
with heard as materialized (
    select distinct unnest(b.worker_ids) as worker_id
    from (select at, worker_ids from mainspring.worker_beats_0
          union all
          select at, worker_ids from mainspring.worker_beats_1) as b
    where b.at > (select clock_timestamp()) - $1 * interval '1 second'
)
select w.worker_id, w.name
from mainspring.workers w
where w.state in ({{WORKERS_ALIVE}})
  and w.registered_at < (select clock_timestamp()) - $1 * interval '1 second'
  and not exists (select from heard h where h.worker_id = w.worker_id)
order by w.worker_id

-- name: ended_with_runs
-- Ended incarnations that still hold runs: a rescue that was interrupted, or a stop that was not clean.
select w.worker_id
from mainspring.workers w
where w.state in ({{WORKERS_ENDED}})
  and exists (select from mainspring.runs r where r.worker_id = w.worker_id and r.state = {{RUNNING}})
order by w.worker_id
limit 100

-- name: quiet_0
select not exists (select from mainspring.worker_beats_0
                   where at > (select clock_timestamp()) - interval '30 seconds')
   and exists (select from mainspring.worker_beats_0)

-- name: quiet_1
select not exists (select from mainspring.worker_beats_1
                   where at > (select clock_timestamp()) - interval '30 seconds')
   and exists (select from mainspring.worker_beats_1)

-- name: list_workers
with heard as materialized (
    select worker_id, max(at) as at
    from (select at, unnest(worker_ids) as worker_id from mainspring.worker_beats_0
          union all
          select at, unnest(worker_ids) from mainspring.worker_beats_1) as b
    group by worker_id
), held as materialized (
    select worker_id, count(*) as running from mainspring.runs where state = {{RUNNING}} group by worker_id
)
select {{worker_columns}}, heard.at as last_beat_at, coalesce(held.running, 0) as running
from mainspring.workers w
left join heard using (worker_id)
left join held using (worker_id)
where w.tenant_id in ($1, {{EVERY_TENANT}})
  and (w.state in ({{WORKERS_ALIVE}}) or w.ended_at > (select clock_timestamp()) - interval '1 hour')
order by w.state, w.registered_at desc
limit 1000

-- name: view_worker
select {{worker_columns}},
       (select max(b.at)
        from (select at, worker_ids from mainspring.worker_beats_0
              union all
              select at, worker_ids from mainspring.worker_beats_1) as b
        where w.worker_id = any (b.worker_ids)) as last_beat_at,
       (select count(*) from mainspring.runs r where r.worker_id = w.worker_id and r.state = {{RUNNING}}) as running
from mainspring.workers w
where w.tenant_id in ($1, {{EVERY_TENANT}}) and w.worker_id = $2

-- name: prune_workers
-- unguarded: rows of incarnations that ended long ago; their state never changes again.
delete from mainspring.workers w
where w.state in ({{WORKERS_ENDED}}) and w.ended_at < (select clock_timestamp()) - interval '1 day'
  and not exists (select from mainspring.runs r where r.worker_id = w.worker_id and r.state = {{RUNNING}})

-- name: offers
-- What the live workers can run.
select distinct queues, tasks, labels::text as labels_text, state = {{WORKER_DRAINING}} as draining
from mainspring.workers
where tenant_id in ($1, {{EVERY_TENANT}}) and state in ({{WORKERS_ALIVE}})
limit 10000

-- name: takers
-- Workers of queue $2 that offer task $3 and take runs, with the number of their runs in all and of that task. The
-- numbers are only used in a sentence, so the rows are limited.
select w.labels::text as labels_text, w.slots, cardinality(w.queues) as queues, held.running, held.of_task
from (select * from mainspring.workers
      where tenant_id in ($1, {{EVERY_TENANT}}) and state = {{WORKER_LIVE}} and $2 = any (queues) and $3 = any (tasks)
      limit 100) as w
cross join lateral (
    select count(*)::int as running, (count(*) filter (where l.task = $3))::int as of_task
    from mainspring.runs r
    join mainspring.lanes l using (lane_id)
    where r.worker_id = w.worker_id and r.state = {{RUNNING}}
) as held

-- name: offers_by_queue
select q.queue, count(*)::int as workers
from mainspring.workers w cross join lateral unnest(w.queues) as q (queue)
where w.tenant_id in ($1, {{EVERY_TENANT}}) and w.state in ({{WORKERS_ALIVE}})
group by q.queue

-- name: counts
select state, count(*)::int as count, sum(slots)::int as slots
from mainspring.workers
where tenant_id in ($1, {{EVERY_TENANT}})
  and (state in ({{WORKERS_ALIVE}}) or ended_at > (select clock_timestamp()) - interval '1 hour')
group by state

-- name: witness
-- True if the row of this witness was missing: it is new, or a crash has emptied the unlogged tables.
-- unguarded: a rescuer's own row.
with forgotten as (
    delete from mainspring.beat_witnesses
    where witness_id <> $1 and at < (select clock_timestamp()) - interval '1 day'
), mine as (
    insert into mainspring.beat_witnesses (witness_id) values ($1)
    on conflict do nothing
    returning witness_id
)
select exists (select from mine)
