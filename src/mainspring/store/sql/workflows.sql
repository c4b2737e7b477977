-- Workflow runs: how they start, what is kept of their steps, and how what is left of them is stopped. Locks are taken in
-- this order: the run that stands for it (its container), joins, its flow, its fan-outs, step runs.

-- name: queued_flows
-- Workflow runs that may start, locked. $1: the lanes of workflow runs.
select r.run_id, r.tenant_id, r.fence, coalesce(r.job_id, r.run_id::text) as job_id, r.generation, r.scheduled_for,
       r.payload::text as payload_text, r.spec::text as spec_text
from mainspring.runs r
where r.lane_id = any ($1::int[]) and r.state = {{QUEUED}} and r.ready_at <= (select clock_timestamp())
order by r.ready_at
limit $2
for no key update skip locked

-- name: begin_flow_runs
-- Workflow runs that start: each waits for its join ($3).
-- moves: QUEUED -> WAITING
-- guard: fence and QUEUED; the caller has locked the rows and compares the count.
update mainspring.runs r
set state = {{WAITING}}, waits_for = o.join_id, rule = {{CONTAINER}}, follows = coalesce(r.follows, 0) | {{FOLLOWS_FLOW}},
    claimed_at = t.now, started_at = t.now, expires_at = null,
    deadline = t.now + (r.spec ->> 'run_timeout')::float8 * interval '1 second'
from unnest($1::uuid[], $2::int[], $3::bigint[]) as o (run_id, fence, join_id), (select clock_timestamp() as now) as t
where r.run_id = o.run_id and r.fence = o.fence and r.state + 0 = {{QUEUED}}
returning r.run_id

-- name: insert_flows
-- unguarded: an insert under the id of a run that the caller has locked; the primary key is the guard.
insert into mainspring.flows
    (flow_id, container, tenant_id, job_id, generation, version, block, prefix, state, steps, numbers, lane_id, scheduled_for,
     name, parameters, spec)
select r.run_id, r.run_id, r.tenant_id, coalesce(r.job_id, r.run_id::text), r.generation, f.version, f.block, f.prefix, {{FLOW_STARTING}}, f.steps,
       f.steps, r.lane_id, r.scheduled_for, r.name, r.payload, r.spec
from unnest($1::uuid[], $2::int[], $3::bigint[], $4::uuid[], $5::int[]) as f (flow_id, version, block, prefix, steps)
join mainspring.runs r on r.run_id = f.flow_id

-- name: create_step_runs
-- Step runs and members. Those that wait for no join ($14) are ready; a mapped step ($15) waits for its members.
-- creates: QUEUED, WAITING, HELD
-- unguarded: an insert under ids of the workflow run, in the transaction that moves its cursor; the primary key is the guard.
with new_run as (
    select u.run_id, u.tenant_id, u.lane_id, u.max_attempts, u.scheduled_for, u.job_id, u.generation, u.trigger, u.name,
           u.payload, u.spec, u.follows, u.feeds::bigint[] as feeds, u.waits_for, u.rule, null::uuid as created_by
    from unnest($1::uuid[], $2::int[], $3::int[], $4::smallint[], $5::timestamptz[], $6::text[], $7::int[], $8::text[],
                $9::text[], $10::json[], $11::json[], $12::smallint[], $13::text[], $14::bigint[], $15::smallint[])
             as u (run_id, tenant_id, lane_id, max_attempts, scheduled_for, job_id, generation, trigger, name, payload, spec,
                   follows, feeds, waits_for, rule)
)
{{create_step_runs}}
returning lane_id, state, held_key

-- name: create_members
-- Members of a mapped step that differ only in their numbers, from $2 to $3, and perhaps in their payloads ($12). $1: the
-- first 28 characters of their ids. $8: their trigger, without the number. $10: the payload of all of them.
-- creates: QUEUED, WAITING, HELD
-- unguarded: an insert under ids of the workflow run, in the transaction that moves the cursor; the primary key is the guard.
with new_run as (
    select ($1::text || lpad(to_hex(m.number), 8, '0'))::uuid as run_id, $4::int as tenant_id, $5::int as lane_id,
           $6::smallint as max_attempts, $7::timestamptz as scheduled_for, null::text as job_id, $14::int as generation,
           $8::text || m.number as trigger, $9::text as name, coalesce(m.payload, $10::json) as payload, $11::json as spec,
           $13::smallint as follows, $15::bigint[] as feeds, null::bigint as waits_for, null::smallint as rule,
           null::uuid as created_by
    from rows from (generate_series($2::int, $3::int), unnest($12::json[])) as m (number, payload)
), made as (
    {{create_step_runs}}
    returning run_id
)
select count(*)::int from made

-- name: advance_flow
-- So much of the graph is created. $4: all of it.
-- guard: it is starting, and what was created before; the caller compares the count.
update mainspring.flows
set made = $3, state = case when $4 then {{FLOW_RUNNING}} else state end
where flow_id = $1 and made = $2 and state = {{FLOW_STARTING}}
returning flow_id

-- name: flows_in_state
-- Those after $2, by id.
select f.flow_id from mainspring.flows f where f.state = $1 and f.state <> {{FLOW_ENDED}} and f.flow_id > $2
order by f.flow_id
limit $3

-- name: get_flow
select {{flow_columns}} from mainspring.flows f where f.flow_id = $1

-- name: lock_flow
select {{flow_columns}} from mainspring.flows f where f.flow_id = $1 for no key update

-- name: flow_of_run
-- The workflow run to which a step run with the prefix $2, or the container $3, belongs.
select {{flow_columns}} from mainspring.flows f where f.tenant_id = $1 and (f.prefix = $2 or f.container = $3 or f.flow_id = $3)

-- name: parameters_of
select f.prefix, f.parameters::text from mainspring.flows f where f.prefix = any ($1::uuid[])

-- name: stop_flows
-- The containers $1 wait for no join any more: their steps are cancelled, with the reasons $3, and they end with the last
-- of these. $4: CANCELLING or TIMING_OUT.
-- keeps: WAITING
-- guard: fence and WAITING for a join: it is stopped once. The caller has locked the runs, and checks that none of them
-- has no workflow run.
with stopped as (
    update mainspring.runs r
    set waits_for = null, deadline = null, cancel_reason = s.reason,
        cancel_requested_at = case when $4::smallint = {{FLOW_CANCELLING}} then (select clock_timestamp()) end
    from unnest($1::uuid[], $2::int[], $3::text[]) as s (run_id, fence, reason)
    where r.run_id = s.run_id and r.fence = s.fence and r.state + 0 = {{WAITING}} and r.waits_for is not null
    returning r.run_id, r.cancel_reason
), flow as (
    update mainspring.flows f
    set state = $4, stop_reason = s.cancel_reason
    from stopped s
    where f.container = s.run_id and f.state in ({{FLOW_STARTING}}, {{FLOW_RUNNING}})
    returning f.container, f.flow_id
)
select f.flow_id from stopped s left join flow f on f.container = s.run_id

-- name: lock_stopped
-- StoppedFlow in store/workflows.py: the containers of workflow runs with the prefixes $1 that are being stopped, locked
-- by id. Who holds the lock sees in its next statement what all who had it before have ended.
select f.prefix, f.state, f.stop_reason, r.run_id, r.fence, r.attempt
from mainspring.flows f
join mainspring.runs r on r.run_id = f.container
where f.prefix = any ($1::uuid[]) and f.state in ({{FLOW_CANCELLING}}, {{FLOW_TIMING_OUT}}) and r.state + 0 = {{WAITING}}
order by r.run_id
for no key update of r

-- name: without_runs
-- Those of the prefixes $1 of which no step run is alive.
select p.prefix
from unnest($1::uuid[]) as p (prefix)
where not exists (select from mainspring.runs r
                  where r.run_id between p.prefix and (left(p.prefix::text, 28) || 'ffffffff')::uuid offset 0)

-- name: close_flows
-- The containers $1 have ended. $2: whether all their steps have. Otherwise what is left is cancelled, with the reason $3.
-- guard: it has not ended; the caller has ended the run in this transaction.
update mainspring.flows f
set state = case when c.complete then {{FLOW_ENDED}} else {{FLOW_STOPPING}} end,
    ended_at = case when c.complete then (select clock_timestamp()) end, stop_reason = c.reason
from unnest($1::uuid[], $2::boolean[], $3::text[]) as c (container, complete, reason)
where f.container = c.container
  and f.state in ({{FLOW_STARTING}}, {{FLOW_RUNNING}}, {{FLOW_CANCELLING}}, {{FLOW_TIMING_OUT}})
returning f.flow_id

-- name: end_flow
-- Nothing of it is left, and an older server has ended its container before.
-- guard: it is being stopped, and its container is gone; the caller has locked it.
update mainspring.flows f
set state = {{FLOW_ENDED}}, ended_at = (select clock_timestamp())
where f.flow_id = $1 and f.state in ({{FLOW_STOPPING}}, {{FLOW_CANCELLING}}, {{FLOW_TIMING_OUT}})
  and not exists (select from mainspring.runs r where r.run_id = f.container)

-- name: lock_left
-- Live runs with ids from $1 to $2 in one of the states $3, at most $4, in key order. Without those that were told
-- to stop with their workflow run.
select {{locked_run}}
from mainspring.runs r
where r.run_id between $1 and $2 and r.state + 0 = any ($3::smallint[])
  and (r.cancel_requested_at is null or coalesce(r.follows, 0) & {{FOLLOWS_STOPS}} = 0)
order by r.run_id
limit $4
for no key update

-- name: keep_ends
-- How step runs and workflow runs have ended.
-- unguarded: each run ends once; the primary key is the guard.
insert into mainspring.step_ends (run_id, state, reason, result)
select * from unnest($1::uuid[], $2::smallint[], $3::text[], $4::json[])

-- name: ends_of
select e.run_id, e.state, e.reason, e.result::text as result_text from mainspring.step_ends e where e.run_id = any ($1::uuid[])

-- name: ends_between
-- How the step runs from $1 to $2 have ended, in the order of their numbers, at most $3.
select e.run_id, e.state, e.reason, e.result::text as result_text
from mainspring.step_ends e
where e.run_id between $1 and $2
order by e.run_id
limit $3

-- name: bad_ends
-- The step runs from $1 to $2 that have ended and did not succeed, at most $3.
select e.run_id
from mainspring.step_ends e
where e.run_id between $1 and $2 and e.state <> {{SUCCESS}}
order by e.run_id
limit $3

-- name: names_of_ended
-- Of runs that have ended in this transaction.
select h.run_id, h.name
from mainspring.run_history h
where h.run_id = any ($1::uuid[]) and h.ended_at > (select clock_timestamp()) - interval '1 hour'

-- name: take_numbers
-- Numbers for further runs of the workflow run, and one for a fan-out. Returns the first of each.
-- guard: it is running; the caller has locked it.
update mainspring.flows
set numbers = numbers + $2, maps = maps + 1
where flow_id = $1 and state = {{FLOW_RUNNING}}
returning numbers - $2 as number, maps - 1 as map

-- name: reruns_of
select r.rerun, r.first_number, r.steps, r.maps from mainspring.flow_reruns r where r.flow_id = $1 order by r.rerun

-- name: any_alive
-- Whether a run of the workflow is alive that its overlap rule is about.
select {{has_live_run(j)}} from mainspring.jobs j where j.tenant_id = $1 and j.job_id = $2

-- name: begin_rerun
-- guard: it has ended, and how often it ran again; the caller has locked it and compares the count.
with again as (
    update mainspring.flows
    set container = $3, block = $4, version = $5, state = {{FLOW_STARTING}}, made = 0, reruns = reruns + 1,
        numbers = numbers + cardinality($6::int[]), stop_reason = null, ended_at = null
    where flow_id = $1 and reruns = $2 and state = {{FLOW_ENDED}}
    returning flow_id, reruns, numbers - cardinality($6::int[]) as first_number
)
insert into mainspring.flow_reruns (flow_id, rerun, first_number, steps, version, container, from_step, maps)
select a.flow_id, a.reruns, a.first_number, $6, $5, $3, $7, $8::int[] from again a
returning rerun

-- name: create_rerun
-- The run that stands for a rerun: run $2, number $3, which waits for the join $4. $5: the version of the definition.
-- creates: WAITING
-- unguarded: an insert under a new id, in the transaction that begins the rerun; the primary key is the guard.
with new_run as (
    select $2::uuid as run_id, f.tenant_id, f.lane_id, 1::smallint as max_attempts, f.scheduled_for, f.job_id, f.generation,
           {{RERUN_TRIGGER}} || f.flow_id || ':' || $3::int as trigger, f.name, f.parameters as payload,
           jsonb_set(coalesce(f.spec, '{}')::jsonb, '{workflow}', to_jsonb($5::int))::json as spec, $4::bigint as waits_for,
           $6::uuid as created_by
    from mainspring.flows f
    where f.flow_id = $1
)
{{create_container}}

-- name: prune_step_ends
-- Of workflow runs that ended more than $1 days ago, at most $2. The workflow runs themselves go last.
-- guard: a workflow run that has ended this long ago is not run again.
delete from mainspring.step_ends
where run_id = any (array(select e.run_id
                          from mainspring.flows f
                          join mainspring.step_ends e
                              on e.run_id between f.prefix and (left(f.prefix::text, 28) || 'ffffffff')::uuid
                          where {{flow_is_old}}
                          limit $2))

-- name: prune_flow_ends
-- How the workflow runs themselves have ended, and their reruns.
-- guard: as above.
delete from mainspring.step_ends
where run_id = any (array(select e.run_id
                          from mainspring.flows f
                          cross join lateral (select f.flow_id as run_id
                                              union all
                                              select r.container from mainspring.flow_reruns r where r.flow_id = f.flow_id) as c
                          join mainspring.step_ends e on e.run_id = c.run_id
                          where {{flow_is_old}}
                          limit $2))

-- name: prune_child_runs
-- guard: as above; a child that is to be cancelled keeps its row.
delete from mainspring.child_runs
where run_id = any (array(select c.run_id
                          from mainspring.flows f
                          join mainspring.child_runs c
                              on c.run_id between f.prefix and (left(f.prefix::text, 28) || 'ffffffff')::uuid
                          where {{flow_is_old}} and c.state = {{CHILD_OVER}}
                          limit $2))

-- name: prune_fanout_items
-- guard: as above.
delete from mainspring.fanout_items
where (run_id, chunk) in (select i.run_id, i.chunk
                          from mainspring.flows f
                          join mainspring.fanouts o on o.flow_id = f.flow_id
                          join mainspring.fanout_items i on i.run_id = o.run_id
                          where {{flow_is_old}}
                          limit $2)

-- name: prune_map_joins
-- guard: as above.
delete from mainspring.joins
where join_id = any (array(select j.join_id
                           from mainspring.flows f
                           join mainspring.fanouts o on o.flow_id = f.flow_id
                           join mainspring.joins j on j.join_id = o.join_id
                           where {{flow_is_old}}
                           limit $2))

-- name: prune_fanouts
-- guard: as above.
delete from mainspring.fanouts
where run_id = any (array(select o.run_id
                          from mainspring.flows f
                          join mainspring.fanouts o on o.flow_id = f.flow_id
                          where {{flow_is_old}}
                          limit $2))

-- name: prune_flow_reruns
-- guard: as above.
delete from mainspring.flow_reruns
where (flow_id, rerun) in (select r.flow_id, r.rerun
                           from mainspring.flows f
                           join mainspring.flow_reruns r on r.flow_id = f.flow_id
                           where {{flow_is_old}}
                           limit $2)

-- name: prune_flows
-- guard: the age is compared again with a row that was changed meanwhile.
delete from mainspring.flows f
where {{flow_is_old}} and f.flow_id = any (array(select f.flow_id from mainspring.flows f where {{flow_is_old}} limit $2))
