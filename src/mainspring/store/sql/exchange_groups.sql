-- Exchanges that arrive together: sequence numbers, plain successes and claims of many workers in one statement.

-- name: exchange_together
-- Each member of the group is one exchange: $1 to $6 are its worker, the worker's tenant, its number, whether it has taken
-- that number before, how many runs it asks for, and its set of lanes. $7 to $13 are the outcomes, with the place of
-- their member. $14 is the revision of the gates by which the lanes were chosen. $15 to $18 are the lanes of the sets.
-- A member whose worker's row does not pass is not in the result. One of whose outcomes a run does not match, is held by
-- another transaction, or is followed by something, is not complete: it takes no runs here, and goes on by itself.
-- Runs are dealt round by round, the first to the first member. Nothing here waits for a row that another transaction
-- holds. Lists are arrays with the members' places as index, because joins of lists take the square of the time here.
-- The first rows of the result are members; the others, with the place of their member, are claimed runs.
-- moves: RUNNING -> SUCCESS
-- moves: QUEUED -> RUNNING
-- guard: the number of each member must rise, or be the last one if it was taken before, and its incarnation must be
-- alive, under the lock of its row. Outcomes: run, fence, that member's incarnation and RUNNING. Claims: the rows are
-- locked as QUEUED, and the state is checked again; only with this revision of the gates. The caller compares the counts.
with member as materialized (
    select m.number, m.worker_id, m.seq, m.again, m.most, m.lane_set, w.state, w.state is not null as passed
    from unnest($1::text::uuid[], $2::int[], $3::bigint[], $4::boolean[], $5::int[], $6::int[]) with ordinality
        as m (worker_id, tenant_id, seq, again, most, lane_set, number)
    left join lateral (
        select w.state
        from mainspring.workers w
        where w.worker_id = m.worker_id and w.tenant_id = m.tenant_id
          and (w.last_seq < m.seq or (m.again and w.last_seq = m.seq)) and w.state in ({{WORKERS_ALIVE}})
        for no key update of w skip locked
    ) as w on true
), passing as materialized (
    select array_agg(case when m.passed then m.worker_id end order by m.number) as workers,
           array_agg(m.seq order by m.number) as seqs
    from member m
), advanced as (
    update mainspring.workers w
    set last_seq = m.seq
    from member m
    where m.passed and w.worker_id = m.worker_id
      and (w.last_seq < m.seq or (m.again and w.last_seq = m.seq)) and w.state in ({{WORKERS_ALIVE}})
    returning w.worker_id
), outcome as materialized (
    select o.run_id, o.fence, o.number, o.held_ms, o.ran_ms, o.result, o.used, r.run_id is not null as matched
    from unnest($7::text::uuid[], $8::text::int[], $9::text::int[], $10::real[], $11::real[], $12::json[], $13::json[])
        as o (run_id, fence, number, held_ms, ran_ms, result, used)
    left join lateral (
        select r.run_id
        from mainspring.runs r
        where r.run_id = o.run_id and r.fence = o.fence and r.worker_id = (select workers from passing)[o.number]
          and r.state + 0 = {{RUNNING}}
          and r.follows is null and r.feeds is null and r.limit_keys is null and r.gates is null
        for update of r skip locked
    ) as r on true
), unmatched as materialized (
    select array(select o.number::bigint from outcome o where not o.matched) as numbers
), gone as (
    delete from mainspring.runs r
    using outcome o
    where o.matched and r.run_id = o.run_id and r.fence = o.fence
      and r.worker_id = (select workers from passing)[o.number] and r.state + 0 = {{RUNNING}}
    returning r.run_id, r.tenant_id, r.lane_id, r.attempt, r.max_attempts, r.fence, r.scheduled_for, r.claimed_at,
              r.worker_id, r.job_id, r.trigger, r.name, r.payload, r.spec, r.node_id, r.fired_at, r.follows, r.losses,
              r.snoozes, r.generation, r.limit_keys, r.gates, r.feeds, r.nominal_for, r.created_by, o.held_ms, o.ran_ms,
              o.result, o.used, {{keeps_payload}} as keeps_payload
), ended_run as (
    {{succeeded_runs}}
), recorded as (
    {{enter_history}}
), taker as materialized (
    select m.lane_set, array_agg(m.number order by s.round, m.number) as numbers, count(*) as total
    from member m
    cross join lateral generate_series(1, m.most) as s (round)
    where m.passed and m.state = {{WORKER_LIVE}} and m.number <> all ((select numbers from unmatched)::bigint[])
      and (select revision from mainspring.gate_revision where only_row) = $14
    group by m.lane_set
), lane as materialized (
    select * from unnest($15::int[], $16::int[], $17::timestamptz[], $18::smallint[])
        as l (lane_set, lane_id, bound, priority)
), share as materialized (
    select h.lane_set, h.lane_id, h.bound, h.priority, count(*) as share
    from taker t
    cross join lateral (
        select l.lane_set, l.lane_id, l.bound, l.priority
        from lane l
        cross join lateral (
            {{head(l.lane_id, l.bound, t.total)}}
        ) as head
        where l.lane_set = t.lane_set
        order by (l.priority = {{CRITICAL}}) desc, head.ready_at - l.priority * {{AGING}}
        limit t.total
    ) as h
    group by h.lane_set, h.lane_id, h.bound, h.priority
), picked as materialized (
    select s.lane_set, head.tid,
           row_number() over (partition by s.lane_set
                              order by (s.priority = {{CRITICAL}}) desc, head.ready_at - s.priority * {{AGING}}) as place
    from share s
    cross join lateral (
        {{pick(s.lane_id, s.bound, s.share)}}
    ) as head
), dealt as materialized (
    select p.tid, t.numbers[p.place] as number, (select workers from passing)[t.numbers[p.place]] as worker_id,
           (select seqs from passing)[t.numbers[p.place]] as seq
    from picked p
    join taker t on t.lane_set = p.lane_set
), claimed as (
    update mainspring.runs r
    set {{claim_columns(d.worker_id, d.seq)}}
    from dealt d
    where r.ctid = d.tid and r.state + 0 = {{QUEUED}}
    returning d.number, {{claimed_in_group(r.exclusive)}}
)
select m.number, m.state, m.number <> all ((select numbers from unmatched)::bigint[]) as complete,
       (select revision from mainspring.gate_revision where only_row) as revision,
       (select count(*) from advanced) as advanced, (select count(*) from recorded) as recorded,
       null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
from member m
where m.passed
union all
select c.number, null, null, null, null, null, c.run_id, c.fence, c.attempt, c.max_attempts, c.lane_id, c.job_id,
       c.scheduled_for, c.ready_at, c.exclusive, c.name, c.payload_text, c.spec_text, c.time_left, c.losses, c.snoozes,
       c.generation, c.alone
from claimed c
