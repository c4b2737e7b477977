-- Workers: incarnations, their sequence numbers and their heartbeats. A worker of tenant 0 is shared: it takes runs of
-- every tenant. So every tenant sees the same of shared workers as of its own.

-- name: register
-- A repeated hello changes only what the worker offers. A lease that was granted is never shortened: the worker relies
-- on it. The first secret of an incarnation stays, unless an older server has stored it. It waits for $14 at most if
-- another transaction has locked the row.
-- guard: the incarnation is new; or it is alive and bound to this secret, or to this token if it has no secret, or to
-- nothing.
with patience as materialized (
    select set_config('lock_timeout', $14, true)
)
insert into mainspring.workers
    (worker_id, tenant_id, name, queues, tasks, labels, version, slots, secret_hash, rescue_after,
     exclusive_rescue_after, protocol, token_id)
select $1::uuid, $2::int, $3::text, $4::text[], $5::text[], $6::jsonb, $7::text, $8::int, $9::bytea, $10::real, $11::real,
       $12::smallint, $13::uuid
from patience
on conflict (worker_id) do update
set name = excluded.name, queues = excluded.queues, tasks = excluded.tasks, labels = excluded.labels,
    version = excluded.version, slots = excluded.slots, protocol = excluded.protocol,
    secret_hash = case when workers.token_id is null then excluded.secret_hash
                       else coalesce(workers.secret_hash, excluded.secret_hash) end,
    token_id = coalesce(workers.token_id, excluded.token_id),
    rescue_after = greatest(workers.rescue_after, excluded.rescue_after),
    exclusive_rescue_after = greatest(workers.exclusive_rescue_after, excluded.exclusive_rescue_after)
where workers.tenant_id = excluded.tenant_id and workers.state in ({{WORKERS_ALIVE}})
  and (workers.token_id is null or workers.secret_hash = excluded.secret_hash
       or workers.secret_hash is null and workers.token_id = excluded.token_id)
returning state

-- name: count_others
-- How many live workers a tenant has besides this one, or in all if $2 is null; $3 at most.
select count(*)
from (select from mainspring.workers
      where tenant_id = $1 and worker_id is distinct from $2 and state in ({{WORKERS_ALIVE}})
      limit $3) as others

-- name: bind
-- The row of an incarnation that an older server has registered. The first request that a newer server hears binds it.
-- It waits for $4 at most if another transaction has locked the row.
-- guard: the incarnation is bound to nothing yet.
with patience as materialized (
    select set_config('lock_timeout', $4, true)
)
update mainspring.workers
set secret_hash = $2, token_id = $3
from patience
where worker_id = $1 and token_id is null
returning worker_id

-- name: advance
-- Locks the worker's row and takes the sequence number. Of two copies of one exchange, only one gets the row.
-- $4: the same exchange continues after a long poll, and its number must still be the newest.
-- $5: how long this transaction waits for a lock, from this statement on.
-- The revision of the gates tells whether a claim knows them.
-- guard: the number must rise and the incarnation must be alive.
with patience as materialized (
    select set_config('lock_timeout', $5, true)
)
update mainspring.workers
set last_seq = $3
from patience
where worker_id = $1 and tenant_id = $2 and (last_seq < $3 or ($4 and last_seq = $3)) and state in ({{WORKERS_ALIVE}})
returning state, (select revision from mainspring.gate_revision where only_row)

-- name: look
select queues, tasks, labels::text as labels_text, slots, state, last_seq, notice_at, protocol, secret_hash, token_id
from mainspring.workers
where worker_id = $1 and tenant_id = $2

-- name: states
select worker_id, state from mainspring.workers where worker_id = any ($1::uuid[])

-- name: set_state
-- guard: only from a live state, and from $3 if that is given.
update mainspring.workers
set state = $2, ended_at = case when $2 in ({{WORKERS_ENDED}}) then (select clock_timestamp()) end,
    lost_because = case when $2 = {{WORKER_LOST}} then 'it ended' end
where worker_id = $1 and state in ({{WORKERS_ALIVE}}) and state <> $2 and ($3::smallint is null or state = $3)
returning worker_id

-- name: secret_of
select secret_hash from mainspring.workers where worker_id = $1

-- name: take_notice
-- Locks the worker's row, so an exchange in flight is written first, and none after this. Returns also whether the
-- incarnation has lived until now.
-- guard: the secret. A repeated notice changes nothing; an incarnation that has stopped stays STOPPED.
with before as materialized (
    select w.worker_id, w.state in ({{WORKERS_ALIVE}}) as lost
    from mainspring.workers w
    where w.worker_id = $1 and w.secret_hash = $2
    for no key update of w
)
update mainspring.workers w
set state = case when b.lost then {{WORKER_LOST}} else w.state end,
    lost_because = case when b.lost then 'death notice' else w.lost_because end,
    ended_at = coalesce(w.ended_at, (select clock_timestamp())),
    notice_at = coalesce(w.notice_at, (select clock_timestamp()))
from before b
where w.worker_id = b.worker_id and w.secret_hash = $2
returning w.name, b.lost

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
    from patience, unnest($2::uuid[], $3::int[], $4::int[], $5::real[], $6::text[], $9::text[])
        as w (run_id, fence, number, fraction, message, usage)
    order by w.run_id, w.fence, w.number desc
), locked as materialized (
    select r.run_id, r.fence, w.number, w.fraction, w.message, w.usage
    from mainspring.runs r
    join word w on r.run_id = w.run_id and r.fence = w.fence
    where r.worker_id = $1 and $7 in (r.tenant_id, {{EVERY_TENANT}}) and r.state + 0 = {{RUNNING}}
    order by r.run_id
    for no key update of r
), told as (
    update mainspring.runs r
    set progress = l.fraction, progress_text = l.message, progress_number = l.number,
        usage = coalesce(l.usage::json, r.usage),
        started_at = coalesce({{started_at}}, (select clock_timestamp()))
    from locked l
    where r.run_id = l.run_id and r.fence = l.fence and r.state + 0 = {{RUNNING}}
      and l.number > coalesce(r.progress_number, 0)
)
select run_id from locked

-- name: note_starts
-- Runs that have started, $4 milliseconds ago. A repeated start changes nothing. Rows that somebody holds are skipped.
-- keeps: RUNNING
-- guard: run, fence, worker incarnation, RUNNING and no start yet.
with word as (
    select * from unnest($2::uuid[], $3::int[], $4::float8[]) as w (run_id, fence, ago)
), locked as materialized (
    select r.run_id, r.fence, w.ago
    from mainspring.runs r
    join word w on r.run_id = w.run_id and r.fence = w.fence
    where r.worker_id = $1 and r.state + 0 = {{RUNNING}} and (r.started_at >= r.claimed_at) is not true
    order by r.run_id
    for no key update of r skip locked
)
update mainspring.runs r
set started_at = greatest(r.claimed_at, (select clock_timestamp()) - l.ago * interval '1 millisecond')
from locked l
where r.run_id = l.run_id and r.fence = l.fence and r.worker_id = $1 and r.state + 0 = {{RUNNING}}
returning r.run_id

-- name: assume_started
-- The claims of a worker that does not tell which of its runs have started. They count as started from the claim. A reply
-- that is sent again has them again.
-- keeps: RUNNING
-- guard: run, worker incarnation, RUNNING and no start; the caller has claimed them in this or an earlier transaction.
update mainspring.runs r
set started_at = r.claimed_at
where r.run_id = any ($2::uuid[]) and r.worker_id = $1 and r.state + 0 = {{RUNNING}} and r.started_at is null

-- name: forget_assumed_starts
-- The worker has said hello again, and tells starts from now on. Rows that somebody holds are skipped.
-- keeps: RUNNING
-- guard: worker incarnation, RUNNING and a start that was only assumed.
update mainspring.runs r
set started_at = null
where r.run_id = any (array(select run_id from mainspring.runs where worker_id = $1 and state = {{RUNNING}}
                            for no key update skip locked))
  and r.worker_id = $1 and r.state + 0 = {{RUNNING}} and r.started_at = r.claimed_at

-- name: beat_0
-- unguarded: append-only.
insert into mainspring.worker_beats_0 (server_id, at, worker_ids) values ($1, (select clock_timestamp()), $2)

-- name: beat_1
-- unguarded: append-only.
insert into mainspring.worker_beats_1 (server_id, at, worker_ids) values ($1, (select clock_timestamp()), $2)

-- name: silent
-- Workers that have not ended and have sent no heartbeat for $1 seconds, with their leases.
with heard as materialized (
    select distinct unnest(b.worker_ids) as worker_id
    from (select at, worker_ids from mainspring.worker_beats_0
          union all
          select at, worker_ids from mainspring.worker_beats_1) as b
    where b.at > (select clock_timestamp()) - $1 * interval '1 second'
)
select w.worker_id, w.name, w.last_seq, w.rescue_after::float8, w.exclusive_rescue_after::float8
from mainspring.workers w
where w.state in ({{WORKERS_ALIVE}})
  and greatest(w.registered_at, w.heard_at) < (select clock_timestamp()) - $1 * interval '1 second'
  and not exists (select from heard h where h.worker_id = w.worker_id)
order by w.worker_id

-- name: last_heard
-- When these workers were last heard, in seconds since 1970, and by which server.
with beaten as materialized (
    select distinct on (b.worker_id) b.worker_id, b.at, b.server_id
    from (select at, server_id, unnest(worker_ids) as worker_id from mainspring.worker_beats_0
          union all
          select at, server_id, unnest(worker_ids) from mainspring.worker_beats_1) as b
    where b.worker_id = any ($1::uuid[])
    order by b.worker_id, b.at desc
)
select w.worker_id, extract(epoch from greatest(w.registered_at, w.heard_at, b.at))::float8 as at,
       case when b.at > coalesce(w.heard_at, '-infinity') then b.server_id else w.heard_by end as server_id
from mainspring.workers w
left join beaten b using (worker_id)
where w.worker_id = any ($1::uuid[])

-- name: last_beats
-- The last heartbeats of these workers. $2: only those of so many seconds; null: all that are known.
select w.worker_id, greatest(w.heard_at, b.at) as at
from mainspring.workers w
left join (select worker_id, max(at) as at
           from (select at, unnest(worker_ids) as worker_id from mainspring.worker_beats_0
                 where $2::float8 is null or at > (select clock_timestamp()) - $2 * interval '1 second'
                 union all
                 select at, unnest(worker_ids) from mainspring.worker_beats_1
                 where $2::float8 is null or at > (select clock_timestamp()) - $2 * interval '1 second') as beats
           where worker_id = any ($1::uuid[])
           group by worker_id) as b using (worker_id)
where w.worker_id = any ($1::uuid[]) and (b.at is not null or $2 is null and w.heard_at is not null)

-- name: heard_by_server
-- How many workers server $1 heard in these seconds since 1970.
select count(distinct worker_id)::int
from (select unnest(worker_ids) as worker_id
      from (select at, server_id, worker_ids from mainspring.worker_beats_0
            union all
            select at, server_id, worker_ids from mainspring.worker_beats_1) as b
      where b.server_id = $1 and b.at between to_timestamp($2) and to_timestamp($3)) as heard

-- name: longest_leases
-- The longest leases of living workers, and the time, in seconds since 1970.
select coalesce(max(rescue_after), 0)::float8, coalesce(max(exclusive_rescue_after), 0)::float8,
       extract(epoch from (select clock_timestamp()))::float8
from mainspring.workers
where state in ({{WORKERS_ALIVE}})

-- name: holdings
-- What these workers hold: when they got the last of it, in seconds since 1970, and of which kinds it is.
select worker_id, extract(epoch from max(claimed_at))::float8 as claimed_at, bool_or({{is_exclusive}}) as exclusive,
       bool_or(not {{is_exclusive}}) as ordinary
from mainspring.runs r
where worker_id = any ($1::uuid[]) and state = {{RUNNING}}
group by worker_id

-- name: lock_silent
-- Locks one worker for a rescue of its ordinary runs, if it is still silent and nobody has locked it.
{{still_silent}}

-- name: mark_lost
-- Workers whose rows are locked, for example by an exchange, are left out. They are judged again in the next sweep.
-- guard: only from a living state, if the worker has exchanged nothing and sent no heartbeat since it was judged.
with free as materialized (
    {{still_silent}}
)
update mainspring.workers w
set state = {{WORKER_LOST}}, ended_at = (select clock_timestamp()), lost_because = 'silent'
from free
where w.worker_id = free.worker_id and w.state in ({{WORKERS_ALIVE}})
returning w.worker_id

-- name: ended_with_runs
-- Ended incarnations that still hold runs: a rescue that was interrupted, or a stop that was not clean.
select w.worker_id
from mainspring.workers w
where w.state in ({{WORKERS_ENDED}})
  and exists (select from mainspring.runs r where r.worker_id = w.worker_id and r.state = {{RUNNING}})
order by w.worker_id
limit 100

-- name: holds_runs
select exists (select from mainspring.runs where worker_id = $1 and state = {{RUNNING}})

-- name: held_number
select count(*) from mainspring.runs where worker_id = $1 and state = {{RUNNING}}

-- name: quiet_0
select not exists (select from mainspring.worker_beats_0
                   where at > (select clock_timestamp()) - interval '30 seconds')
   and exists (select from mainspring.worker_beats_0)

-- name: quiet_1
select not exists (select from mainspring.worker_beats_1
                   where at > (select clock_timestamp()) - interval '30 seconds')
   and exists (select from mainspring.worker_beats_1)

-- name: keep_last_beats_0
-- guard: a heartbeat is copied only if it is later than that of the row, which is locked.
{{keep_last_beats(mainspring.worker_beats_0, mainspring.worker_beats_1)}}

-- name: keep_last_beats_1
-- guard: a heartbeat is copied only if it is later than that of the row, which is locked.
{{keep_last_beats(mainspring.worker_beats_1, mainspring.worker_beats_0)}}

-- name: list_workers
with heard as materialized (
    select worker_id, max(at) as at
    from (select at, unnest(worker_ids) as worker_id from mainspring.worker_beats_0
          union all
          select at, unnest(worker_ids) from mainspring.worker_beats_1) as b
    group by worker_id
), held as materialized (
    select worker_id, count(*) as holding, count(*) filter (where started_at >= claimed_at) as running
    from mainspring.runs
    where state = {{RUNNING}}
    group by worker_id
)
select {{listed_worker_columns}}, greatest(heard.at, w.heard_at) as last_beat_at, coalesce(held.running, 0) as running,
       coalesce(held.holding, 0) as holding
from mainspring.workers w
left join heard using (worker_id)
left join held using (worker_id)
where w.tenant_id in ($1, {{EVERY_TENANT}})
  and (w.state in ({{WORKERS_ALIVE}}) or w.ended_at > (select clock_timestamp()) - interval '1 hour')
order by w.state, w.registered_at desc
limit $2

-- name: view_worker
select {{worker_columns}},
       greatest(w.heard_at,
                (select max(b.at)
                 from (select at, worker_ids from mainspring.worker_beats_0
                       union all
                       select at, worker_ids from mainspring.worker_beats_1) as b
                 where w.worker_id = any (b.worker_ids))) as last_beat_at,
       held.running, held.holding
from mainspring.workers w
cross join lateral (
    select count(*) as holding, count(*) filter (where r.started_at >= r.claimed_at) as running
    from mainspring.runs r
    where r.worker_id = w.worker_id and r.state = {{RUNNING}}
) as held
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

-- name: free_by_queue
-- Slots that hold nothing, of workers that take runs. Those of a worker of several queues are in each of them.
with held as materialized (
    select worker_id, count(*) as holding from mainspring.runs where state = {{RUNNING}} group by worker_id
)
select q.queue, sum(greatest(0, w.slots - coalesce(h.holding, 0)))::bigint as free
from mainspring.workers w
left join held h using (worker_id)
cross join lateral unnest(w.queues) as q (queue)
where w.tenant_id in ($1, {{EVERY_TENANT}}) and w.state = {{WORKER_LIVE}}
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
