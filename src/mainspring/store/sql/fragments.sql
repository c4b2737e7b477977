-- Parts that several statements share; see store/queries.py. tests/store/sql.snapshot has the complete statements of the hot path.

-- ------------------------------------------------------------------------------------------------- advisory locks

-- fragment: numbered_lock
-- Of the lock `name`: a key that nobody can guess. `lock_number` is random, and only the owner and the servers can read it. It
-- is read as JSON, because a database from before the first release, which is refused, does not have the column.
(select ('x' || left(encode(sha256(convert_to((to_jsonb(r) ->> 'lock_number') || '/' || {{name}}, 'UTF8')), 'hex'), 16))
        ::bit(64)::bigint
 from mainspring.routines r)

-- fragment: numbered_lock_of(name)
{{numbered_lock}}

-- fragment: lock_key(name)
-- The key of an advisory lock. Without a number, which is a defect, there is still a lock.
coalesce({{numbered_lock}}, hashtext('mainspring.' || {{name}})::bigint)

-- fragment: wide_lock_key(name)
-- As `lock_key`, for names of which there are many: a longer hash.
coalesce({{numbered_lock}}, hashtextextended('mainspring.' || {{name}}, 0))

-- ------------------------------------------------------------------------------------------- how a run is created

-- fragment: new_run_columns
-- What all inserts of runs share: these columns, with the values below. A column that each run has from its creation on, such
-- as one that a claim reads, is added to both.
run_id, tenant_id, lane_id, max_attempts, scheduled_for, ready_at, job_id, trigger, name, payload, spec, generation,
created_by

-- fragment: new_run_values
-- Of the runs in `new_run`, which has these columns. scheduled_for: null is now.
n.run_id, n.tenant_id, n.lane_id, n.max_attempts, coalesce(n.scheduled_for, t.now), t.now, n.job_id, n.trigger, n.name,
n.payload, n.spec, n.generation, n.created_by

-- fragment: fire_columns
-- What all share but steps and containers.
node_id, fired_at, expires_at

-- fragment: fire_values
-- `new_run` has node_id, and fired (by a scheduler, manually, or as a replay).
n.node_id, case when n.fired then t.now end, {{expiry}}

-- fragment: expiry
t.now + (n.spec ->> 'expires_in')::float8 * interval '1 second'

-- fragment: create_runs
-- Every run without limits is created here. The statement names its runs in `new_run`, with the columns above and exclusive (in
-- addition to the spec). A constant there is a constant in the plan.
-- `follows` says what follows the end of a run, see Follows in domain/transitions.py.
insert into mainspring.runs
    ({{new_run_columns}}, {{fire_columns}}, state, exclusive, follows)
select {{new_run_values}}, {{fire_values}}, {{QUEUED}}, {{exclusive_by_itself}}, {{follows_jobs}}
from new_run n, (select clock_timestamp() as now) as t

-- fragment: create_claimed_runs
-- The same for runs of which some have a worker_id and a claim_seq in `new_run`. These are RUNNING, as after a claim (see
-- claim_columns); the others are QUEUED.
insert into mainspring.runs as r
    ({{new_run_columns}}, {{fire_columns}}, state, exclusive, follows, attempt, fence, worker_id, claim_seq, claimed_at, deadline)
select {{new_run_values}}, {{fire_values}}, case when n.worker_id is null then {{QUEUED}} else {{RUNNING}} end,
       {{exclusive_by_itself}}, {{follows_jobs}}, case when n.worker_id is null then 0 else 1 end,
       case when n.worker_id is null then 0 else 1 end, n.worker_id, n.claim_seq,
       case when n.worker_id is not null then t.now end,
       case when n.worker_id is not null then t.now + (n.spec ->> 'run_timeout')::float8 * interval '1 second' end
from new_run n, (select clock_timestamp() as now) as t

-- fragment: follows_jobs
case when n.job_id is not null and {{has_dependants(n)}} then {{FOLLOWS_JOBS}} end

-- fragment: follows_backfill_or_jobs
case when {{of_backfill(n)}} then {{FOLLOWS_BACKFILL}} when n.job_id is not null and {{has_dependants(n)}} then {{FOLLOWS_JOBS}} end

-- fragment: of_backfill(run)
-- Whether a backfill has created the run. Null, which is not true, if the schedule has.
starts_with({{run}}.trigger, {{BACKFILL_TRIGGER}})

-- fragment: exclusive_by_itself
n.exclusive or {{at_most_once}}

-- fragment: at_most_once
coalesce(n.spec ->> 'delivery' = {{AT_MOST_ONCE}}, false)

-- fragment: line_columns
limit_keys, held_key, held_rank

-- fragment: line_values
-- The place of a run in the first of its lines `l.keys`.
l.keys, l.keys[1], case when l.keys is not null then t.now - {{boost(n)}} end

-- fragment: create_limited_runs
-- The same for runs that may have limits. Such a run is HELD, in the first of its lines, until it is admitted
-- (limits.sql). Its attempts never overlap. `nominal_for` of `new_run`: null if it equals scheduled_for.
insert into mainspring.runs
    ({{new_run_columns}}, {{fire_columns}}, {{line_columns}}, state, exclusive, follows, nominal_for)
select {{new_run_values}}, {{fire_values}}, {{line_values}}, case when l.keys is null then {{QUEUED}} else {{HELD}} end,
       l.keys is not null or {{exclusive_by_itself}}, {{follows_backfill_or_jobs}}, n.nominal_for
from new_run n
cross join (select clock_timestamp() as now) as t
cross join lateral (select {{line_ids(n)}} as keys) as l

-- fragment: create_runs_of_jobs(nominal)
-- The same for runs of jobs that may have edges: `edges` of `new_run` has the bits of `jobs.edges` that hold for the run.
-- A run that waits for other jobs has no place in a line yet. {{nominal}}: its nominal time, null if it is scheduled_for.
insert into mainspring.runs
    ({{new_run_columns}}, {{fire_columns}}, {{line_columns}}, state, exclusive, follows, nominal_for)
select {{new_run_values}}, {{fire_values}}, {{line_values}},
       case when n.edges & {{EDGES_WAITS}} <> 0 then {{WAITING}} when l.keys is null then {{QUEUED}} else {{HELD}} end,
       l.keys is not null or {{exclusive_by_itself}}, case when n.edges & {{EDGES_FOLLOWED}} <> 0 then {{FOLLOWS_JOBS}} end,
       {{nominal}}
from new_run n
cross join (select clock_timestamp() as now) as t
cross join lateral (select case when n.edges & {{EDGES_WAITS}} <> 0 then null else {{line_ids(n)}} end as keys) as l

-- fragment: has_dependants(run)
-- Whether other jobs depend on the job of a run or a submission.
exists (select from mainspring.job_edges e
        where e.tenant_id = {{run}}.tenant_id and e.parent = {{run}}.job_id offset 0)

-- fragment: create_held_runs
-- The same for runs whose lines and boosts are given: `limit_keys` and `boost` of `new_run`. To read them from the spec
-- takes longer than everything else.
insert into mainspring.runs
    ({{new_run_columns}}, {{fire_columns}}, {{line_columns}}, state, exclusive, follows)
select {{new_run_values}}, {{fire_values}}, n.limit_keys, n.limit_keys[1],
       t.now - coalesce(n.boost, 0) * interval '1 second', {{HELD}}, true, {{follows_backfill_or_jobs}}
from new_run n, (select clock_timestamp() as now) as t

-- fragment: create_step_runs
-- The same for runs of steps, which joins count, and some of which wait for joins. Limits are looked at when it is ready.
insert into mainspring.runs
    ({{new_run_columns}}, {{line_columns}}, state, exclusive, fired_at, follows, expires_at, feeds, waits_for, rule)
select {{new_run_values}}, {{line_values}},
       case when {{waits_at_first}} then {{WAITING}} when l.keys is not null then {{HELD}} else {{QUEUED}} end,
       l.keys is not null or {{at_most_once}}, t.now, n.follows, case when not {{waits_at_first}} then {{expiry}} end, n.feeds,
       n.waits_for, n.rule
from new_run n
cross join (select clock_timestamp() as now) as t
cross join lateral (select case when not {{waits_at_first}} then {{line_ids(n)}} end as keys) as l

-- fragment: create_container
-- The same for a run that stands for the rerun of a workflow run: it waits for the steps.
insert into mainspring.runs
    ({{new_run_columns}}, state, exclusive, fired_at, follows, waits_for, rule, claimed_at, started_at, deadline)
select {{new_run_values}}, {{WAITING}}, false, t.now,
       {{FOLLOWS_FLOW}} | case when {{has_dependants(n)}} then {{FOLLOWS_JOBS}} else 0 end, n.waits_for, {{CONTAINER}}, t.now,
       t.now, t.now + (n.spec ->> 'run_timeout')::float8 * interval '1 second'
from new_run n, (select clock_timestamp() as now) as t

-- fragment: waits_at_first
-- A mapped step waits for its members at least.
(n.waits_for is not null or coalesce(n.rule, 0) & {{MAPPED}} <> 0)

-- fragment: line_ids(run)
-- The ids of the lines of a run, sorted; null if it has none. `key_id` in domain/limits.py computes the same.
case when {{run}}.spec -> 'line' is not null then
    (select array_agg(case when k.id between 0 and 4294967295 then k.id - 4294967296 else k.id end order by k.id)
     from (select ('x' || left(md5({{run}}.tenant_id || E'\n' || (s.slot ->> 'name') || E'\n'
                                   || coalesce(s.slot ->> 'key', '')), 16))::bit(64)::bigint as id
           from json_array_elements({{run}}.spec -> 'line') as s (slot)) as k) end

-- fragment: boost(run)
-- How far its priority moves a run forward in a line.
coalesce(({{run}}.spec ->> 'boost')::float8, 0) * interval '1 second'

-- fragment: submitted_at(run)
-- The place of a run in a strict line: when it was submitted, or when its job fired. The index runs_in_order has it.
coalesce({{run}}.fired_at, {{run}}.scheduled_for)

-- fragment: first_in_order(line)
-- The first run in a strict line. One that has begun comes before those that have not (`fresh`), and keeps its place while
-- it backs off.
select b.run_id, b.wake_at, b.submitted_at, b.fresh
from ((select o.run_id, o.wake_at, {{submitted_at(o)}} as submitted_at, false as fresh
       from mainspring.runs o
       where o.held_key = {{line}} and o.state = {{HELD}} and o.attempt > 0
       order by {{submitted_at(o)}}, o.run_id
       limit 1)
      union all
      (select o.run_id, o.wake_at, {{submitted_at(o)}}, true
       from mainspring.runs o
       where o.held_key = {{line}} and o.state = {{HELD}}
       order by {{submitted_at(o)}}, o.run_id
       limit 1)) as b
order by b.fresh
limit 1

-- fragment: limits_changed(lines, changed_at)
-- Whether a limit is no longer as it was when its lines were locked.
exists (select
        from unnest({{lines}}::bigint[], {{changed_at}}::timestamptz[]) as s (key_id, changed_at)
        join mainspring.limit_keys k on k.key_id = s.key_id
        join mainspring.limits l on l.limit_id = k.limit_id
        where l.updated_at <> s.changed_at)

-- fragment: limit_columns
-- LimitRow in store/limit_reads.py.
l.limit_id, l.name, l.slots, l.strict, l.pinned, l.declared, l.updated_at, l.every, l.burst, u.keys, u.in_use, u.held

-- fragment: use_of_limit
-- The lines of limit l, the runs that own a slot, and those that wait for one.
select count(*)::int as keys, coalesce(sum(k.in_use), 0)::int as in_use, coalesce(sum(h.held), 0)::int as held
from mainspring.limit_keys k
cross join lateral ({{held_in_line(k.key_id)}}) as h
where k.limit_id = l.limit_id

-- fragment: held_in_line(line)
select count(*)::int as held
from mainspring.runs r
where r.held_key = {{line}} and r.state = {{HELD}} and r.wake_at is null

-- fragment: owners
-- The runs that need a slot of the lines $2. The statement says in which state.
select k.key_id, r.run_id, r.job_id, r.name, r.lane_id
from mainspring.runs r
cross join lateral unnest(r.limit_keys) as k (key_id)
where r.tenant_id = $1 and r.limit_keys && $2::bigint[] and k.key_id = any ($2)

-- fragment: skipped_runs(nominal)
-- The runs of `new_run` that are not created because of the overlap rule (skip_reason), as columns of `ended_run`.
select n.run_id, n.tenant_id, n.lane_id, {{SKIPPED}} as state, 0 as attempt, n.max_attempts, 0 as fence,
       coalesce(n.scheduled_for, t.now) as scheduled_for, null::timestamptz as started_at, null::real as ran_ms,
       null::uuid as worker_id, n.job_id, n.trigger, n.name,
       n.skip_reason as reason, null::text as error, null::json as result,
       n.payload, n.spec, n.node_id, t.now as fired_at, null::timestamptz as cancel_requested_at,
       null::smallint as follows, 0 as losses, 0 as snoozes, null::boolean as payload_dropped, n.generation,
       null::bigint[] as held, null::bigint[] as feeds, null::json as usage, {{nominal}} as nominal_for, n.created_by
from new_run n, (select clock_timestamp() as now) as t
where n.skip_reason is not null

-- ----------------------------------------------------------------------------------------------- how a run ends

-- fragment: enter_history
-- Every run enters the history here. The statement names its runs in `ended_run`, with the columns below.
insert into mainspring.run_history
    (run_id, tenant_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, started_at, ended_at, ran_ms,
     worker_id, job_id, trigger, name, reason, error, result, payload, spec, node_id, fired_at, cancel_requested_at,
     follows, losses, snoozes, payload_dropped, generation, held, feeds, usage, nominal_for, created_by)
select e.run_id, e.tenant_id, e.lane_id, e.state, e.attempt, e.max_attempts, e.fence, e.scheduled_for, e.started_at,
       (select clock_timestamp()), e.ran_ms, e.worker_id, e.job_id, e.trigger, e.name, e.reason, e.error, e.result,
       e.payload, e.spec, e.node_id, e.fired_at, e.cancel_requested_at, e.follows, e.losses,
       e.snoozes, e.payload_dropped, e.generation, e.held, e.feeds, e.usage, e.nominal_for, e.created_by
from ended_run e
returning run_id, follows, held, feeds

-- fragment: succeeded_runs
-- `ended_run` of successes. The outer statement has deleted the runs in `gone`, with what their workers reported.
select run_id, tenant_id, lane_id, {{SUCCESS}} as state, attempt, max_attempts, fence, scheduled_for,
       claimed_at + held_ms * interval '1 millisecond' as started_at, ran_ms, worker_id, job_id, trigger, name,
       null::text as reason, null::text as error, result, case when keeps_payload then payload end as payload, spec,
       node_id, fired_at, null::timestamptz as cancel_requested_at, follows, losses, snoozes,
       case when not keeps_payload then true end as payload_dropped, generation, {{held_slots(gone)}} as held, feeds,
       used as usage, nominal_for, created_by
from gone

-- fragment: held_slots(run)
-- What a run that is QUEUED or RUNNING gives back when it ends: slots of its limits, and gates.
case when {{run}}.limit_keys is null and {{run}}.gates is null then null
     else coalesce({{run}}.limit_keys, '{}') || coalesce({{run}}.gates, '{}') end

-- fragment: keeps_payload
-- Whether the payload stays with a run that succeeds. Null if it has none.
octet_length(cast(r.payload as text)) <= case when r.spec is null then {{KEPT_PAYLOAD}}
                                      else coalesce(cast(r.spec ->> 'keep_payload' as int), {{KEPT_PAYLOAD}}) end

-- ------------------------------------------------------------------------------------------------------- joins

-- fragment: join_counts
-- JoinCounts in store/joins.py.
j.join_id, j.total, j.ok, j.failed, j.skipped, j.blocked, j.cause

-- fragment: flow_columns
-- Flow in store/workflows.py.
f.flow_id, f.container, f.tenant_id, f.job_id, f.generation, f.version, f.block, f.prefix, f.state, f.steps, f.numbers,
f.made, f.reruns, f.scheduled_for, f.parameters::text as parameters_text, f.stop_reason, f.started_at, f.ended_at

-- fragment: flow_is_old
-- $3: of these tenants; null for all.
f.ended_at < (select clock_timestamp()) - $1 * interval '1 day' and ($3::int[] is null or f.tenant_id = any ($3))

-- fragment: fanout_columns
-- Fanout in store/fanouts.py.
f.run_id, f.flow_id, f.step, f.state, f.join_id, f.total, f.expanded, f.first_number, f.at_a_time, f.failures, f.targets,
f.origin, f.repeats

-- fragment: expires_when_ready
-- A run that waits for others expires from the time at which it may start.
(select clock_timestamp()) + (coalesce(u.spec, r.spec) ->> 'expires_in')::float8 * interval '1 second'

-- fragment: waited_ms
-- How long a run without a worker has lasted.
extract(epoch from (select clock_timestamp()) - started_at)::real * 1000

-- ------------------------------------------------------------------------------------------- how a run is claimed

-- fragment: waiting
-- The runs that can be claimed from a lane. The outer fragment gives the lane and the lower bound of ready_at.
r.lane_id = {{lane}} and r.state = {{QUEUED}} and r.ready_at >= {{bound}} and r.ready_at <= (select clock_timestamp())

-- fragment: head(lane, bound, limit)
select r.ready_at
from mainspring.runs r
where {{waiting}}
order by r.ready_at
limit {{limit}}

-- fragment: pick(lane, bound, limit)
-- A run whose time is over is not claimed; the sweep ends it.
select r.ctid as tid, r.ready_at
from mainspring.runs r
where {{waiting}} and {{in_time}}
order by r.ready_at
limit {{limit}}
for no key update skip locked

-- fragment: in_time
-- Whether a waiting run may still be claimed.
(r.deadline is null or r.deadline > (select clock_timestamp()))
and (r.expires_at is null or r.attempt > 0 or r.expires_at > (select clock_timestamp()))

-- fragment: overdue_runs(limit)
-- The waiting runs whose time is over, the most overdue first.
(select run_id from mainspring.runs
 where deadline is not null and deadline <= (select clock_timestamp()) and state + 0 in ({{QUEUED}}, {{HELD}}, {{WAITING}})
 order by deadline
 limit {{limit}})
union all
(select run_id from mainspring.runs
 where expires_at is not null and expires_at <= (select clock_timestamp()) and attempt = 0
   and state + 0 in ({{QUEUED}}, {{HELD}})
 order by expires_at
 limit {{limit}})
limit {{limit}}

-- fragment: overdue_because
-- The field of the job whose time is over.
case when r.deadline <= (select clock_timestamp()) then 'run_timeout' else 'expires_in' end as because

-- fragment: pick_shares
-- From each lane as many runs as in `share`.
select head.tid
from share s
cross join lateral (
    {{pick(s.lane_id, s.bound, s.share)}}
) as head

-- fragment: claim_picked
-- Assigns the runs of `picked` to worker $3 in its exchange $4.
update mainspring.runs r
set {{claim_columns($3, $4)}}
{{claimed(r.exclusive)}}

-- fragment: claimed(exclusive)
-- How each claim ends: the runs of `picked`, if they are still QUEUED, and what their worker gets.
where ctid = any (array(select tid from picked)) and state + 0 = {{QUEUED}}
returning {{claimed_run}}

-- fragment: claim_columns(worker, seq)
-- The first claim of a run with a run_timeout sets its deadline.
state = {{RUNNING}}, attempt = attempt + 1, fence = fence + 1, worker_id = {{worker}}, claim_seq = {{seq}},
    claimed_at = (select clock_timestamp()),
    deadline = case when spec is null then null
                    else coalesce(deadline, (select clock_timestamp())
                                            + (spec ->> 'run_timeout')::float8 * interval '1 second') end

-- fragment: claimed_run
-- ClaimedRun in store/claimed_runs.py. The outer fragment says whether the run is exclusive.
r.run_id, r.fence, r.attempt, r.max_attempts, r.lane_id, r.job_id, r.scheduled_for, r.ready_at, {{exclusive}}, r.name,
r.payload::text as payload_text, r.spec::text as spec_text, {{time_left}}, r.losses, r.snoozes, r.generation,
coalesce(r.alone, false) as alone

-- fragment: redelivered_run(exclusive)
{{claimed_run}}

-- fragment: claimed_in_group(exclusive)
{{claimed_run}}

-- ------------------------------------------------------------------------------------------------------- gates

-- fragment: gate
-- Gate in store/gates.py.
g.gate_id, g.tenant_id, g.queue, g.paused_at, g.paused_by, g.pause_reason, g.concurrency, g.rate, g.burst, g.max_depth,
g.version, {{quota(concurrent_runs)}} as concurrent_runs, {{quota(runs_per_minute)}} as runs_per_minute,
{{quota(queued_runs)}} as queued_runs

-- fragment: quota(name)
-- A quota of the tenant, for its gate.
(select q.{{name}} from mainspring.tenant_quotas q where q.tenant_id = g.tenant_id and g.queue is null)

-- fragment: gate_state
-- GateState in store/gates.py.
g.in_use - coalesce((select sum(m.n) from mainspring.gate_marks m where m.gate_id = g.gate_id), 0)::int as in_use, g.tat,
(select clock_timestamp()) as now

-- ------------------------------------------------------------------------------------- columns of a live run

-- fragment: held_run
-- HeldRun in store/runs.py.
r.run_id, r.fence, r.attempt, r.max_attempts, r.cancel_requested_at, r.claimed_at, r.worker_id,
r.spec::text as spec_text, {{time_left}}, r.losses, {{known_exclusive}} as exclusive, {{started_at}} as started_at, r.snoozes,
r.gates, r.limit_keys is not null as limited, r.cancel_reason

-- fragment: is_exclusive
-- Attempts of a run that owns a gate must not overlap: the gate counts it once.
(r.exclusive or r.gates is not null)

-- fragment: known_exclusive
-- Whether the worker knows that the run is exclusive, and tells its watchdog before it starts it.
(r.exclusive or r.gates is not null and r.adopted is null)

-- fragment: has_steps_at_most_once(row)
-- Whether the job of the row is a workflow that had such a step in any of its versions.
exists (select from mainspring.workflow_versions v
        cross join lateral json_array_elements(v.source -> 'steps') as s (step)
        where v.tenant_id = {{row}}.tenant_id and v.workflow_id = {{row}}.job_id and v.generation = {{row}}.generation
          and s.step ->> 'delivery' = {{AT_MOST_ONCE}})

-- fragment: locked_run
-- LockedRun in store/runs.py.
r.run_id, r.state, r.fence, r.attempt, r.held_key, r.started_at is not null as begun, {{is_container}} as container

-- fragment: is_container
-- Whether the run stands for a workflow run that has started.
(coalesce(r.follows, 0) & {{FOLLOWS_FLOW}} <> 0 and r.state = {{WAITING}})

-- fragment: started_at
-- When the present attempt began, if that is known. Servers of 0.2.0 do not reset the column.
case when r.started_at >= r.claimed_at then r.started_at end

-- fragment: ended_since
-- The same for a run that ends. One that waits without a slot is not claimed.
case when r.state = {{WAITING}} and r.claimed_at is null then r.started_at else {{started_at}} end

-- fragment: shown_state
-- A claimed run is shown as QUEUED until it is known to have started. One that backs off is shown as SCHEDULED. A workflow
-- run and a mapped step that wait for their steps and members are shown as RUNNING.
case when r.state in ({{QUEUED}}, {{HELD}}) and r.ready_at > (select clock_timestamp()) then {{SHOWN_SCHEDULED}}
     when r.state = {{RUNNING}} and (r.started_at >= r.claimed_at) is not true then {{QUEUED}}
     when r.state = {{WAITING}} and r.started_at >= r.claimed_at then {{RUNNING}}
     else r.state end

-- fragment: listed_state
-- As shown_state, with a number of its own for a run that is claimed and has not started: quotas hold the others that are
-- QUEUED (docs/decisions/0102).
case when r.state = {{RUNNING}} and (r.started_at >= r.claimed_at) is not true then {{SHOWN_ASSIGNED}} else {{shown_state}} end

-- fragment: time_left
extract(epoch from r.deadline - (select clock_timestamp()))::float8 as time_left

-- ------------------------------------------------------------------------------------------------------- the fire

-- fragment: lease
-- The shards of ($2, $3) that node $1 still holds. The share lock makes a grant to another node wait.
select l.shard
from mainspring.shard_leases l
join unnest($2::smallint[], $3::bigint[]) as m (shard, epoch) on l.shard = m.shard and l.epoch = m.epoch
where l.owner = $1
order by l.shard
for key share of l

-- fragment: due_columns
-- The fields of store/fires.py DueJob; j is the job.
j.tenant_id, j.job_id, j.version, j.shard, j.next_fire_at, j.one_time, j.id_generated, j.overlap,
       j.schedule::text as schedule_text, j.spec::text as spec_text, j.xmin as written_by, j.generation, j.runs_left,
       j.lane_id, j.last_nominal_for, j.created_at

-- fragment: due_keys
unnest($4::int[], $5::text[]) with ordinality as d (tenant_id, job_id, position)

-- fragment: due_fires
unnest($4::int[], $5::text[], $6::int[], $7::timestamptz[], $8::timestamptz[], $9::timestamptz[],
       $10::int[], $11::int[], $12::int[], $13::int[], $14::int[], $22::timestamptz[])
    with ordinality as d (tenant_id, job_id, version, next_fire_at, through, following,
                          first_run, last_run, first_gap, last_gap, generation, nominal, position)

-- fragment: has_live_run(job)
-- Whether a run is alive that the overlap rule is about: those of a backfill are not.
-- "offset 0" keeps the planner from reading all runs into a hash table.
exists (select from mainspring.runs r
        where r.tenant_id = {{job}}.tenant_id and r.job_id = {{job}}.job_id and {{of_backfill(r)}} is not true offset 0)

-- fragment: touch_one_time
-- Writes the row of a one-time job and changes nothing in it. Whoever creates another run of the job does this under
-- the job's lock. A fire that the due-scan prepared before does not match the row any more. A manual run also writes the
-- row of a completed job, so that mainspring.submit in a transaction with an older snapshot does not replace it.
update mainspring.jobs j
set version = j.version

-- fragment: runs_of_gone(node)
-- The runs of one-time jobs that have fired: `gone` are their rows. The trigger is stored as 'at' (shown as
-- 'schedule'), which tells such a run from a job that was to run now.
new_run as materialized (
    select g.run_id, g.tenant_id, g.lane_id, g.max_attempts, false as exclusive, g.next_fire_at as scheduled_for,
           case when g.id_generated then null else g.job_id end as job_id, g.generation, 'at' as trigger, g.name, g.payload, g.spec,
           {{node}}::uuid as node_id, true as fired, g.created_by, g.edges,
           case when g.overlap = {{OVERLAP_SKIP}} and {{has_live_run(g)}} then {{STILL_ALIVE}} end as skip_reason
    from gone g
), created as (
    {{create_runs_of_jobs(null::timestamptz)}}
    where n.skip_reason is null
    returning run_id, lane_id, held_key, state
), waits as (
    {{waits_of_created(null::timestamptz)}}
), ended_run as (
    {{skipped_runs(null::timestamptz)}}
), skips as (
    {{enter_history}}
)
select (select array_agg(lane_id) from created where state = {{QUEUED}}) as lanes,
       (select count(*) from gone where edges is not null)::int as with_edges,
       (select array_agg((run_id, follows, held, feeds)) from skips where follows <> 0) as skipped,
       (select count(*) from gone) as gone,
       {{held_of_created}}

-- fragment: manual_run
-- Creates `new_run`, or records that it is skipped.
created as (
    {{create_runs_of_jobs(null::timestamptz)}}
    where n.skip_reason is null
    returning run_id, lane_id, held_key
), ended_run as (
    {{skipped_runs(null::timestamptz)}}
), skips as (
    {{enter_history}}
)

-- fragment: manual_run_made
-- ManualRun in store/fires.py.
select n.lane_id, n.skip_reason is not null as skipped, (select follows from skips) as follows,
       (select held_key from created) as line
from new_run n

-- fragment: waits_of_created(nominal)
-- What the runs of `created` that WAIT wait for. The parents of a job that fires after them have ended already.
insert into mainspring.job_waits (run_id, tenant_id, parent, for_time, since, parent_run, parent_end)
select n.run_id, e.tenant_id, e.parent, coalesce({{nominal}}, n.scheduled_for),
       coalesce(lag(n.scheduled_for) over (partition by e.tenant_id, e.child, e.parent order by n.scheduled_for), e.fired_for),
       e.satisfied_run, e.satisfied_end
from created c
join new_run n on n.run_id = c.run_id
join mainspring.job_edges e on e.tenant_id = n.tenant_id and e.child = {{job_of(n)}}
where c.state = {{WAITING}}

-- fragment: edges_of_moved
-- The edges of jobs that have fired: what counted for this fire does not count for the next one.
update mainspring.job_edges e
set fired_for = m.last_fired_for, satisfied_at = null, satisfied_run = null, satisfied_end = null
from moved m
where m.edges & ({{EDGES_WAITS}} | {{EDGES_AFTER}}) <> 0 and e.tenant_id = m.tenant_id and e.child = m.job_id

-- fragment: held_of_created
-- The lines in which runs of `created` are HELD, and these runs.
(select array_agg(distinct held_key) from created where held_key is not null) as lines,
(select array_agg(run_id) from created where held_key is not null) as held

-- fragment: move_on(due)
-- Advances the jobs of {{due}} past what is handled. A later generation may have the same version and next fire. A job
-- with max_runs never makes more runs than are left. `nominal`: the nominal time of `through`, null if it is the same.
-- A nominal time that is dealt with makes neither runs nor missed fires.
update mainspring.jobs j
set next_fire_at = d.following, last_fired_for = d.through,
    last_nominal_for = greatest(j.last_nominal_for, coalesce(d.nominal, d.through)),
    status = case when d.following is null and coalesce(j.edges & {{EDGES_AFTER}}, 0) = 0 then {{JOB_COMPLETED}}
                  else {{JOB_SCHEDULED}} end,
    runs_left = j.runs_left - (d.last_run - d.first_run + 1)
from {{due}} d
where j.tenant_id = d.tenant_id and j.job_id = d.job_id
  and j.version = d.version and j.next_fire_at is not distinct from d.next_fire_at and j.status = {{JOB_SCHEDULED}}
  and j.generation = d.generation
  and (j.last_fired_for is null or j.last_fired_for < d.through)
  and (j.last_nominal_for is null or j.last_nominal_for < coalesce(d.nominal, d.through)
       or d.last_run < d.first_run and d.last_gap < d.first_gap)
  and (j.runs_left is null or j.runs_left > d.last_run - d.first_run)

-- fragment: moved_job
-- What `runs_of_moved` needs of a job that moves on.
j.tenant_id, j.job_id, j.lane_id, j.overlap, j.max_attempts, j.name, j.payload, j.spec, j.generation, d.position,
              d.first_run, d.last_run, d.first_gap, d.last_gap, j.edges, j.last_fired_for, j.created_by

-- fragment: runs_of_moved(node, run_ids, run_times, gap_firsts, gap_lasts, gap_counts, gap_reasons, nominals)
-- Runs, skips and missed ranges of recurring jobs that have fired: `moved` are their rows, with the subscripts of their
-- parts in the lists. The list of nominal times is empty if no job has jitter.
new_run as materialized (
    select ({{run_ids}}::uuid[])[i] as run_id, m.tenant_id, m.lane_id, m.max_attempts,
           m.overlap = {{OVERLAP_SKIP}} as exclusive, ({{run_times}}::timestamptz[])[i] as scheduled_for,
           ({{nominals}}::timestamptz[])[i] as nominal_for, m.job_id,
           m.generation, null::text as trigger, m.name, m.payload, m.spec, {{node}}::uuid as node_id, true as fired, m.created_by, m.edges,
           case when m.overlap <> {{OVERLAP_SKIP}} then null
                when {{has_live_run(m)}} then {{STILL_ALIVE}}
                when i > m.first_run then {{DUE_TOGETHER}} end as skip_reason
    from moved m
    cross join lateral generate_series(m.first_run, m.last_run) as i
), created as (
    {{create_runs_of_jobs(n.nominal_for)}}
    where n.skip_reason is null
    returning run_id, lane_id, held_key, state
), waits as (
    {{waits_of_created(n.nominal_for)}}
), edges as (
    {{edges_of_moved}}
), ended_run as (
    {{skipped_runs(n.nominal_for)}}
), skips as (
    {{enter_history}}
), missed as (
    insert into mainspring.missed_fires (tenant_id, job_id, generation, first_at, last_at, count, reason)
    select m.tenant_id, m.job_id, m.generation, ({{gap_firsts}}::timestamptz[])[i], ({{gap_lasts}}::timestamptz[])[i],
           ({{gap_counts}}::int[])[i], ({{gap_reasons}}::text[])[i]
    from moved m
    cross join lateral generate_series(m.first_gap, m.last_gap) as i
)
select (select array_agg(position) from moved) as moved,
       (select array_agg(lane_id) from created where state = {{QUEUED}}) as lanes,
       (select count(*) from moved where edges is not null)::int as with_edges,
       (select array_agg((run_id, follows, held, feeds)) from skips where follows <> 0) as skipped,
       {{held_of_created}}

-- -------------------------------------------------------------------------------- the status of a one-time job
-- A one-time job that has fired has no row: its status is that of one of its runs, the deciding one. A live run decides
-- before an ended one. Of several live runs one that runs decides, then one that waits, then one that is being stopped.
-- Of several ended runs the newest decides. A run that was skipped because another one was alive decides last.
-- operations/read/one_time.py says the same in Python.

-- fragment: job_of(run)
-- The job of a run. The column is null if it equals run_id.
coalesce({{run}}.job_id, {{run}}.run_id::text)

-- fragment: own_id(run)
-- The run that is itself the job of this run, if the id of the job was generated.
case when {{run}}.job_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then {{run}}.job_id::uuid end

-- fragment: later(other, run)
-- Whether a run of the same job was created later. The id of a run that is itself a job is from the submission, so its
-- time counts and not its id.
case when {{other}}.job_id is not null and {{run}}.job_id is not null then {{other}}.run_id > {{run}}.run_id
     else (coalesce({{other}}.fired_at, {{other}}.scheduled_for), {{other}}.run_id)
          > (coalesce({{run}}.fired_at, {{run}}.scheduled_for), {{run}}.run_id) end

-- fragment: live_rank(run)
-- Which live run decides, and the status of its job: 3 is RUNNING, 2 SCHEDULED, 1 CANCELLED.
case when {{run}}.cancel_requested_at is not null then 1
     when {{run}}.state = {{RUNNING}} and {{run}}.started_at >= {{run}}.claimed_at then 3
     else 2 end

-- fragment: overlapped(run)
-- Whether an ended run was skipped because another run of its job was alive.
({{run}}.state = {{SKIPPED}} and {{run}}.reason in ({{STILL_ALIVE}}, {{DUE_TOGETHER}})) is true

-- fragment: of_earlier_generation(run)
-- Whether the id of the run's job was used again later. A run that is itself a job has no other generation.
({{run}}.job_id is not null
 and {{run}}.generation < (select t.generation from mainspring.taken_ids t
                           where t.tenant_id = {{run}}.tenant_id and t.job_id = {{run}}.job_id offset 0)) is true

-- fragment: live_beaten
-- Whether the live run o of the same job decides before r.
({{live_rank(o)}} > {{live_rank(r)}} or {{live_rank(o)}} = {{live_rank(r)}} and {{later(o, r)}})

-- fragment: live_decides
-- Whether the live run r decides the status of a one-time job that has fired. "case" asks for the job first: a recurring
-- one may have many runs.
case when r.job_id is not null and exists (select from mainspring.jobs j
                                           where j.tenant_id = r.tenant_id and j.job_id = r.job_id offset 0) then false
     when {{of_earlier_generation(r)}} then false
     when exists (select from mainspring.runs o
                  where o.tenant_id = r.tenant_id and o.job_id = {{job_of(r)}} and o.run_id <> r.run_id
                    and o.generation = r.generation and {{live_beaten}}
                  offset 0) then false
     else not exists (select from mainspring.runs o
                      where o.run_id = {{own_id(r)}} and o.tenant_id = r.tenant_id and o.job_id is null
                        and {{live_beaten}}
                      offset 0) end

-- fragment: ended_decides
-- The same for the ended run h. A run that was created later has not ended before: that says which partitions to read.
-- The hour is for clocks that differ. Only a run that is itself a job is compared by time; see `later`.
case when h.job_id is not null and exists (select from mainspring.jobs j
                                           where j.tenant_id = h.tenant_id and j.job_id = h.job_id offset 0) then false
     when {{of_earlier_generation(h)}} then false
     when exists (select from mainspring.runs o
                  where o.tenant_id = h.tenant_id and o.job_id = {{job_of(h)}} and o.generation = h.generation
                  offset 0) then false
     when h.job_id is null then
         not exists (select from mainspring.run_history o
                     where o.job_id = h.run_id::text and o.tenant_id = h.tenant_id
                       and o.ended_at >= case when {{overlapped(h)}} then '-infinity'
                                              else coalesce(h.fired_at, h.scheduled_for) - interval '1 hour' end
                       and case when {{overlapped(o)}} <> {{overlapped(h)}} then {{overlapped(h)}}
                                else {{later(o, h)}} end
                     offset 0)
     when exists (select from mainspring.run_history o
                  where o.job_id = h.job_id and o.tenant_id = h.tenant_id and o.run_id > h.run_id
                    and o.generation = h.generation
                    and o.ended_at >= coalesce(h.fired_at, h.scheduled_for) - interval '1 hour'
                    and ({{overlapped(h)}} or not {{overlapped(o)}})
                  offset 0) then false
     when {{overlapped(h)}} and exists (select from mainspring.run_history o
                                        where o.job_id = h.job_id and o.tenant_id = h.tenant_id and o.run_id < h.run_id
                                          and o.generation = h.generation
                                          and not {{overlapped(o)}}
                                        offset 0) then false
     when {{own_id(h)}} is null then true
     when exists (select from mainspring.runs o
                  where o.run_id = {{own_id(h)}} and o.tenant_id = h.tenant_id and o.job_id is null offset 0) then false
     else not exists (select from mainspring.run_history o
                      where o.run_id = {{own_id(h)}} and o.tenant_id = h.tenant_id and o.job_id is null
                        and case when {{overlapped(o)}} <> {{overlapped(h)}} then {{overlapped(h)}}
                                 else {{later(o, h)}} end
                      offset 0) end

-- fragment: wanted_job(run)
-- The filters of a list of jobs, on the run of a one-time job that has fired: its place, lanes, owner, label, text, and
-- the bounds of the generated id. Steps of workflows are no jobs.
{{run}}.tenant_id = $1
and starts_with({{run}}.trigger, {{STEP_TRIGGER}}) is not true
and ($2::uuid is null or {{run}}.run_id < $2)
and ($3::uuid is null or {{run}}.run_id >= $3)
and ($4::int[] is null or {{run}}.lane_id = any ($4))
and ($10::uuid is null or {{run}}.job_id is not null or {{run}}.run_id >= $10)
and ($11::uuid is null or {{run}}.job_id is not null or {{run}}.run_id < $11)
and ($6::text is null or {{run}}.spec ->> 'owner' = $6)
and ($7::text is null or {{run}}.spec -> 'labels' ->> $7 = $8)
and ($12::text is null or {{run}}.created_by = any ({{tokens_called($1, $12)}}))
and ($13::jsonb is null or ({{run}}.spec -> 'labels')::jsonb @> $13::jsonb)
and ($9::text is null or coalesce({{run}}.job_id, {{run}}.run_id::text) ilike $9 or {{run}}.name ilike $9)

-- fragment: job_created(tenant, id, generated)
-- When a job was created: the time in a generated id, or else the time at which the id was taken. So the time is known
-- after a one-time job has fired and has no row any more.
case when {{generated}} then to_timestamp(('x' || left(translate({{id}}, '-', ''), 12))::bit(48)::bigint / 1000.0)
     else (select i.taken_at from mainspring.taken_ids i where i.tenant_id = {{tenant}} and i.job_id = {{id}}) end

-- ------------------------------------------------------------------------------------------- columns of rows

-- fragment: run_columns
-- The common columns of live and ended runs: the fields of store/history.py RunRow.
run_id, lane_id, state, attempt, max_attempts, fence, scheduled_for, fired_at, cancel_requested_at, worker_id, node_id,
       job_id, trigger, name, {{PAYLOAD_TEXT}}, spec::text as spec_text, losses, snoozes, generation, created_by,
       {{creator}} as creator

-- fragment: live_run_columns
-- The fields of store/history.py LiveRun.
{{run_columns}},
       ready_at, claimed_at, {{started_at}} as started_at, deadline, last_error, progress, progress_text,
       case when attempt = 0 then expires_at end as expires_at, snoozed_until, held_key, usage::text as usage_text,
       (select clock_timestamp()) as now

-- fragment: ended_run_columns
-- The fields of store/history.py EndedRun.
{{run_columns}},
       started_at, ended_at, ran_ms, reason, error, {{RESULT_TEXT}},
       state = {{SUCCESS}} and payload is null and payload_dropped is true as payload_dropped, usage::text as usage_text

-- fragment: ended_row
-- The columns of run_history that ended_run_columns and ended_decides need, as they are stored.
h.run_id, h.tenant_id, h.lane_id, h.state, h.attempt, h.max_attempts, h.fence, h.scheduled_for, h.fired_at,
h.cancel_requested_at, h.worker_id, h.node_id, h.job_id, h.trigger, h.name, h.payload, h.spec, h.losses, h.snoozes,
h.started_at, h.ended_at, h.ran_ms, h.reason, h.error, h.result, h.payload_dropped, h.generation, h.usage, h.created_by

-- fragment: brief_columns
-- The fields of store/fired_jobs.py BriefRun that live and ended runs share.
run_id, job_id, state, attempt, max_attempts, losses, snoozes, scheduled_for, fired_at, cancel_requested_at, worker_id,
       trigger, generation

-- fragment: brief_live_columns
{{brief_columns}}, ready_at, snoozed_until, claimed_at, {{started_at}} as started_at, null::timestamptz as ended_at,
       null::real as ran_ms, null::text as reason, left(last_error, 2001) as error, (select clock_timestamp()) as now

-- fragment: brief_ended_columns
{{brief_columns}}, null::timestamptz as ready_at, null::timestamptz as snoozed_until, null::timestamptz as claimed_at,
       started_at, ended_at, ran_ms, reason, left(error, 2001) as error, (select clock_timestamp()) as now

-- fragment: new_jobs
-- Jobs rows. The version of a later generation does not begin with 1.
insert into mainspring.jobs as j
    (tenant_id, job_id, lane_id, shard, status, version, overlap, max_attempts, one_time, id_generated, next_fire_at,
     created_at, updated_at, name, schedule, payload, spec, declared_by, generation, runs_left, edges,
     created_by)
select $1, u.job_id, u.lane_id, u.shard, {{JOB_SCHEDULED}}, u.generation, u.overlap, u.max_attempts, u.one_time,
       u.id_generated, u.next_fire_at, c.created_at, c.created_at, u.name, u.schedule, u.payload, u.spec, u.declared_by,
       u.generation, u.runs_left,
       case when u.id_generated then u.edges
            else nullif(coalesce(u.edges, 0) | case when {{has_dependants(u)}} then {{EDGES_FOLLOWED}} else 0 end, 0) end,
       $18::uuid
from (select $1::int as tenant_id, w.* from unnest($2::text[], $3::int[], $4::smallint[], $5::smallint[], $6::smallint[], $7::boolean[], $8::boolean[],
            $9::timestamptz[], $10::text[], $11::json[], $12::json[], $13::json[], $14::text[], $15::int[], $16::int[],
            $17::smallint[])
         as w (job_id, lane_id, shard, overlap, max_attempts, one_time, id_generated, next_fire_at, name, schedule,
               payload, spec, declared_by, generation, runs_left, edges)) as u
cross join lateral (
    select coalesce({{job_created($1, u.job_id, u.id_generated)}}, (select clock_timestamp())) as created_at
) as c

-- fragment: generation_of(submission)
-- The generation that mainspring.submit has begun in this transaction, which holds the lock of the id.
coalesce((select t.generation from mainspring.taken_ids t
          where t.tenant_id = {{submission}}.tenant_id and t.job_id = {{submission}}.job_id), 1)

-- fragment: replace_ended
-- The row of an ended job becomes that of its next generation; j is the job.
on conflict (tenant_id, job_id) do update
set lane_id = excluded.lane_id, status = excluded.status, version = greatest(j.version + 1, excluded.version),
    overlap = excluded.overlap, max_attempts = excluded.max_attempts, one_time = excluded.one_time,
    id_generated = excluded.id_generated, next_fire_at = excluded.next_fire_at, last_fired_for = null,
    last_nominal_for = null, paused_from = null, created_at = excluded.created_at, updated_at = excluded.updated_at, name = excluded.name,
    schedule = excluded.schedule, payload = excluded.payload, spec = excluded.spec, declared_by = excluded.declared_by,
    pruned_version = null, generation = excluded.generation, runs_left = excluded.runs_left, edges = excluded.edges,
    created_by = excluded.created_by
where j.status in ({{JOBS_ENDED}}) and j.generation < excluded.generation

-- fragment: job_columns
-- The fields of store/jobs.py JobRow.
tenant_id, job_id, lane_id, shard, status, version, overlap, next_fire_at, last_fired_for, last_nominal_for, paused_from,
       created_at, updated_at, name, schedule::text as schedule_text, {{PAYLOAD_TEXT}}, spec::text as spec_text,
       declared_by, pruned_version, generation, runs_left, created_by, {{creator}} as creator

-- fragment: tokens_called(tenant, text)
-- The tokens of the tenant with this name or id. The list is made once for a statement.
array(select t.token_id from mainspring.tokens t
      where t.tenant_id = {{tenant}} and (t.name = {{text}} or t.token_id::text = {{text}}))

-- fragment: has_labels(row, labels)
-- Whether the labels of a job or run have these names and values, which are JSON.
({{row}}.spec -> 'labels')::jsonb @> {{labels}}::jsonb

-- fragment: creator
-- The name of the token in the column created_by.
(select t.name from mainspring.tokens t where t.token_id = created_by)

-- fragment: listed_job
-- The filters of a list of jobs that have a row.
j.tenant_id = $1
  and ($2::timestamptz is null or (j.created_at, j.job_id) < ($2, $3))
  and ($10::timestamptz is null or (j.created_at, j.job_id) >= ($10, $11))
  and (j.status = any ($4::smallint[]) or $16 and j.one_time and j.status = {{JOB_COMPLETED}})
  and ($5::int[] is null or j.lane_id = any ($5))
  and ($12::timestamptz is null or j.created_at >= $12)
  and ($13::timestamptz is null or j.created_at < $13)
  and ($14::timestamptz is null or j.next_fire_at >= $14)
  and ($15::timestamptz is null or j.next_fire_at < $15)
  and ($17::text is null or j.declared_by = $17)
  and ($18::text is null or j.created_by = any ({{tokens_called($1, $18)}}))
  and ($19::jsonb is null or {{has_labels(j, $19)}})
  and ($6::text is null or j.spec ->> 'owner' = $6)
  and ($7::text is null or j.spec -> 'labels' ->> $7 = $8)
  and ($9::text is null or j.job_id ilike $9 or j.name ilike $9)
  and ($20::smallint[] is null
       or not j.one_time and j.status in ({{JOB_SCHEDULED}}, {{JOB_PAUSED}})
          and coalesce((select h.state from mainspring.job_health h
                        where h.tenant_id = j.tenant_id and h.job_id = j.job_id and h.generation = j.generation),
                       {{HEALTH_NEVER_RAN}}) = any ($20))

-- fragment: dead_letter_columns
-- The fields of store/dead_letters.py DeadLetterRow.
run_id, lane_id, job_id, name, attempts, error, reason, trigger, scheduled_for, died_at, payload::text as payload_text,
       generation

-- fragment: worker_columns
-- The first fields of store/workers.py WorkerRow; w is the worker.
w.worker_id, w.tenant_id, w.name, w.queues, w.tasks, w.labels::text as labels_text, w.version, w.slots, w.state,
       w.registered_at, array[]::text[] as left_out

-- fragment: is_large(value)
-- Whether a value of a row is too large for a list: 4 KiB. The stored size is looked at first, so that large values are
-- not even decompressed.
(pg_column_size({{value}}) > 4096 or octet_length({{value}}::text) > 4096)

-- fragment: listed_worker_columns
-- The same, and the names of the columns that are left out because they are large.
w.worker_id, w.tenant_id, w.name, case when {{is_large(w.queues)}} then '{}' else w.queues end as queues,
       case when {{is_large(w.tasks)}} then '{}' else w.tasks end as tasks,
       case when {{is_large(w.labels)}} then '{}' else w.labels::text end as labels_text, w.version, w.slots, w.state,
       w.registered_at,
       array_remove(array[case when {{is_large(w.queues)}} then 'queues' end,
                          case when {{is_large(w.tasks)}} then 'tasks' end,
                          case when {{is_large(w.labels)}} then 'labels' end], null) as left_out

-- fragment: still_silent
-- Those of the workers $1 that are alive, have taken no sequence number since $2, and have sent no heartbeat for $3
-- seconds. Their rows are locked. Rows that somebody else has locked are left out.
select w.worker_id
from mainspring.workers w
join unnest($1::uuid[], $2::bigint[], $3::float8[]) as a (worker_id, last_seq, seconds)
    on a.worker_id = w.worker_id and a.last_seq = w.last_seq
where w.state in ({{WORKERS_ALIVE}})
  and not exists (
      select from (select b.at, unnest(b.worker_ids) as worker_id
                   from (select at, worker_ids from mainspring.worker_beats_0
                         union all
                         select at, worker_ids from mainspring.worker_beats_1) as b
                   where b.at > (select clock_timestamp())
                                - (select max(seconds) from unnest($3::float8[]) as s (seconds)) * interval '1 second'
                  ) as heard
      where heard.worker_id = w.worker_id and heard.at > (select clock_timestamp()) - a.seconds * interval '1 second')
order by w.worker_id
for no key update of w skip locked

-- fragment: keep_last_beats(this, other)
-- Copy the last heartbeats in the table {{this}} to the rows of workers that are listed, where neither their row nor the
-- table {{other}} has a later one. After an outage the other table may contain only older ones. Rows that somebody else has
-- locked are left out. Returns how many.
with later as materialized (
    select worker_id, max(at) as at
    from (select at, unnest(worker_ids) as worker_id from {{other}}) as o
    group by worker_id
), heard as materialized (
    select distinct on (b.worker_id) b.worker_id, b.at, b.server_id
    from (select at, server_id, unnest(worker_ids) as worker_id from {{this}}) as b
    join mainspring.workers w on w.worker_id = b.worker_id
    left join later l on l.worker_id = b.worker_id
    where (w.state in ({{WORKERS_ALIVE}}) or w.ended_at > (select clock_timestamp()) - interval '1 hour')
      and b.at > coalesce(greatest(w.heard_at, l.at), '-infinity')
    order by b.worker_id, b.at desc
), free as materialized (
    select w.worker_id
    from mainspring.workers w
    join heard h on h.worker_id = w.worker_id
    order by w.worker_id
    for no key update of w skip locked
), kept as (
    update mainspring.workers w
    set heard_at = h.at, heard_by = h.server_id
    from heard h
    join free f on f.worker_id = h.worker_id
    where w.worker_id = h.worker_id and h.at > coalesce(w.heard_at, '-infinity')
    returning w.worker_id
)
select (select count(*) from heard) - (select count(*) from kept)

-- fragment: token_columns
-- The fields of store/tokens.py TokenRow; t is the token, n its tenant.
t.token_id, t.tenant_id, n.name as tenant, t.role, t.name, t.created_at, t.expires_at, t.revoked_at,
       t.narrowed::text as narrowed_text,
       (select u.mail from mainspring.users u where u.user_id = t.user_id) as user_mail

-- fragment: principal_columns
-- What store/tokens.py principal_of reads; t is the token. A personal token has the name of its person, too.
t.tenant_id, t.role, t.token_id, t.narrowed::text as narrowed_text, t.user_id, t.member_id,
       case when t.member_id is null then t.name
            else coalesce((select m.name from mainspring.tokens m where m.token_id = t.member_id) || ': ', '') || t.name
       end as name

-- fragment: user_columns
-- The fields of store/users.py UserRow; u is the user.
u.user_id, u.mail, u.name, u.password_hash, u.password_at, u.disabled_at, u.created_at

-- fragment: is_valid_token
-- Whether the token t is valid. What belongs to a person ends with the person, and a personal token with its member.
t.revoked_at is null and (t.expires_at is null or t.expires_at > (select clock_timestamp()))
  and (t.user_id is null
       or exists (select from mainspring.users u
                  left join mainspring.tokens m on m.token_id = t.member_id
                  where u.user_id = t.user_id and u.disabled_at is null
                    and (t.member_id is null or m.revoked_at is null)))

-- fragment: tenant_columns
-- The fields of store/tenants.py TenantRow.
tenant_id, name, created_at

-- fragment: unique_state(run)
-- The state of a run as the field `unique` names it.
case {{run}}.state when {{QUEUED}} then 'queued' when {{RUNNING}} then 'running' else 'held' end

-- ------------------------------------------------------------------------------------------- idempotency keys

-- fragment: run_with_keys
run_id, tenant_id, ended_at, spec ->> 'idempotency_key' as key, coalesce(job_id, run_id::text) as job_id, generation

-- fragment: kept_keys
-- The keys of the jobs of the ended runs in `page` remember these ends.
kept as (
    update mainspring.idempotency_keys k
    set created_at = p.ended_at
    from (select tenant_id, key, max(ended_at) as ended_at from page where key is not null group by tenant_id, key) as p
    where k.tenant_id = p.tenant_id and k.key = p.key and k.created_at < p.ended_at
), kept_run_now as (
    update mainspring.run_now_keys k
    set created_at = p.ended_at
    from (select tenant_id, job_id, generation, max(ended_at) as ended_at
          from page group by tenant_id, job_id, generation) as p
    where k.tenant_id = p.tenant_id and k.job_id = p.job_id and k.generation = p.generation
      and k.created_at < p.ended_at
)

-- fragment: keys_of_ended_jobs(table, days, limit)
-- Keys of jobs that ended more than so many days ago. A job has not ended while its generation has its row or a live run.
-- `created_at` is the time of the request, or of a later end whose history was dropped (`keep_keys`).
-- "offset 0" keeps the planner from reading the whole history into a hash table.
select k.ctid
from mainspring.{{table}} k
cross join lateral (select case when k.job_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                                then k.job_id::uuid end as run_id) as own
where k.created_at < (select clock_timestamp()) - {{days}} * interval '1 day'
  and not exists (select from mainspring.jobs j
                  where j.tenant_id = k.tenant_id and j.job_id = k.job_id and j.generation = k.generation offset 0)
  and not exists (select from mainspring.runs r
                  where r.tenant_id = k.tenant_id and r.job_id = k.job_id and r.generation = k.generation offset 0)
  and not exists (select from mainspring.runs r where r.run_id = own.run_id offset 0)
  and not exists (select from mainspring.run_history h
                  where h.job_id = k.job_id and h.tenant_id = k.tenant_id and h.generation = k.generation
                    and h.ended_at > (select clock_timestamp()) - {{days}} * interval '1 day'
                  offset 0)
  and not exists (select from mainspring.run_history h
                  where h.run_id = own.run_id
                    and h.ended_at > (select clock_timestamp()) - {{days}} * interval '1 day'
                  offset 0)
limit {{limit}}

-- ------------------------------------------------------------------------------------------------- ids by a part

-- fragment: newest_runs_by_part(table)
-- $5: look for runs that end with the part. $6: look for jobs. A one-time job that has fired has no row of its own, and a
-- job whose id was generated has the id of its run.
with newest as materialized (
    select run_id, tenant_id, job_id from mainspring.{{table}} order by run_id desc limit $3
), found as (
    (select false as job, run_id::text as id, run_id
     from newest
     where $5 and tenant_id = $1 and right(run_id::text, length($2)) = $2
     limit $4)
    union all
    (select distinct true, coalesce(job_id, run_id::text), null::uuid
     from newest
     where $6 and tenant_id = $1
       and (starts_with(coalesce(job_id, run_id::text), $2) or right(coalesce(job_id, run_id::text), length($2)) = $2)
     limit $4)
)
select (select count(*) from newest)::int as scanned, found.job, found.id, r.lane_id, r.name
from (select) as one
left join found on true
left join mainspring.{{table}} r on r.run_id = found.run_id

-- fragment: runs_between(table)
-- The runs whose ids begin with a part, which all lie between $2 and $3.
with newest as materialized (
    select run_id, tenant_id, lane_id, name
    from mainspring.{{table}}
    where run_id between $2 and $3
    order by run_id desc
    limit $4
)
select (select count(*) from newest)::int as scanned, false as job, found.id, found.lane_id, found.name
from (select) as one
left join (
    select run_id::text as id, lane_id, name from newest where tenant_id = $1 limit $5
) as found on true

-- fragment: breaker_columns
-- BreakerRow in store/breakers.py.
l.limit_id, k.key_id, l.name, l.failures, l.open_for, k.failed, k.opened_at, k.next_at, k.probe,
(select count(*) from mainspring.runs r where r.held_key = k.key_id and r.state = {{HELD}})::int as held

-- fragment: calendar_columns
-- CalendarRow in store/calendars.py.
c.tenant_id, c.name, c.version, c.rules_version, c.digest, c.rules::text as rules_text, c.description, c.recomputed,
       c.created_at, c.updated_at

-- fragment: job_in_calendar(tenant, name)
-- A job that can fire and uses the calendar, as the index has it.
j.tenant_id = {{tenant}} and j.schedule ->> 'calendar' = {{name}} and j.schedule ->> 'calendar' is not null
  and j.status in ({{JOB_SCHEDULED}}, {{JOB_PAUSED}})

-- fragment: completed_in_calendar(tenant, name)
-- A job that has no further fire, unless the calendar allows one again, as the index has it.
j.tenant_id = {{tenant}} and j.schedule ->> 'calendar' = {{name}} and j.schedule ->> 'calendar' is not null
  and j.status = {{JOB_COMPLETED}} and j.runs_left is distinct from 0
  and ((j.schedule ->> 'end') is null or (j.schedule ->> 'end')::timestamptz > (select clock_timestamp()))

-- fragment: recomputed_columns
-- JobToRecompute in store/calendars.py.
j.tenant_id, j.job_id, j.version, j.status, j.one_time, j.next_fire_at, j.paused_from, j.last_fired_for,
       j.last_nominal_for, j.schedule::text as schedule_text, (select clock_timestamp()) as now

-- ---------------------------------------------------------------------------------------------------- backfills

-- fragment: backfill_columns
-- BackfillRow in store/backfills.py; j is the job, if it still has its row.
b.backfill_id, b.job_id, b.generation, {{shown_backfill_state}} as state, b.from_at, b.to_at, b.newest_first, b.concurrency,
b.total, b.created, b.existing, cardinality(b.live) as running, b.succeeded, b.failed, b.cancelled, b.skipped, b.reason,
b.created_at, b.updated_at, b.ended_at, j.status as job_status,
(select o.backfill_id from mainspring.backfills o
 where o.tenant_id = b.tenant_id and o.job_id = b.job_id and o.backfill_id < b.backfill_id
   and o.state = {{BACKFILL_RUNNING}} and {{has_fires_left(o)}} and b.state = {{BACKFILL_RUNNING}}
 order by o.backfill_id limit 1) as waits_for

-- fragment: shown_backfill_state
-- While its job is paused, a backfill is too.
case when b.state = {{BACKFILL_RUNNING}} and j.status = {{JOB_PAUSED}} then {{BACKFILL_PAUSED}} else b.state end

-- fragment: has_fires_left(backfill)
({{backfill}}.slice is not null
 or case when {{backfill}}.newest_first then {{backfill}}.fire_cursor > {{backfill}}.from_at
         else {{backfill}}.fire_cursor < {{backfill}}.to_at end)

-- ---------------------------------------------------------------------------------------------------- forecasts

-- fragment: schedule_groups
-- Jobs `j` with the same schedule, or one-time jobs of the same minute, and some of their ids.
j.tenant_id, case when j.one_time then '' else j.schedule::text end as schedule_text,
       case when j.one_time then date_trunc('minute', j.next_fire_at, 'UTC') end as minute,
       count(*) as jobs, (array_agg(j.job_id))[1:5] as job_ids

-- fragment: next_fire_columns
-- The fields of store/forecasts.py NextFire.
j.tenant_id, j.shard, j.job_id, j.name, j.lane_id, j.next_fire_at, j.schedule::text as schedule_text, j.runs_left

-- ------------------------------------------------------------------------------------------------------ rollups

-- fragment: bucket(ms)
-- The bucket of a histogram, as bucket_of in domain/rollups.py. $5 has the bounds. Null of null.
width_bucket({{ms}}, $5::float8[])

-- fragment: time_in_id
-- The time in the id of `run`.
to_timestamp(('x' || left(translate({{run}}.run_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)

-- fragment: lag_ms(run, started)
-- From lag_from of domain/start_lag.py to the start. The id of a run tells when it was created: fired_at lies far behind in
-- the row, and to read it takes longer than all of this. To read the id takes 5 µs, so that is done only for one-time jobs
-- that started late. The run of one with a generated id has the id of the job. For a chosen id the creation is looked up.
date_part('epoch', {{started}} - case
    when {{run}}.trigger is null
         or {{run}}.trigger = 'at' and {{started}} <= {{run}}.scheduled_for + interval '{{LATE_FOR_LAG}} seconds'
    then {{run}}.scheduled_for
    when {{run}}.trigger <> 'at' then {{time_in_id}}
    when {{run}}.job_id is null then greatest({{run}}.scheduled_for, {{time_in_id}})
    else greatest({{run}}.scheduled_for, least({{time_in_id}}, coalesce((
        select t.taken_at from mainspring.taken_ids t
        where t.tenant_id = {{run}}.tenant_id and t.job_id = {{run}}.job_id), {{run}}.scheduled_for)))
    end) * 1000

-- fragment: rollup_counts
succeeded, failed, cancelled, skipped, retried, lost, missed, ran_us

-- fragment: rollup_columns
-- Rollup in store/rollups.py.
at, {{rollup_counts}}, lag_first, lag, ran_first, ran

-- fragment: add_to_rollups
-- What a statement adds to rollups r that exist.
on conflict (span, tenant_id, task, queue, at) do update
set succeeded = r.succeeded + excluded.succeeded, failed = r.failed + excluded.failed,
    cancelled = r.cancelled + excluded.cancelled, skipped = r.skipped + excluded.skipped,
    retried = r.retried + excluded.retried, lost = r.lost + excluded.lost, missed = r.missed + excluded.missed,
    ran_us = r.ran_us + excluded.ran_us,
    lag_first = least(r.lag_first, excluded.lag_first), lag = {{sum_of_histograms(lag)}},
    ran_first = least(r.ran_first, excluded.ran_first), ran = {{sum_of_histograms(ran)}}

-- fragment: sum_of_histograms(name)
-- The one that begins later gets zeros in front.
case when r.{{name}} is null then excluded.{{name}}
     when excluded.{{name}} is null then r.{{name}}
     else (select array_agg(coalesce(x, 0) + coalesce(y, 0))
           from unnest(array_fill(0::bigint, array[greatest(0, r.{{name}}_first - excluded.{{name}}_first)]) || r.{{name}},
                       array_fill(0::bigint, array[greatest(0, excluded.{{name}}_first - r.{{name}}_first)])
                       || excluded.{{name}}) as both_of (x, y)) end

-- fragment: run_of_attempt
-- The run of attempt `a`, live or ended. It has ended after the attempt, which has not ended before $1; the hour is for
-- clocks that differ. Compared with parameters, partitions are chosen once and not for each attempt.
select run_id, tenant_id, lane_id, scheduled_for, trigger, job_id from mainspring.runs r where r.run_id = a.run_id
union all
select run_id, tenant_id, lane_id, scheduled_for, trigger, job_id
from mainspring.run_history h
where h.run_id = a.run_id and h.ended_at >= $1 - interval '1 hour' and h.ended_at < $3
limit 1

-- fragment: first_line(text)
left(split_part(ltrim({{text}}, E' \n\r\t'), E'\n', 1), 300)

-- fragment: like_line(text)
-- The same, with 1 for the digits from 2 on. Its mask is the same, and far fewer lines differ.
translate(left(split_part(ltrim({{text}}, E' \n\r\t'), E'\n', 1), 300), '23456789', '11111111')

-- fragment: run_end
-- RunEnd in store/rollups.py.
h.run_id, h.lane_id, h.state, h.scheduled_for, h.ended_at, h.ran_ms,
case when h.attempt = 1 then {{lag_ms(h, h.started_at)}} end as lag_ms,
case when h.state = {{FAILED}} then coalesce({{first_line(h.error)}}, h.reason, '') end as line

-- fragment: operation_columns
-- The fields of store/operations.py OperationRow.
o.operation_id, o.tenant_id, o.target, o.verb, o.filter::text as filter_text, o.ids, o.state, o.count, o.exact,
       o.expected, o.place, o.done, o.failed, o.failures::text as failures_text, o.reason, o.requested_by,
       o.created_at, o.updated_at, o.ended_at, o.token_id,
       (select t.narrowed::text from mainspring.tokens t where t.token_id = o.token_id) as narrowed_text

-- fragment: has_values(spec)
-- Whether the spec has each value of $13 at its path in $12, such as {labels,team}.
(select bool_and(coalesce({{spec}} #>> w.path::text[] = w.value, false))
 from unnest($12::text[], $13::text[]) as w (path, value))

-- fragment: wanted_live_run
-- The filters of a list of live runs. Texts are compared last, because that costs most.
r.tenant_id = $1
  and ($2::uuid is null or r.run_id < $2)
  and ($3::text is null or r.job_id = $3)
  and ($4::int[] is null or r.lane_id = any ($4))
  and ($5::smallint[] is null or {{listed_state}} = any ($5))
  and ($7::timestamptz is null or r.scheduled_for >= $7)
  and ($8::timestamptz is null or r.scheduled_for < $8)
  and ($9::uuid is null or (r.run_id = $9 and r.job_id is null))
  and ($10::timestamptz is null or coalesce(r.fired_at, r.scheduled_for) >= $10)
  and ($11::timestamptz is null or coalesce(r.fired_at, r.scheduled_for) < $11)
  and ($12::text[] is null or {{has_values(r.spec)}})
  and ($14::int is null or r.generation = $14)
  and ($15::uuid is null or r.worker_id = $15)
  and ($16::text is null or r.created_by = any ({{tokens_called($1, $16)}}))
  and ($17::jsonb is null or {{has_labels(r, $17)}})
  and ($6::text is null or r.last_error ilike $6)

-- fragment: wanted_ended_run
-- The same for ended runs.
h.tenant_id = $1
  and ($2::uuid is null or h.run_id < $2)
  and ($4::int[] is null or h.lane_id = any ($4))
  and ($5::smallint[] is null or h.state = any ($5))
  and ($7::timestamptz is null or (h.scheduled_for >= $7 and h.ended_at >= $7 - interval '1 hour'))
  and ($8::timestamptz is null or h.scheduled_for < $8)
  and ($3::text is null or h.job_id = $3)
  and ($9::uuid is null or (h.run_id = $9 and h.job_id is null))
  and ($10::timestamptz is null
       or (coalesce(h.fired_at, h.scheduled_for) >= $10 and h.ended_at >= $10 - interval '1 hour'))
  and ($11::timestamptz is null or coalesce(h.fired_at, h.scheduled_for) < $11)
  and ($12::text[] is null or {{has_values(h.spec)}})
  and ($14::int is null or h.generation = $14)
  and ($15::uuid is null or h.worker_id = $15)
  and ($16::text is null or h.created_by = any ({{tokens_called($1, $16)}}))
  and ($17::jsonb is null or {{has_labels(h, $17)}})
  and ($6::text is null or h.error ilike $6)

-- fragment: chosen_letter
-- The filters of verbs on dead letters.
d.tenant_id = $1
  and ($2::uuid is null or d.run_id > $2)
  and ($3::text is null or d.job_id = $3 or (d.job_id is null and d.run_id::text = $3))
  and ($4::int[] is null or d.lane_id = any ($4))
  and ($6::timestamptz is null or d.died_at >= $6)
  and ($7::timestamptz is null or d.died_at < $7)
  and d.died_at <= $8
  and ($9::jsonb is null or {{has_labels(d, $9)}})
  and ($5::text is null or d.error ilike $5)

-- --------------------------------------------------------------------------------------------------- output of runs

-- fragment: advanced_logs
-- Advances the valid length of logs, and starts them. The share lock makes a report, a rescue and a recall wait, so the
-- worker holds the run during the write, and nothing is appended to the log of an ended attempt. The first six arguments are
-- the pieces, $7 and $8 the tenant of the worker and its id. A shared worker has runs of any tenant.
piece as (
    select * from unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::boolean[], $6::boolean[])
        as p (run_id, fence, first_byte, size, truncated, ended)
), held as materialized (
    select r.run_id, r.fence, r.attempt, r.tenant_id, r.worker_id, r.lane_id, r.spec ->> 'keep_logs' as keep_logs,
           r.spec -> 'labels' as labels
    from mainspring.runs r
    where r.run_id = any ($1::uuid[]) and $7 in (r.tenant_id, {{EVERY_TENANT}}) and r.worker_id = $8
      and r.state + 0 = {{RUNNING}}
      and exists (select from mainspring.workers w where w.worker_id = $8 and w.tenant_id = $7)
    order by r.run_id
    for share
), begun as (
    insert into mainspring.run_logs (run_id, attempt, fence, tenant_id, worker_id, bytes, truncated, ended, keep_until)
    select h.run_id, h.attempt, h.fence, h.tenant_id, h.worker_id, p.size, p.truncated, p.ended,
           (select clock_timestamp()) + coalesce(h.keep_logs::float8, (
               select max(k.seconds)
               from mainspring.log_retention t
               cross join jsonb_to_recordset(t.rules) as k (labels jsonb, seconds float8)
               where t.tenant_id = h.tenant_id and h.labels::jsonb @> k.labels)) * interval '1 second'
    from held h
    join piece p on p.run_id = h.run_id and p.fence = h.fence
    where p.first_byte = 0
    order by h.run_id
    on conflict do nothing
    returning run_id, fence, attempt, tenant_id
), grown as (
    update mainspring.run_logs g
    set bytes = p.first_byte + p.size, truncated = g.truncated or p.truncated, ended = g.ended or p.ended,
        updated_at = (select clock_timestamp())
    from held h
    join piece p on p.run_id = h.run_id and p.fence = h.fence
    where g.run_id = any ($1::uuid[]) and g.run_id = h.run_id and g.fence = h.fence
      and g.bytes = p.first_byte and (p.size = 0 or not g.truncated)
    returning g.run_id, g.fence, g.attempt, g.tenant_id
), advanced as (
    select run_id, fence, attempt, tenant_id from begun
    union all
    select run_id, fence, attempt, tenant_id from grown
)

-- ----------------------------------------------------------------------------------------------------------- audit

-- fragment: audit_entry
e.entry_id, e.at, e.tenant_id, e.source, e.token_id, e.session_id, e.actor, e.role, e.address, e.client, e.operation,
e.kind, e.object_id, e.before, e.after
-- fragment: channel_columns
c.tenant_id, c.name, c.kind, c.version, c.settings::text as settings_text, c.created_at, c.updated_at, c.updated_by,
array(select json_object_keys(s.secrets) from mainspring.channel_secrets s
      where s.tenant_id = c.tenant_id and s.name = c.name order by 1) as secret_names

-- fragment: notification_columns
n.notification_id, n.tenant_id, n.channel, n.rule, n.state, n.attempts, n.next_at, n.created_at, n.ended_at, n.error,
n.title, n.message::text as message_text, n.acknowledged_at, n.acknowledged_by

-- fragment: log_retention_columns
k.version, k.rules::text as rules_text, k.updated_at, k.updated_by

-- fragment: rule_columns
r.tenant_id, r.name, r.version, r.rule::text as rule_text, r.muted_until, r.created_at, r.updated_at, r.updated_by

-- fragment: alert_columns
a.tenant_id, a.grp, a.event, a.subject, a.channels, a.job_id, a.item::text as item_text, a.opened_at, a.last_at, a.count,
a.told_at, a.closed_at, a.acknowledged_at, a.escalated_at

-- fragment: first_day_of_history
-- When it begins; today if it is empty.
(select coalesce(min(to_date(right(c.relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC',
                 date_trunc('day', (select clock_timestamp()), 'UTC'))
 from pg_inherits i
 join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'mainspring.run_history'::regclass)

-- fragment: has_limits_of_time(run)
-- Whether a run may have a time to start, an expected duration or a deadline. To search the text is faster than to read it.
({{run}}.spec is not null
 and (strpos({{run}}.spec::text, '"deadline"') > 0 or strpos({{run}}.spec::text, '"late_after"') > 0
      or strpos({{run}}.spec::text, '"expected_duration"') > 0))

-- fragment: due_from(run)
-- The fire time of a run of a schedule, otherwise when the run was created.
case when coalesce({{run}}.trigger, 'at') = 'at' then {{run}}.scheduled_for
     else coalesce({{run}}.fired_at, {{run}}.scheduled_for) end

-- fragment: in_words(moment)
to_char({{moment}} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')

-- ---------------------------------------------------------------------------------------------------------- quotas

-- fragment: quota_numbers
-- Quotas in domain/quotas.py.
q.stored_jobs, q.submissions_per_second, q.runs_per_minute, q.queued_runs, q.concurrent_runs, q.payload_bytes,
q.log_bytes_per_day, q.tokens, q.history_days

-- fragment: quota_row
-- QuotaRow in store/quotas.py.
{{quota_numbers}}, q.version, q.updated_by, q.updated_at

-- ----------------------------------------------------------------------------------------------------------- sinks

-- fragment: kind_of_run(run)
case when coalesce({{run}}.follows, 0) & {{FOLLOWS_FLOW}} <> 0 then 'workflow_run.' else 'run.' end

-- fragment: data_of_run(run)
-- What a change tells of a run, live or ended, in the lane l. It has no payload and no result: these can be large, and not
-- for everybody.
'run_id', {{run}}.run_id, 'job_id', coalesce({{run}}.job_id, {{run}}.run_id::text), 'name', {{run}}.name,
'queue', l.queue, 'task', l.task, 'generation', {{run}}.generation, 'trigger', coalesce({{run}}.trigger, 'schedule'),
'status', case {{run}}.state when {{QUEUED}} then 'QUEUED' when {{RUNNING}} then 'RUNNING'
    when {{WAITING}} then 'WAITING' when {{HELD}} then 'HELD' when {{SUCCESS}} then 'SUCCESS'
    when {{FAILED}} then 'FAILED' when {{CANCELLED}} then 'CANCELLED' when {{SKIPPED}} then 'SKIPPED' end,
'attempt', {{run}}.attempt, 'max_attempts', {{run}}.max_attempts, 'scheduled_for', {{run}}.scheduled_for,
'started_at', {{run}}.started_at, 'worker_id', {{run}}.worker_id, 'labels', {{run}}.spec -> 'labels'

-- fragment: data_of_job(job)
'job_id', {{job}}.job_id, 'name', {{job}}.name, 'queue', l.queue, 'task', l.task, 'generation', {{job}}.generation,
'version', {{job}}.version,
'status', case {{job}}.status when {{JOB_SCHEDULED}} then 'SCHEDULED' when {{JOB_PAUSED}} then 'PAUSED'
    when {{JOB_CANCELLED}} then 'CANCELLED' when {{JOB_COMPLETED}} then 'COMPLETED' end,
'schedule', {{job}}.schedule, 'next_fire_at', {{job}}.next_fire_at, 'labels', {{job}}.spec -> 'labels'

-- fragment: sink_wants(sink, found)
-- Whether the sink wants the change. An entry of `changes` is a change, or the word before its dot.
{{sink}}.tenant_id = {{found}}.tenant_id
and ({{sink}}.changes is null or {{found}}.change = any ({{sink}}.changes)
     or split_part({{found}}.change, '.', 1) = any ({{sink}}.changes))
and ({{sink}}.queue is null or {{sink}}.queue = {{found}}.queue)
and ({{sink}}.task is null or {{sink}}.task = {{found}}.task)
and ({{sink}}.job_id is null or {{sink}}.job_id = {{found}}.job_id)
and ({{sink}}.labels is null or {{found}}.labels::jsonb @> {{sink}}.labels)

-- fragment: log_changes
-- Of the changes in `found`, those that a sink wants get a number each, and a row for each sink that wants it. `data` is made
-- for these alone.
insert into mainspring.sink_changes (sink_id, seq, at, change, subject, job_id, data)
select s.sink_id, n.seq, n.at, n.change, n.subject, n.job_id, n.data
from (
    select nextval('mainspring.sink_change_numbers') as seq, clock_timestamp() as at, w.*
    from (
        select f.change, f.subject, f.job_id, json_strip_nulls(f.data) as data, k.sinks
        from found f
        cross join lateral (select array_agg(s.sink_id) as sinks from mainspring.sinks s
                            where {{sink_wants(s, f)}}) as k
        where k.sinks is not null
        order by f.number
    ) as w
) as n
cross join lateral unnest(n.sinks) as s(sink_id)

-- fragment: sink_columns
-- SinkRow in store/sinks.py.
s.sink_id, s.tenant_id, s.name, s.kind, s.version, s.settings::text as settings_text, s.changes, s.queue, s.task,
s.job_id, s.labels::text as labels_text, s.keep_seconds, s.keep_bytes, s.paused, s.created_at, s.updated_at,
s.updated_by, array(select json_object_keys(k.secrets) from mainspring.sink_secrets k where k.sink_id = s.sink_id order by 1) as secret_names

-- fragment: fitting_chunk
c.tenant_id = $1 and c.stored_at >= $3 and c.stored_at < $4
and ($6::int[] is null or c.lane_id is null or c.lane_id = any ($6))
and ($7::bytea[] is null or c.words is null
     or (position(($7::bytea[])[1] in c.words) > 0 and position(($7::bytea[])[2] in c.words) > 0
         and position(($7::bytea[])[3] in c.words) > 0 and position(($7::bytea[])[4] in c.words) > 0))

-- fragment: closed_child(c)
-- The state of a step's row in child_runs when the step has ended: its child is cancelled if it is alive.
case when {{c}}.child is not null and exists (select from mainspring.runs x where x.run_id = {{c}}.child)
     then {{CHILD_TO_CANCEL}} else {{CHILD_OVER}} end

-- fragment: is_matched(e)
-- Whether what an event starts and ends is known.
({{e}}.matched and not exists (select from mainspring.unmatched_events u where u.seq = {{e}}.seq))
