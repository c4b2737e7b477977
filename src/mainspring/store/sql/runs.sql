-- The life of a run: created, claimed, reported. These are the statements of the hot path.
-- `-- creates:` and `-- moves:` declare the transitions of domain/transitions.py that a statement may make. `-- keeps:`
-- declares the states in which it changes a run without a transition. tests/store/test_moves.py checks them.

-- name: insert_runs
-- One row per one-time job that runs immediately. It contains the definition; there is no jobs row.
-- creates: QUEUED
-- unguarded: an insert under a fresh UUID; the primary key is the guard.
with new_run as (
    select u.run_id, $1::int as tenant_id, u.lane_id, u.max_attempts, false as exclusive,
           null::timestamptz as scheduled_for, u.job_id, u.generation, null::text as trigger, u.name, u.payload, u.spec,
           null::uuid as node_id, false as fired, $10::uuid as created_by
    from unnest($2::uuid[], $3::int[], $4::smallint[], $5::text[], $6::text[], $7::json[], $8::json[], $9::int[])
             as u (run_id, lane_id, max_attempts, job_id, name, payload, spec, generation)
)
{{create_runs}}

-- name: insert_held_runs
-- The same for jobs with limits. $10: their lines, as texts of arrays.
-- creates: HELD
-- unguarded: as above.
with new_run as (
    select u.run_id, $1::int as tenant_id, u.lane_id, u.max_attempts, null::timestamptz as scheduled_for, u.job_id,
           u.generation, null::text as trigger, u.name, u.payload, u.spec, null::uuid as node_id, false as fired,
           u.lines::bigint[] as limit_keys, u.boost, $12::uuid as created_by
    from unnest($2::uuid[], $3::int[], $4::smallint[], $5::text[], $6::text[], $7::json[], $8::json[], $9::int[],
                $10::text[], $11::float8[])
             as u (run_id, lane_id, max_attempts, job_id, name, payload, spec, generation, lines, boost)
)
{{create_held_runs}}

-- name: insert_plain_runs
-- The same for jobs of one lane that have only a payload. Two arrays instead of eight save 2 of 5 µs of CPU time per
-- job in the server. Ids come as text (store/arrays.py).
-- creates: QUEUED
-- unguarded: as above.
with new_run as (
    select u.run_id, $1::int as tenant_id, $2::int as lane_id, $3::smallint as max_attempts, false as exclusive,
           null::timestamptz as scheduled_for, null::text as job_id, 1 as generation, null::text as trigger, null::text as name,
           u.payload, null::json as spec, null::uuid as node_id, false as fired, $6::uuid as created_by
    from unnest($4::text::uuid[], $5::json[]) as u (run_id, payload)
)
{{create_runs}}

-- name: stored_ids
-- Which of these runs, live or ended, and of these jobs exist. After a commit whose answer was lost.
select r.run_id::text as id from mainspring.runs r where r.tenant_id = $1 and r.run_id = any($2::uuid[])
union all
select h.run_id::text from mainspring.run_history h where h.tenant_id = $1 and h.run_id = any($2::uuid[])
union all
select j.job_id from mainspring.jobs j where j.tenant_id = $1 and j.job_id = any($3::text[])

-- name: ended_ids
-- Which of these runs have ended.
select h.run_id::text as id from mainspring.run_history h where h.tenant_id = $1 and h.run_id = any($2::uuid[])

-- name: insert_waiting_runs
-- The same for jobs that depend on others.
-- creates: WAITING
-- unguarded: as above.
with new_run as (
    select u.run_id, $1::int as tenant_id, u.lane_id, u.max_attempts, false as exclusive,
           null::timestamptz as scheduled_for, u.job_id, u.generation, null::text as trigger, u.name, u.payload, u.spec,
           null::uuid as node_id, false as fired, $10::uuid as created_by,
           {{EDGES_WAITS}} | case when u.job_id is not null and {{has_dependants(u)}} then {{EDGES_FOLLOWED}} else 0 end
               as edges
    from (select $1::int as tenant_id, w.*
          from unnest($2::uuid[], $3::int[], $4::smallint[], $5::text[], $6::text[], $7::json[], $8::json[], $9::int[])
                   as w (run_id, lane_id, max_attempts, job_id, name, payload, spec, generation)) as u
)
{{create_runs_of_jobs(null::timestamptz)}}

-- name: claim_from_lane
-- The head of one lane, by ctid. $5 is a lower bound of ready_at, so that dead index entries are not read.
-- moves: QUEUED -> RUNNING
-- guard: the rows are locked as QUEUED in the same statement, and the state is checked again.
with picked as materialized (
    {{pick($1, $5, $2)}}
)
{{claim_picked}}

-- name: claim_from_lanes
-- Several lanes: read each head without locks, merge them (critical first, then by ready_at minus the value of the
-- priority), and claim from each lane its number of merged runs. Locking all heads would take lanes x limit locks.
-- moves: QUEUED -> RUNNING
-- guard: as above.
with lane as (
    select * from unnest($1::int[], $5::timestamptz[], $6::smallint[]) as l (lane_id, bound, priority)
), share as materialized (
    select m.lane_id, m.bound, count(*) as share
    from (
        select l.lane_id, l.bound
        from lane l
        cross join lateral (
            {{head(l.lane_id, l.bound, $2)}}
        ) as head
        order by (l.priority = {{CRITICAL}}) desc, head.ready_at - l.priority * {{AGING}}
        limit $2
    ) as m
    group by m.lane_id, m.bound
), picked as materialized (
    {{pick_shares}}
)
{{claim_picked}}

-- name: claim_fairly
-- Lanes of several tenants, or of several queues of one: as above, but these take turns within the critical runs and
-- within the other runs. $7 and $8 are the tenant or queue of each lane, and its virtual time. The runs of a tenant are numbered from there, in
-- their own order. The heads of each tenant are cut to the limit before they are numbered, because numbering all runs
-- of 64 lanes took four times as long as the plain claim.
-- moves: QUEUED -> RUNNING
-- guard: as above.
with lane as materialized (
    select lane_id, bound, priority, priority = {{CRITICAL}} as critical, tenant_id, start
    from unnest($1::int[], $5::timestamptz[], $6::smallint[], $7::int[], $8::bigint[])
        as l (lane_id, bound, priority, tenant_id, start)
), share as materialized (
    select m.lane_id, m.bound, count(*) as share
    from (
        select p.lane_id, p.bound
        from (select distinct tenant_id, critical, start from lane) as t
        cross join lateral (
            select h.lane_id, h.bound, h.rank, row_number() over (order by h.rank) as place
            from (
                select l.lane_id, l.bound, head.ready_at - l.priority * {{AGING}} as rank
                from lane l
                cross join lateral (
                    {{head(l.lane_id, l.bound, $2)}}
                ) as head
                where l.tenant_id = t.tenant_id and l.critical = t.critical
                order by rank
                limit $2
            ) as h
        ) as p
        order by t.critical desc, t.start + p.place, p.rank
        limit $2
    ) as m
    group by m.lane_id, m.bound
), picked as materialized (
    {{pick_shares}}
)
{{claim_picked}}

-- name: claim_through_gates
-- As claim_fairly, for lanes of which some lie behind gates. $9 to $12: the gates of the lane's queue and tenant, and how
-- many runs may pass each; null where there is none. $13: the gates that a run of the lane owns, as text. Queues take
-- turns also for the room of their tenant.
-- moves: QUEUED -> RUNNING
-- guard: as above. The caller has locked the gates.
with lane as materialized (
    select lane_id, bound, priority, priority = {{CRITICAL}} as critical, tenant_id, start, queue_gate, queue_room,
           tenant_gate, tenant_room, least($2, queue_room, tenant_room) as most, owned::bigint[] as owned
    from unnest($1::int[], $5::timestamptz[], $6::smallint[], $7::int[], $8::bigint[], $9::int[], $10::int[], $11::int[],
                $12::int[], $13::text[])
        as l (lane_id, bound, priority, tenant_id, start, queue_gate, queue_room, tenant_gate, tenant_room, owned)
), share as materialized (
    select m.lane_id, m.bound, count(*) as share
    from (
        select t.lane_id, t.bound
        from (
            select p.*, row_number() over (partition by p.tenant_gate
                                           order by p.critical desc, p.start + p.place, p.rank) as in_tenant
            from (
                select q.*, row_number() over (partition by q.tenant_id, q.critical order by q.rank) as place
                from (
                    select l.lane_id, l.bound, l.tenant_id, l.critical, l.start, l.queue_room, l.tenant_gate,
                           l.tenant_room, head.ready_at - l.priority * {{AGING}} as rank,
                           row_number() over (partition by l.queue_gate
                                              order by l.critical desc, head.ready_at - l.priority * {{AGING}}) as in_queue
                    from lane l
                    cross join lateral (
                        {{head(l.lane_id, l.bound, l.most)}}
                    ) as head
                ) as q
                where q.queue_room is null or q.in_queue <= q.queue_room
            ) as p
        ) as t
        where t.tenant_room is null or t.in_tenant <= t.tenant_room
        order by t.critical desc, t.start + t.place, t.rank
        limit $2
    ) as m
    group by m.lane_id, m.bound
), picked as materialized (
    {{pick_shares}}
)
update mainspring.runs r
set {{claim_columns($3, $4)}},
    gates = (select l.owned from lane l where l.lane_id = r.lane_id)
{{claimed(r.exclusive or r.gates is not null as exclusive)}}

-- name: ready_lanes
-- Which of these lanes have runs to claim: one index probe per lane, without writes and locks.
select l.lane_id
from unnest($1::int[], $2::timestamptz[]) as l (lane_id, bound)
cross join lateral (
    {{head(l.lane_id, l.bound, 1)}}
) as head

-- name: redeliver
-- Claims whose reply was lost: assigned to the worker, older than this exchange, and not in the worker's inventory.
-- Runs to cancel are included, because only the worker can report that they have ended.
-- The rows are collected first and sorted after that. With an order over the table the planner scanned the primary key
-- (120,000 rows), when statistics were from a time at which one worker held all runs.
with lost as materialized (
    select {{redelivered_run(r.exclusive or r.gates is not null as exclusive)}}
    from mainspring.runs r
    where worker_id = $1 and state = {{RUNNING}} and claim_seq < $2 and not (run_id = any ($3::uuid[]))
)
select * from lost order by run_id limit $4

-- name: report_successes
-- Rows are read by primary key only. "state + 0" keeps the planner from using the partial indexes. Ids and fences come as text
-- (store/arrays.py).
-- moves: RUNNING -> SUCCESS
-- guard: run, fence and worker incarnation; the caller compares the returned rows with those that it sent.
with outcome as (
    select * from unnest($1::text::uuid[], $2::text::int[], $3::real[], $4::real[], $5::json[], $7::json[])
        as o (run_id, fence, held_ms, ran_ms, result, used)
), gone as (
    delete from mainspring.runs r
    using outcome o
    where r.run_id = o.run_id and r.fence = o.fence and r.worker_id = $6 and r.state + 0 = {{RUNNING}}
    returning r.*, o.held_ms, o.ran_ms, o.result, o.used, {{keeps_payload}} as keeps_payload
), ended_run as (
    {{succeeded_runs}}
)
{{enter_history}}

-- name: lock_reported
-- The rows of outcomes other than SUCCESS, locked in key order, with the columns that decide what follows.
select {{held_run}}
from mainspring.runs r
join unnest($1::uuid[], $2::int[]) as o (run_id, fence) on r.run_id = o.run_id and r.fence = o.fence
where r.worker_id = $3 and r.state + 0 = {{RUNNING}}
order by r.run_id
for no key update of r

-- name: free_to_report
-- After a lock timeout: locks those of these runs that no other transaction has locked, and returns them. Runs that are
-- no longer in the table are returned too.
with locked as materialized (
    select r.run_id
    from mainspring.runs r
    where r.run_id = any ($1::uuid[])
    order by r.run_id
    for no key update skip locked
)
select o.run_id
from unnest($1::uuid[]) as o (run_id)
where exists (select from locked l where l.run_id = o.run_id)
   or not exists (select from mainspring.runs r where r.run_id = o.run_id)

-- name: requeue
-- A failed run with attempts left, a run that was returned unstarted ($4: the attempt that it gives back), a run that
-- was lost ($6: the loss), or a run that is snoozed ($7). A loss or a snooze grants another attempt. $8: the next one is
-- to begin without neighbours. $9: the end of the attempt, from which the delay counts.
-- moves: RUNNING -> QUEUED
-- guard: fence and RUNNING; the caller has locked the row.
update mainspring.runs r
set state = {{QUEUED}}, attempt = r.attempt - o.given_back, fence = r.fence + 1, worker_id = null, claim_seq = null,
    claimed_at = null, started_at = null, gates = null, adopted = null, losses = r.losses + o.lost, snoozes = r.snoozes + o.snoozed,
    max_attempts = r.max_attempts + o.lost + o.snoozed, last_error = coalesce(o.error, r.last_error),
    progress = null, progress_text = null, progress_number = null, usage = null,
    alone = case when o.given_back > 0 then r.alone else o.alone end,
    ready_at = t.now + o.delay * interval '1 second',
    snoozed_until = case when o.snoozed > 0 then t.now + o.delay * interval '1 second' end
from unnest($1::uuid[], $2::int[], $3::float8[], $4::smallint[], $5::text[], $6::smallint[], $7::smallint[], $8::boolean[])
         as o (run_id, fence, delay, given_back, error, lost, snoozed, alone),
     (select coalesce($9::timestamptz, (select clock_timestamp())) as now) as t
where r.run_id = o.run_id and r.fence = o.fence and r.state + 0 = {{RUNNING}}
returning r.run_id, r.lane_id

-- name: end_runs
-- Ends other than SUCCESS. The runs go into the history with their payloads, and FAILED ones also into dead_letters,
-- unless they were WAITING.
-- moves: QUEUED -> FAILED, SKIPPED, CANCELLED
-- moves: RUNNING -> FAILED, CANCELLED
-- moves: WAITING -> FAILED, SKIPPED, CANCELLED
-- moves: HELD -> FAILED, SKIPPED, CANCELLED
-- guard: fence, the state that the caller saw ($7), and the transition; ended runs are no longer in this table.
-- $8: null if the worker has not reported when the attempt began.
with outcome as (
    select * from unnest($1::uuid[], $2::int[], $3::smallint[], $4::text[], $5::text[], $6::real[], $7::smallint[],
                         $8::real[], $9::smallint[], $10::json[])
        as o (run_id, fence, state, reason, error, ran_ms, before, held_ms, lost, used)
), gone as (
    delete from mainspring.runs r
    using outcome o
    where r.run_id = o.run_id and r.fence = o.fence and r.state + 0 = o.before
      and (o.before, o.state) in ({{ENDS}})
    returning r.*, o.state as end_state, o.before, o.reason, o.ran_ms, o.held_ms, o.lost, o.used,
              case when o.state = {{FAILED}} then coalesce(o.error, r.last_error) else o.error end as error
), dead_lettered as (
    insert into mainspring.dead_letters
        (run_id, tenant_id, lane_id, job_id, name, attempts, error, scheduled_for, died_at, payload, spec, trigger,
         max_attempts, reason, generation)
    select run_id, tenant_id, lane_id, job_id, name, attempt, error, scheduled_for,
           (select clock_timestamp()), payload, spec, trigger, max_attempts - losses - snoozes, reason, generation
    from gone
    where end_state = {{FAILED}} and before <> {{WAITING}}
), ended_run as (
    select run_id, tenant_id, lane_id, end_state as state, attempt, max_attempts + lost as max_attempts, fence,
           scheduled_for, coalesce(claimed_at + held_ms * interval '1 millisecond', {{ended_since}}) as started_at,
           case when state = {{WAITING}} then {{waited_ms}} else ran_ms end as ran_ms,
           worker_id, job_id, trigger, name, reason, error, null::json as result, payload, spec, node_id, fired_at,
           cancel_requested_at, follows, losses + lost as losses, snoozes, null::boolean as payload_dropped, generation,
           case when state <> {{HELD}} then {{held_slots(r)}} end as held, feeds, coalesce(used, usage) as usage,
           nominal_for, created_by
    from gone r
)
{{enter_history}}, tenant_id, job_id

-- name: insert_attempts
-- Attempts that are followed by another one, $8 seconds later: failed, lost, snoozed, or returned unstarted. The last
-- attempt is in the history itself. Returns the end of each, from which the delay of the run counts.
-- unguarded: append-only; the caller has locked and matched the rows in this transaction.
insert into mainspring.attempts (run_id, attempt, fence, worker_id, started_at, ended_at, outcome, error, ready_at,
                                 usage)
select o.run_id, o.attempt, o.fence, o.worker_id, o.started_at, t.now, o.outcome, o.error,
       t.now + o.delay * interval '1 second', o.usage
from unnest($1::uuid[], $2::smallint[], $3::int[], $4::uuid[], $5::timestamptz[], $6::text[], $7::text[], $8::float8[],
            $9::json[]) as o (run_id, attempt, fence, worker_id, started_at, outcome, error, delay, usage),
     (select clock_timestamp() as now) as t
returning ended_at

-- name: reported_before
-- Which of these outcomes are recorded already. A repeated report is acknowledged and changes nothing. A run that was
-- returned unstarted has no other outcome. One that was returned after it had started counts as lost.
select o.run_id
from unnest($1::uuid[], $2::int[], $4::text[]) as o (run_id, fence, status)
where exists (select from mainspring.run_history h
              where h.run_id = o.run_id and h.fence = o.fence and h.worker_id = $3)
   or exists (select from mainspring.attempts a
              where a.run_id = o.run_id and a.fence = o.fence and a.worker_id = $3
                and case o.status when 'RETURNED' then a.outcome in ('RETURNED', 'LOST')
                                  else a.outcome <> 'RETURNED' end)

-- name: to_stop
-- Runs of these workers for which a cancel was requested.
select worker_id, run_id
from mainspring.runs
where worker_id = any ($1::uuid[]) and state = {{RUNNING}} and cancel_requested_at is not null

-- name: lock_run
select {{locked_run}}
from mainspring.runs r
where tenant_id = $1 and run_id = $2
for no key update

-- name: lock_runs_of_job
-- All live runs of a job, in key order.
select {{locked_run}}
from mainspring.runs r
where tenant_id = $1 and job_id = $2
order by run_id
for no key update

-- name: lock_overlapping
-- The same without those of backfills, which the overlap rule is not about.
select {{locked_run}}
from mainspring.runs r
where tenant_id = $1 and job_id = $2 and {{of_backfill(r)}} is not true
order by run_id
for no key update

-- name: request_cancels
-- $4: bits for `follows`.
-- keeps: RUNNING
-- guard: fence and RUNNING; a cancel is requested once. The caller has locked the rows.
update mainspring.runs r
set cancel_requested_at = coalesce(r.cancel_requested_at, (select clock_timestamp())),
    cancel_reason = case when r.cancel_requested_at is null then $3 else r.cancel_reason end,
    follows = case when $4::smallint = 0 then r.follows else coalesce(r.follows, 0) | $4 end
from unnest($1::uuid[], $2::int[]) as u (run_id, fence)
where r.run_id = u.run_id and r.fence = u.fence and r.state + 0 = {{RUNNING}}
  and (r.cancel_requested_at is null or coalesce(r.follows, 0) & $4 <> $4)
returning r.worker_id

-- name: runs_held_by
-- For the rescuer: the runs of a lost worker in batches, or only its ordinary ones ($3). The batches are in no order,
-- because an order over all runs makes the planner scan the primary key (120,000 rows for a batch of 100). Runs that
-- another transaction has locked are left out. The outer lock never waits. It reads the newest version of each row.
select {{held_run}}
from mainspring.runs r
where run_id = any (array(select run_id from mainspring.runs r
                          where worker_id = $1 and state = {{RUNNING}} and not ({{is_exclusive}} and $3) limit $2
                          for no key update skip locked))
  and worker_id = $1 and state + 0 = {{RUNNING}}
order by run_id
for no key update

-- name: overdue
-- Runs whose time is over while they wait for a worker or back off, locked in key order. "state + 0" keeps the planner
-- from scanning the index of ready runs (20,000 rows for a batch of 100). "is not true" has the same purpose for the
-- second comparison of the time and the index of deadlines.
select r.run_id, r.fence, r.attempt, r.state, {{overdue_because}}, r.spec::text as spec_text, r.held_key,
       {{is_container}} as container
from mainspring.runs r
where r.run_id = any (array({{overdue_runs($1)}})) and r.state + 0 in ({{QUEUED}}, {{HELD}}, {{WAITING}}) and ({{in_time}}) is not true
order by r.run_id
for no key update skip locked
