-- The definitions of workflows. No statement updates them.

-- name: insert_workflow_version
-- unguarded: append-only; in the transaction that has inserted or locked the job.
insert into mainspring.workflow_versions
    (tenant_id, workflow_id, generation, version, steps, definition, source, created_by, calls, calls_of)
values ($1, $2, $3, $4, $5, $6::json, $7::json, $8, $9::text[], $10)

-- name: workflow_definition
select v.definition::text as definition_text
from mainspring.workflow_versions v
where v.tenant_id = $1 and v.workflow_id = $2 and v.generation = $3 and v.version = $4

-- name: workflow_source
-- A source may have 32 MiB: PostgreSQL takes it apart, so that the server need not.
select
    v.steps,
    (v.source -> 'steps')::text as steps_text,
    (v.source -> 'queue')::text as queue_text,
    (v.source -> 'priority')::text as priority_text
from mainspring.workflow_versions v
where v.tenant_id = $1 and v.workflow_id = $2 and v.generation = $3 and v.version = $4

-- name: size_of_workflow_source
-- PostgreSQL knows the length without reading the value.
select v.steps, octet_length(v.source::text) as size
from mainspring.workflow_versions v
where v.tenant_id = $1 and v.workflow_id = $2 and v.generation = $3 and v.version = $4

-- name: newest_workflow_version
select max(v.version)
from mainspring.workflow_versions v
where v.tenant_id = $1 and v.workflow_id = $2 and v.generation = $3

-- name: counts_of_steps
-- By workflow, generation and version.
select v.workflow_id, v.generation, v.version, v.steps
from unnest($2::text[], $3::int[], $4::int[]) as a (workflow_id, generation, version)
join mainspring.workflow_versions v
  on v.tenant_id = $1 and v.workflow_id = a.workflow_id and v.generation = a.generation and v.version = a.version

-- name: prune_workflow_versions
-- Versions that were replaced more than $1 days ago, or whose job is gone, and that no run needs; at most $2. A run of a
-- version was created before the next version, so that few rows of the history are looked at.
-- guard: new runs have the newest version, and so have reruns, or that of their workflow run.
delete from mainspring.workflow_versions
where (tenant_id, workflow_id, generation, version) in (
    select v.tenant_id, v.workflow_id, v.generation, v.version
    from mainspring.workflow_versions v
    cross join (select (select clock_timestamp()) - $1 * interval '1 day' as moment) as old
    left join lateral (
        select n.created_at
        from mainspring.workflow_versions n
        where n.tenant_id = v.tenant_id and n.workflow_id = v.workflow_id and n.generation = v.generation
          and n.version > v.version
        order by n.version
        limit 1
    ) as later on true
    where v.created_at < old.moment
      and case when later.created_at is not null then later.created_at < old.moment
               else not exists (select from mainspring.jobs j
                                where j.tenant_id = v.tenant_id and j.job_id = v.workflow_id
                                  and j.generation = v.generation) end
      and not exists (select from mainspring.flows f
                      where f.tenant_id = v.tenant_id and f.job_id = v.workflow_id and f.generation = v.generation
                        and v.version in (f.version, (f.spec ->> 'workflow')::int))
      and not exists (select from mainspring.runs r
                      where r.tenant_id = v.tenant_id and r.job_id = v.workflow_id and r.generation = v.generation
                        and (r.spec ->> 'workflow')::int = v.version)
      and not exists (select from mainspring.run_history h
                      where h.job_id = v.workflow_id and h.tenant_id = v.tenant_id and h.generation = v.generation
                        and h.run_id <= coalesce((lpad(to_hex((extract(epoch from later.created_at + interval '1 day') * 1000)::bigint), 12, '0')
                                               || repeat('f', 20))::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                        and (h.spec ->> 'workflow')::int = v.version)
    limit $2)
