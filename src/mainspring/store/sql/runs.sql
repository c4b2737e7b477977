-- The life of a run: born, claimed, reported. These are the statements of the hot path.

-- name: insert_runs
-- One row per one-time job that runs now: it carries its definition, and there is no jobs row.
-- unguarded: an insert under a fresh UUID; the primary key is the guard.
insert into mainspring.runs
    (run_id, tenant_id, lane_id, state, max_attempts, exclusive, scheduled_for, ready_at, job_id, name, payload, spec)
select u.run_id, $1, u.lane_id, 1, u.max_attempts, coalesce(u.spec ->> 'delivery' = 'at_most_once', false), t.now,
       t.now, u.job_id, u.name, u.payload, u.spec
from unnest($2::uuid[], $3::int[], $4::smallint[], $5::text[], $6::text[], $7::json[], $8::json[])
         as u (run_id, lane_id, max_attempts, job_id, name, payload, spec),
     (select clock_timestamp() as now) as t

-- name: insert_plain_runs
-- The same for jobs of one lane that have nothing but a payload: two arrays travel instead of seven, which saves the
-- server 2 of 5 µs of CPU per job.
-- unguarded: as above.
insert into mainspring.runs (run_id, tenant_id, lane_id, state, max_attempts, scheduled_for, ready_at, payload)
select u.run_id, $1, $2, 1, $3, t.now, t.now, u.payload
from unnest($4::uuid[], $5::json[]) as u (run_id, payload), (select clock_timestamp() as now) as t

-- name: claim_from_lane
-- The head of one lane, by ctid. $5 is a lower bound that trails: it keeps dead index entries out of the way. The
-- first claim of a run with a run_timeout starts its clock; one whose time is over is left to the sweep that ends it.
-- guard: the rows are locked QUEUED in the same statement, and the state is looked at again.
with picked as materialized (
    select ctid as tid
    from mainspring.runs
    where lane_id = $1 and state = 1 and ready_at >= $5 and ready_at <= (select clock_timestamp())
      and (deadline is null or deadline > (select clock_timestamp()))
    order by ready_at
    limit $2
    for no key update skip locked
)
update mainspring.runs
set state = 2, attempt = attempt + 1, fence = fence + 1, worker_id = $3, claim_seq = $4,
    claimed_at = (select clock_timestamp()),
    deadline = case when spec is null then null
                    else coalesce(deadline, (select clock_timestamp())
                                            + (spec ->> 'run_timeout')::float8 * interval '1 second') end
where ctid = any (array(select tid from picked)) and state + 0 = 1
returning run_id, fence, attempt, max_attempts, lane_id, job_id, scheduled_for, ready_at, exclusive,
          name, payload::text as payload, spec::text as spec,
          extract(epoch from deadline - (select clock_timestamp()))::float8 as time_left

-- name: claim_from_lanes
-- Several lanes: peek at each head, merge (critical first, then by ready_at less what the priority is worth), and
-- take from each lane as many as the merge gave it. Locking what was merely peeked at would cost lanes x limit locks.
-- guard: as above.
with lane as (
    select * from unnest($1::int[], $5::timestamptz[], $6::smallint[]) as l (lane_id, bound, priority)
), share as materialized (
    select m.lane_id, m.bound, count(*) as share
    from (
        select l.lane_id, l.bound
        from lane l
        cross join lateral (
            select r.ready_at
            from mainspring.runs r
            where r.lane_id = l.lane_id and r.state = 1 and r.ready_at >= l.bound
              and r.ready_at <= (select clock_timestamp())
            order by r.ready_at
            limit $2
        ) as head
        order by (l.priority = 3) desc, head.ready_at - l.priority * interval '5 minutes'
        limit $2
    ) as m
    group by m.lane_id, m.bound
), picked as materialized (
    select head.tid
    from share s
    cross join lateral (
        select r.ctid as tid
        from mainspring.runs r
        where r.lane_id = s.lane_id and r.state = 1 and r.ready_at >= s.bound
          and r.ready_at <= (select clock_timestamp())
          and (r.deadline is null or r.deadline > (select clock_timestamp()))
        order by r.ready_at
        limit s.share
        for no key update skip locked
    ) as head
)
update mainspring.runs
set state = 2, attempt = attempt + 1, fence = fence + 1, worker_id = $3, claim_seq = $4,
    claimed_at = (select clock_timestamp()),
    deadline = case when spec is null then null
                    else coalesce(deadline, (select clock_timestamp())
                                            + (spec ->> 'run_timeout')::float8 * interval '1 second') end
where ctid = any (array(select tid from picked)) and state + 0 = 1
returning run_id, fence, attempt, max_attempts, lane_id, job_id, scheduled_for, ready_at, exclusive,
          name, payload::text as payload, spec::text as spec,
          extract(epoch from deadline - (select clock_timestamp()))::float8 as time_left

-- name: claim_fairly
-- Lanes of several tenants: as above, but within the critical ones, and within the others, tenants take turns. $7 and $8
-- are each lane's tenant and that tenant's virtual time; its runs stand one behind the other from there on, in the order
-- that they have among themselves. Each tenant's heads are cut to the limit before they are numbered: numbering all of
-- 64 lanes took four times as long as the plain claim.
-- guard: as above.
with lane as materialized (
    select lane_id, bound, priority, priority = 3 as critical, tenant_id, start
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
                select l.lane_id, l.bound, head.ready_at - l.priority * interval '5 minutes' as rank
                from lane l
                cross join lateral (
                    select r.ready_at
                    from mainspring.runs r
                    where r.lane_id = l.lane_id and r.state = 1 and r.ready_at >= l.bound
                      and r.ready_at <= (select clock_timestamp())
                    order by r.ready_at
                    limit $2
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
    select head.tid
    from share s
    cross join lateral (
        select r.ctid as tid
        from mainspring.runs r
        where r.lane_id = s.lane_id and r.state = 1 and r.ready_at >= s.bound
          and r.ready_at <= (select clock_timestamp())
          and (r.deadline is null or r.deadline > (select clock_timestamp()))
        order by r.ready_at
        limit s.share
        for no key update skip locked
    ) as head
)
update mainspring.runs
set state = 2, attempt = attempt + 1, fence = fence + 1, worker_id = $3, claim_seq = $4,
    claimed_at = (select clock_timestamp()),
    deadline = case when spec is null then null
                    else coalesce(deadline, (select clock_timestamp())
                                            + (spec ->> 'run_timeout')::float8 * interval '1 second') end
where ctid = any (array(select tid from picked)) and state + 0 = 1
returning run_id, fence, attempt, max_attempts, lane_id, job_id, scheduled_for, ready_at, exclusive,
          name, payload::text as payload, spec::text as spec,
          extract(epoch from deadline - (select clock_timestamp()))::float8 as time_left

-- name: ready_lanes
-- Which of these lanes have something to claim: one probe of the index a lane, and nothing is written or locked.
select l.lane_id
from unnest($1::int[], $2::timestamptz[]) as l (lane_id, bound)
cross join lateral (
    select r.ready_at
    from mainspring.runs r
    where r.lane_id = l.lane_id and r.state = 1 and r.ready_at >= l.bound
      and r.ready_at <= (select clock_timestamp())
    order by r.ready_at
    limit 1
) as head

-- name: redeliver
-- Claims whose answer was lost: ours by the rows, older than this exchange, not in the worker's inventory. Those to be
-- cancelled too: only the worker can say that they are gone.
-- Gathered first and ordered after: an order over the table made the planner walk the primary key, 120,000 rows of
-- others, when statistics were from a moment at which one worker held everything.
with lost as materialized (
    select run_id, fence, attempt, max_attempts, lane_id, job_id, scheduled_for, ready_at,
           exclusive, name, payload::text as payload, spec::text as spec,
           extract(epoch from deadline - (select clock_timestamp()))::float8 as time_left
    from mainspring.runs
    where worker_id = $1 and state = 2 and claim_seq < $2 and not (run_id = any ($3::uuid[]))
)
select * from lost order by run_id limit $4

-- name: report_successes
-- Rows are reached by primary key only; state is hidden from the partial indexes (state + 0).
-- guard: run, fence and worker incarnation; the caller compares what came back with what it sent.
with outcome as (
    select * from unnest($1::uuid[], $2::int[], $3::real[], $4::real[], $5::json[])
        as o (run_id, fence, held_ms, ran_ms, result)
), gone as (
    delete from mainspring.runs r
    using outcome o
    where r.run_id = o.run_id and r.fence = o.fence and r.worker_id = $6 and r.state + 0 = 2
    returning r.*, o.held_ms, o.ran_ms, o.result
)
insert into mainspring.run_history
    (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, started_at, ended_at, ran_ms,
     worker_id, job_id, trigger, name, result, spec, node_id, fired_at)
select run_id, tenant_id, lane_id, 10, attempt, max_attempts, fence, scheduled_for,
       claimed_at + held_ms * interval '1 millisecond', (select clock_timestamp()), ran_ms,
       worker_id, job_id, trigger, name, result, spec, node_id, fired_at
from gone
returning run_id

-- name: lock_reported
-- The rows of outcomes other than SUCCESS, locked in key order, with what is needed to decide what follows.
select r.run_id, r.fence, r.attempt, r.max_attempts, r.cancel_requested_at, r.claimed_at, r.spec::text as spec,
       extract(epoch from r.deadline - (select clock_timestamp()))::float8 as time_left
from mainspring.runs r
join unnest($1::uuid[], $2::int[]) as o (run_id, fence) on r.run_id = o.run_id and r.fence = o.fence
where r.worker_id = $3 and r.state + 0 = 2
order by r.run_id
for no key update of r

-- name: requeue
-- A failed try with tries left, or a run handed back unstarted ($4: the attempt it gives back).
-- guard: fence and RUNNING; the row is locked by the caller.
update mainspring.runs r
set state = 1, attempt = r.attempt - o.given_back, fence = r.fence + 1, worker_id = null, claim_seq = null,
    claimed_at = null, last_error = coalesce(o.error, r.last_error),
    progress = null, progress_text = null, progress_number = null,
    ready_at = (select clock_timestamp()) + o.delay * interval '1 second'
from unnest($1::uuid[], $2::int[], $3::float8[], $4::smallint[], $5::text[])
         as o (run_id, fence, delay, given_back, error)
where r.run_id = o.run_id and r.fence = o.fence and r.state + 0 = 2
returning r.run_id, r.lane_id, r.ready_at

-- name: end_runs
-- Ends that are not SUCCESS: into history with the payload, and FAILED ones into the dead letters as well.
-- guard: fence and the state the caller saw ($7); ended runs are not in this table any more.
with outcome as (
    select * from unnest($1::uuid[], $2::int[], $3::smallint[], $4::text[], $5::text[], $6::real[], $7::smallint[],
                         $8::real[])
        as o (run_id, fence, state, reason, error, ran_ms, before, held_ms)
), gone as (
    delete from mainspring.runs r
    using outcome o
    where r.run_id = o.run_id and r.fence = o.fence and r.state + 0 = o.before
    returning r.*, o.state as end_state, o.reason as end_reason, o.error as end_error, o.ran_ms, o.held_ms
), buried as (
    insert into mainspring.dead_letters
        (run_id, tenant_id, lane_id, job_id, name, attempts, error, scheduled_for, died_at, payload, spec, trigger,
         max_attempts, reason)
    select run_id, tenant_id, lane_id, job_id, name, attempt, coalesce(end_error, last_error), scheduled_for,
           (select clock_timestamp()), payload, spec, trigger, max_attempts, end_reason
    from gone
    where end_state = 11
)
insert into mainspring.run_history
    (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, started_at, ended_at, ran_ms,
     worker_id, job_id, trigger, name, reason, error, payload, spec, node_id, fired_at, cancel_requested_at)
select run_id, tenant_id, lane_id, end_state, attempt, max_attempts, fence, scheduled_for,
       claimed_at + held_ms * interval '1 millisecond', (select clock_timestamp()), ran_ms,
       worker_id, job_id, trigger, name, end_reason,
       case when end_state = 11 then coalesce(end_error, last_error) else end_error end, payload, spec,
       node_id, fired_at, cancel_requested_at
from gone
returning run_id

-- name: insert_attempts
-- Tries that are followed by another one, $8 seconds later: failed, lost, or handed back unstarted. The last try
-- stands in the history itself.
-- unguarded: append-only; the rows were locked and matched by the caller in this transaction.
insert into mainspring.attempts (run_id, attempt, fence, worker_id, started_at, ended_at, outcome, error, ready_at)
select o.run_id, o.attempt, o.fence, o.worker_id, o.started_at, t.now, o.outcome, o.error,
       t.now + o.delay * interval '1 second'
from unnest($1::uuid[], $2::smallint[], $3::int[], $4::uuid[], $5::timestamptz[], $6::text[], $7::text[], $8::float8[])
         as o (run_id, attempt, fence, worker_id, started_at, outcome, error, delay),
     (select clock_timestamp() as now) as t

-- name: reported_before
-- Which of these outcomes are recorded already: a repeated report is acknowledged and changes nothing. What was handed
-- back unstarted has no other outcome.
select o.run_id
from unnest($1::uuid[], $2::int[], $4::text[]) as o (run_id, fence, status)
where exists (select from mainspring.run_history h
              where h.run_id = o.run_id and h.fence = o.fence and h.worker_id = $3)
   or exists (select from mainspring.attempts a
              where a.run_id = o.run_id and a.fence = o.fence and a.worker_id = $3
                and (a.outcome = 'RETURNED') = (o.status = 'RETURNED'))

-- name: to_stop
-- Runs that this worker holds and that somebody has asked to cancel.
select run_id from mainspring.runs where worker_id = $1 and state = 2 and cancel_requested_at is not null

-- name: lock_run
select run_id, state, fence, worker_id, cancel_requested_at
from mainspring.runs
where tenant_id = $1 and run_id = $2
for no key update

-- name: lock_runs_of_job
-- All live runs of a job, in key order.
select run_id, state, fence, worker_id, cancel_requested_at
from mainspring.runs
where tenant_id = $1 and job_id = $2
order by run_id
for no key update

-- name: request_cancel
-- guard: fence and RUNNING; asked once.
update mainspring.runs
set cancel_requested_at = (select clock_timestamp())
where run_id = $1 and fence = $2 and state + 0 = 2 and cancel_requested_at is null
returning worker_id

-- name: runs_held_by
-- For the rescuer: what a lost worker held, a batch at a time, each locked in key order. Any batch will do: an order
-- over all that it held makes the planner walk the primary key (120,000 rows for a batch of 100).
select run_id, fence, attempt, max_attempts, cancel_requested_at, claimed_at, worker_id, spec::text as spec,
       extract(epoch from deadline - (select clock_timestamp()))::float8 as time_left
from mainspring.runs
where run_id = any (array(select run_id from mainspring.runs where worker_id = $1 and state = 2 limit $2))
  and worker_id = $1 and state + 0 = 2
order by run_id
for no key update

-- name: overdue
-- Runs whose run_timeout passed while they waited for a worker or backed off, locked in key order. The state is hidden
-- from the index of what is ready, or the planner walks that one (20,000 rows for a batch of 100).
select run_id, fence, attempt, state, spec::text as spec
from mainspring.runs
where run_id = any (array(select run_id from mainspring.runs
                          where deadline is not null and deadline <= (select clock_timestamp()) and state + 0 = 1
                          order by deadline
                          limit $1))
  and state + 0 = 1 and deadline <= (select clock_timestamp())
order by run_id
for no key update skip locked
