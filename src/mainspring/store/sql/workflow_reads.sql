-- Reads workflow runs for people: their steps, members and counts.

-- name: runs_by_id
-- These runs, live or ended, without what is large. An error is cut after 2,000 characters.
select {{brief_live_columns}}
from mainspring.runs r
where r.tenant_id = $1 and r.run_id = any ($2::uuid[])
union all
select {{brief_ended_columns}}
from mainspring.run_history h
where h.tenant_id = $1 and h.run_id = any ($2::uuid[])

-- name: kept_ends
-- How these step runs have ended. It is kept for longer than the history.
select e.run_id, e.state, e.ended_at, e.reason
from mainspring.step_ends e
where e.run_id = any ($1::uuid[])

-- name: kept_flow_run
-- A workflow run that is no longer in the history, as far as it is known. How it was triggered is not.
select f.flow_id as run_id, f.lane_id, e.state, 1 as attempt, 1 as max_attempts, 0 as fence, f.scheduled_for,
       f.started_at as fired_at, null::timestamptz as cancel_requested_at, null::uuid as worker_id, null::uuid as node_id,
       f.job_id, 'unknown' as trigger, f.name, f.parameters::text as payload_text, f.spec::text as spec_text, 0 as losses,
       0 as snoozes, f.generation, null::uuid as created_by, null::text as creator, f.started_at, e.ended_at,
       (extract(epoch from e.ended_at - f.started_at) * 1000)::float8 as ran_ms, e.reason, null::text as error,
       null::text as result_text, false as payload_dropped, null::text as usage_text
from mainspring.flows f
join mainspring.step_ends e on e.run_id = f.flow_id
where f.tenant_id = $1 and f.flow_id = $2

-- name: reruns_of_flow
select n.rerun, n.first_number, n.steps, n.container
from mainspring.flow_reruns n
where n.flow_id = $1
order by n.rerun

-- name: flows_by_id
select {{flow_columns}} from mainspring.flows f where f.tenant_id = $1 and f.flow_id = any ($2::uuid[])

-- name: count_steps
-- The runs with ids from $1 to $2 by state, without those of $3, which have run again. Live ones as they are listed.
select s.state, count(*)::int as number
from (
    select {{listed_state}} as state
    from mainspring.runs r
    where r.run_id between $1 and $2 and not r.run_id = any ($3::uuid[])
    union all
    select e.state from mainspring.step_ends e where e.run_id between $1 and $2 and not e.run_id = any ($3::uuid[])
) as s
group by s.state

-- name: queued_steps
-- The lanes of the first 10,000 queued runs with ids from $1 to $2, and how many runs are in each.
select s.lane_id, count(*)::int as number
from (select r.lane_id from mainspring.runs r
      where r.run_id between $1 and $2 and r.state = {{QUEUED}} limit 10000) as s
group by s.lane_id

-- name: map_progress
-- Of mapped steps, by their runs, with the ends that the joins have not counted yet.
select f.run_id, f.total, f.expanded + coalesce(f.total - f.repeats, 0) as expanded, f.first_number, f.repeats,
       coalesce(j.ok, 0) + coalesce(m.ok, 0) as ok,
       coalesce(j.failed, 0) + coalesce(m.failed, 0) as failed, coalesce(j.skipped, 0) + coalesce(m.skipped, 0) as skipped
from mainspring.fanouts f
left join mainspring.joins j on j.join_id = f.join_id
cross join lateral (
    select sum(k.ok)::int as ok, sum(k.failed)::int as failed, sum(k.skipped)::int as skipped
    from mainspring.join_marks k
    where k.join_id = f.join_id
) as m
where f.run_id = any ($1::uuid[])

-- name: member_index
-- The member with the number $3, of step $2 of a workflow run: its place among those of its fan-out.
select f.run_id, f.repeats, $3 - f.first_number as place
from mainspring.fanouts f
where f.flow_id = $1 and f.step = $2 and f.first_number <= $3
order by f.first_number desc
limit 1
