-- Steps that run another workflow, and their children. A row is written under the lock of the step's run, or of the child:
-- who locks both locks the step's run first, except that the end of a child and its cancel lock the child alone.

-- name: open_child_runs
-- These steps have begun to wait for runs of the workflows $2.
-- unguarded: an insert under the ids of runs that have just begun to wait; the primary key is the guard.
insert into mainspring.child_runs (run_id, tenant_id, workflow, state)
select r.run_id, r.tenant_id, u.workflow, {{CHILD_TO_START}}
from unnest($1::uuid[], $2::text[]) as u (run_id, workflow)
join mainspring.runs r on r.run_id = u.run_id

-- name: child_runs_to_do
-- Those in the state $1, in the order of the steps' runs, after $2, at most $3.
select c.run_id, c.tenant_id, c.workflow, c.state, c.child,
       (select r.job_id from mainspring.runs r where r.run_id = c.run_id) as job_id
from mainspring.child_runs c
where c.state = $1 and c.state <> {{CHILD_OVER}} and c.run_id > $2
order by c.run_id
limit $3

-- name: child_runs_of_flow
-- Those of the steps with ids from $1 to $2 whose children are to be cancelled, at most $3.
select c.run_id, c.tenant_id, c.workflow, c.state, c.child,
       (select r.job_id from mainspring.runs r where r.run_id = c.run_id) as job_id
from mainspring.child_runs c
where c.run_id between $1 and $2 and c.state = {{CHILD_TO_CANCEL}}
order by c.run_id
limit $3

-- name: lock_child_run
-- The row, if it is in the state $2, locked. The caller has locked the run of the step.
select c.run_id, c.tenant_id, c.workflow, c.state, c.child,
       (select r.job_id from mainspring.runs r where r.run_id = c.run_id) as job_id
from mainspring.child_runs c
where c.run_id = $1 and c.state = $2
for no key update of c

-- name: child_started
-- The step $1 has the child $2. It has ended already if it was skipped.
-- guard: it has none; the caller has locked the run of the step.
update mainspring.child_runs c
set child = $2, state = case when exists (select from mainspring.runs r where r.run_id = $2) then {{CHILD_RUNNING}}
                             else {{CHILD_ENDED}} end
where c.run_id = $1 and c.child is null and c.state = {{CHILD_TO_START}}
returning c.run_id

-- name: follow_child
-- A step waits for this run.
-- keeps: QUEUED, HELD
-- guard: it was created in this transaction.
update mainspring.runs r
set follows = coalesce(r.follows, 0) | {{FOLLOWS_CHILD}}
where r.run_id = $1 and r.state + 0 = any (array[{{QUEUED}}, {{HELD}}])
returning r.run_id

-- name: children_ended
-- guard: the caller has ended the children in this transaction.
update mainspring.child_runs c
set state = case when c.state = {{CHILD_RUNNING}} then {{CHILD_ENDED}} else {{CHILD_OVER}} end
where c.child = any ($1::uuid[]) and c.state in ({{CHILD_RUNNING}}, {{CHILD_TO_CANCEL}})
returning c.run_id

-- name: child_cancelled
-- guard: its child is to be cancelled; the caller has locked that.
update mainspring.child_runs c
set state = {{CHILD_OVER}}
where c.run_id = $1 and c.state = {{CHILD_TO_CANCEL}}
returning c.run_id

-- name: close_child_runs
-- The steps $1 have ended: children that are left are to be cancelled. A fragment of close_waits does the same.
-- guard: the run of the step is gone.
update mainspring.child_runs c
set state = {{closed_child(c)}}
where c.run_id = any ($1::uuid[]) and c.state in ({{CHILD_TO_START}}, {{CHILD_RUNNING}}, {{CHILD_ENDED}})
  and not exists (select from mainspring.runs r where r.run_id = c.run_id)
returning c.run_id

-- name: lost_child_runs
-- What servers that know no children have left: steps that are gone, and children that are, at most $1.
-- guard: as above; a child that is alive stays.
update mainspring.child_runs c
set state = case when exists (select from mainspring.runs r where r.run_id = c.run_id) then {{CHILD_ENDED}}
                 else {{closed_child(c)}} end
where c.run_id = any (array(select o.run_id
                            from mainspring.child_runs o
                            where o.state in ({{CHILD_TO_START}}, {{CHILD_RUNNING}})
                              and o.began_at < (select clock_timestamp()) - interval '1 minute'
                              and (not exists (select from mainspring.runs r where r.run_id = o.run_id)
                                   or (o.child is not null
                                       and not exists (select from mainspring.runs r where r.run_id = o.child)))
                            limit $1))
  and c.state in ({{CHILD_TO_START}}, {{CHILD_RUNNING}})
returning c.run_id

-- name: children_of
-- The children of these steps.
select c.run_id, c.child from mainspring.child_runs c where c.run_id = any ($1::uuid[]) and c.child is not null

-- name: callers_of
-- The workflows whose steps have led to the workflow run $1, nearest first, its own included, at most $2.
with recursive above as (
    select f.flow_id, f.job_id, 1 as level from mainspring.flows f where f.flow_id = $1
    union all
    select p.flow_id, p.job_id, a.level + 1
    from above a
    join mainspring.child_runs c on c.child = a.flow_id
    join mainspring.flows p on p.prefix = (left(c.run_id::text, 28) || '00000000')::uuid
    where a.level < $2
)
select a.job_id from above a order by a.level

-- name: results_of_last_steps
-- The results of the runs $1, which have succeeded since $2.
select h.run_id, h.result::text as result_text
from mainspring.run_history h
where h.run_id = any ($1::uuid[]) and h.state = {{SUCCESS}} and h.ended_at >= $2

-- name: called_workflows
-- CalledWorkflow in store/child_runs.py: what there is of the workflows $2.
select j.job_id, j.created_by, j.status, j.payload::text as payload_text, v.calls
from mainspring.jobs j
join mainspring.workflow_versions v on v.tenant_id = j.tenant_id and v.workflow_id = j.job_id
                                   and v.generation = j.generation and v.version = (j.spec ->> 'workflow')::int
where j.tenant_id = $1 and j.job_id = any ($2::text[])

-- name: calls_of_version
-- Whose workflows the steps of this version may run; null: anybody's.
select v.calls_of
from mainspring.workflow_versions v
where v.tenant_id = $1 and v.workflow_id = $2 and v.generation = $3 and v.version = $4
