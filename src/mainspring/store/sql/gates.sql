-- Gates: limits of queues and tenants at the claim, and their marks.

-- name: revision
select revision from mainspring.gate_revision where only_row

-- name: all_gates
select {{gate}} from mainspring.gates g

-- name: gates_of_tenant
-- The gates of a tenant as they are now, with that of all tenants.
select {{gate}}, {{gate_state}} from mainspring.gates g where tenant_id in ($1, {{EVERY_TENANT}})

-- name: gates_with_quotas
-- The gates of these tenants that have a quota of runs.
select {{gate}}, {{gate_state}}
from mainspring.gates g
where g.tenant_id = any ($1::int[]) and g.queue is null
  and exists (select from mainspring.tenant_quotas q
              where q.tenant_id = g.tenant_id and (q.concurrent_runs is not null or q.runs_per_minute is not null))

-- name: count_gates
select count(*)::int from mainspring.gates where tenant_id = $1

-- name: create_gate
-- unguarded: an insert; the unique constraint is the guard.
insert into mainspring.gates (tenant_id, queue) values ($1, $2) on conflict (tenant_id, queue) do nothing

-- name: lock_gate
select {{gate}} from mainspring.gates g
where tenant_id = $1 and queue is not distinct from $2
for no key update

-- name: change_gate
-- A gate that gets a limit of concurrency counts what runs already, before anything is claimed through it.
-- guard: version; the caller has locked the row.
update mainspring.gates g
set paused_at = case when $3::boolean then coalesce(g.paused_at, (select clock_timestamp())) end,
    paused_by = case when $3 then case when g.paused_at is null then $4::text else g.paused_by end end,
    pause_reason = case when $3 then $9::text end,
    counted = g.counted and not (g.concurrency is null and $5::int is not null),
    concurrency = $5, rate = $6::text, burst = $7, max_depth = $8,
    tat = case when $6::text is null and {{quota(runs_per_minute)}} is null then null else g.tat end,
    version = g.version + 1, updated_at = (select clock_timestamp())
where gate_id = $1 and version = $2
returning {{gate}}

-- name: raise_revision
-- unguarded: the row lock serialises all changes of gates.
update mainspring.gate_revision set revision = revision + 1 where only_row returning revision

-- name: hot_transactions
-- The open transactions of servers in which a claim may be made, by their virtual ids.
select l.virtualtransaction
from pg_locks l
join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and l.granted and a.datname = current_database()
  and a.application_name similar to 'mainspring % (hot|groups)' and a.pid <> pg_backend_pid()

-- name: still_open
select l.virtualtransaction
from pg_locks l
where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and l.virtualtransaction = any ($1::text[])

-- name: lock_uncounted
select gate_id, tenant_id, queue from mainspring.gates where gate_id = $1 and not counted for no key update

-- name: uncounted
select gate_id from mainspring.gates where not counted

-- name: adopt_running
-- Counts the runs that were claimed before the gate had a limit. Rows are locked in key order, as by reports.
-- keeps: RUNNING
-- guard: the caller has locked the gate, which is not counted yet; a run that has the gate is left out.
with running as materialized (
    select r.run_id
    from mainspring.runs r
    where r.worker_id is not null and r.state = {{RUNNING}}
      and r.lane_id in (select l.lane_id from mainspring.lanes l
                        where l.tenant_id = $2 and ($3::text is null or l.queue = $3))
      and not coalesce(r.gates @> array[$1::bigint], false)
    order by r.run_id
    for no key update
)
update mainspring.runs r
set adopted = case when r.gates is null then true else r.adopted end, gates = coalesce(r.gates, '{}') || $1::bigint
from running
where r.run_id = running.run_id and r.state + 0 = {{RUNNING}}
returning r.run_id

-- name: counted
-- guard: not counted yet; the caller has locked the row.
update mainspring.gates set in_use = in_use + $2, counted = true where gate_id = $1 and not counted returning gate_id

-- name: give_back
-- unguarded: append-only; the caller has ended or requeued the runs in this transaction.
insert into mainspring.gate_marks (gate_id, n) select * from unnest($1::int[], $2::int[])

-- name: lock_gates
-- For a claim, in key order.
select g.gate_id, least(g.concurrency, {{quota(concurrent_runs)}}) as concurrency, g.rate, g.burst,
       {{quota(runs_per_minute)}} as runs_per_minute, g.in_use, g.counted, g.tat, g.paused_at is not null as paused
from mainspring.gates g
where g.gate_id = any ($1::int[])
order by g.gate_id
for no key update

-- name: try_gates
-- The same without waiting, with their marks and the time, for a transaction that has recorded outcomes: all of the gates,
-- or some and no marks. Marks that it does not see are of reports that commit now, and are taken next time.
-- guard: gates that this statement has locked, so nobody else takes their marks.
with locked as materialized (
    select g.gate_id, least(g.concurrency, {{quota(concurrent_runs)}}) as concurrency, g.rate, g.burst,
           {{quota(runs_per_minute)}} as runs_per_minute, g.in_use, g.counted, g.tat, g.paused_at is not null as paused
    from mainspring.gates g
    where g.gate_id = any ($1::int[])
    order by g.gate_id
    for no key update of g skip locked
), taken as (
    delete from mainspring.gate_marks
    where gate_id in (select gate_id from locked) and (select count(*) from locked) = cardinality($1::int[])
    returning gate_id, n
)
select l.*, coalesce((select sum(t.n) from taken t where t.gate_id = l.gate_id), 0)::int as marks,
       (select clock_timestamp()) as now
from locked l

-- name: take_marks
-- guard: the caller has locked the gates, so nobody else takes their marks.
with taken as (
    delete from mainspring.gate_marks where gate_id = any ($1::int[]) returning gate_id, n
)
select gate_id, sum(n)::int as n from taken group by gate_id

-- name: clock
select (select clock_timestamp()) as now

-- name: pass_gates
-- guard: the caller has locked the gates; it compares the count.
update mainspring.gates g
set in_use = g.in_use + p.passed, tat = coalesce(p.tat, g.tat)
from unnest($1::int[], $2::int[], $3::timestamptz[]) as p (gate_id, passed, tat)
where g.gate_id = p.gate_id
returning g.gate_id

-- name: look_before_gates
-- Before gates are locked: how many runs the worker holds, started or not, and which of the lanes have runs to claim.
select (select count(*)::int from mainspring.runs where worker_id = $1 and state = {{RUNNING}}) as held,
       array(select l.lane_id
             from unnest($2::int[], $3::timestamptz[]) as l (lane_id, bound)
             cross join lateral (
                 {{head(l.lane_id, l.bound, 1)}}
             ) as head) as ready

-- name: unstarted_of
-- The runs of a worker in these lanes that are not known to have started.
select run_id
from mainspring.runs r
where worker_id = $1 and state = {{RUNNING}} and lane_id = any ($2::int[]) and (r.started_at >= r.claimed_at) is not true

-- name: count_waiting
-- How many runs wait in these lanes, at most $2.
select count(*)::int
from (
    select from unnest($1::int[]) as l (lane_id)
    cross join lateral (
        (select from mainspring.runs r where r.lane_id = l.lane_id and r.state = {{QUEUED}} limit $2)
        union all
        (select from mainspring.runs r where r.lane_id = l.lane_id and r.state = {{HELD}} limit $2)
    ) as waiting
    limit $2
) as counted
