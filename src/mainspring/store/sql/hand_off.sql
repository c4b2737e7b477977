-- Hand-off: fresh runs are stored as claimed by workers that wait for runs.

-- name: hand_off_runs
-- As insert_runs. $10 is the place of the taker of each run among the takers, whose exchanges wait at this server; null if it
-- has none. $11 to $14 are the takers: worker, the worker's tenant, the number of its exchange, and whether that has taken its
-- number before. $15 is the revision of the gates by which the takers were chosen. $16 and $17 are the lanes from which
-- each of the takers would take, with their lower bounds. $18: the token that has created the runs.
-- The runs of a taker whose row does not pass, or which another transaction holds, are QUEUED; so are all runs if the gates
-- have changed, or if a run waits in one of these lanes: it comes first. Nothing here waits for a row.
-- The result has the runs that were handed off, with their workers.
-- creates: QUEUED, RUNNING
-- guard: as a claim. The number of each taker must rise, or be the last one if it was taken before, and its worker must be
-- LIVE, under the lock of its row; only with this revision of the gates. The caller compares the counts.
with clear as materialized (
    select (select revision from mainspring.gate_revision where only_row) = $15
           and not exists (
               select
               from unnest($16::int[], $17::timestamptz[]) as l (lane_id, bound)
               cross join lateral (
                   {{head(l.lane_id, l.bound, 1)}}
               ) as head
           ) as passes
), taker as materialized (
    select t.number, t.worker_id, t.seq, t.again, w.worker_id is not null as passed
    from unnest($11::text::uuid[], $12::int[], $13::bigint[], $14::boolean[]) with ordinality
        as t (worker_id, tenant_id, seq, again, number)
    left join lateral (
        select w.worker_id
        from mainspring.workers w
        where (select passes from clear) and w.worker_id = t.worker_id and w.tenant_id = t.tenant_id
          and (w.last_seq < t.seq or (t.again and w.last_seq = t.seq)) and w.state = {{WORKER_LIVE}}
        for no key update of w skip locked
    ) as w on true
), passing as materialized (
    select array_agg(case when t.passed then t.worker_id end order by t.number) as workers,
           array_agg(case when t.passed then t.seq end order by t.number) as seqs
    from taker t
), advanced as (
    update mainspring.workers w
    set last_seq = t.seq
    from taker t
    where t.passed and w.worker_id = t.worker_id
      and (w.last_seq < t.seq or (t.again and w.last_seq = t.seq)) and w.state = {{WORKER_LIVE}}
    returning w.worker_id
), new_run as (
    select u.run_id, $1::int as tenant_id, u.lane_id, u.max_attempts, false as exclusive,
           null::timestamptz as scheduled_for, u.job_id, u.generation, null::text as trigger, u.name, u.payload, u.spec,
           null::uuid as node_id, false as fired, $18::uuid as created_by, (select workers from passing)[u.taker] as worker_id,
           (select seqs from passing)[u.taker] as claim_seq
    from unnest($2::uuid[], $3::int[], $4::smallint[], $5::text[], $6::text[], $7::json[], $8::json[], $9::int[],
                $10::int[])
             as u (run_id, lane_id, max_attempts, job_id, name, payload, spec, generation, taker)
), created as (
    {{create_claimed_runs}}
    returning r.worker_id, {{claimed_in_group(r.exclusive)}}
)
select c.worker_id, (select count(*) from advanced) as advanced, c.run_id, c.fence, c.attempt, c.max_attempts, c.lane_id,
       c.job_id, c.scheduled_for, c.ready_at, c.exclusive, c.name, c.payload_text, c.spec_text, c.time_left, c.losses,
       c.snoozes, c.generation, c.alone
from created c
where c.worker_id is not null
