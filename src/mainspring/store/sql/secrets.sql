-- Secrets, encrypted, and the keys that encrypt them.

-- name: data_key
select k.tenant_id, k.key_id, k.wrapped, k.version
from mainspring.secret_keys k
where k.tenant_id = $1

-- name: insert_data_key
-- unguarded: insert if absent.
insert into mainspring.secret_keys (tenant_id, key_id, wrapped)
values ($1, $2, $3)
on conflict do nothing

-- name: data_keys
-- Those that are not encrypted with the key $1, after the tenant $2; of one tenant if $3 is given.
select k.tenant_id, k.key_id, k.wrapped, k.version
from mainspring.secret_keys k
where k.key_id <> $1 and k.tenant_id > $2 and ($3::int is null or k.tenant_id = $3)
order by k.tenant_id
limit $4

-- name: rewrap_data_key
-- guard: version.
update mainspring.secret_keys
set key_id = $3, wrapped = $4, version = version + 1, wrapped_at = (select clock_timestamp())
where tenant_id = $1 and version = $2
returning version

-- name: lock_secret
select s.tenant_id, s.name, s.version, s.queues, s.tasks, s.created_at, s.changed_at, s.changed_by,
       s.external::text as external_text
from mainspring.secrets s
where s.tenant_id = $1 and s.name = $2
for update

-- name: get_secret
select s.tenant_id, s.name, s.version, s.queues, s.tasks, s.created_at, s.changed_at, s.changed_by,
       s.external::text as external_text
from mainspring.secrets s
where s.tenant_id = $1 and s.name = $2

-- name: list_secrets
-- By name, after $2.
select s.tenant_id, s.name, s.version, s.queues, s.tasks, s.created_at, s.changed_at, s.changed_by,
       s.external::text as external_text
from mainspring.secrets s
where s.tenant_id = $1 and ($2::text is null or s.name > $2)
order by s.name
limit $3

-- name: count_secrets
select count(*)::int from mainspring.secrets where tenant_id = $1

-- name: secret_names
select s.name from mainspring.secrets s where s.tenant_id = $1 order by s.name limit $2

-- name: insert_secret
-- unguarded: insert if absent.
insert into mainspring.secrets (tenant_id, name, version, sealed, queues, tasks, changed_by, external)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict do nothing
returning version

-- name: change_secret
-- guard: version; the caller has locked the row.
update mainspring.secrets
set version = $4, sealed = coalesce($5, sealed), external = case when $5 is null then external else $9 end, queues = $6, tasks = $7, changed_by = $8,
    changed_at = (select clock_timestamp())
where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: delete_secret
-- guard: version; the caller has locked the row.
delete from mainspring.secrets
where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: scopes_of_secrets
select s.name, s.queues, s.tasks
from mainspring.secrets s
where s.tenant_id = $1 and s.name = any ($2::text[])

-- name: sealed_secrets
-- With the data keys of their tenants. $1 and $2 are pairs.
select s.tenant_id, s.name, s.version, s.sealed, s.queues, s.tasks, k.key_id, k.wrapped,
       s.external::text as external_text, t.name as tenant
from mainspring.secrets s
join mainspring.tenants t on t.tenant_id = s.tenant_id
join mainspring.secret_keys k on k.tenant_id = s.tenant_id
where (s.tenant_id, s.name) in (select * from unnest($1::int[], $2::text[]))

-- name: users_of_secret
-- Jobs and workflows that can fire, and whose present definition has the pattern $2.
select j.job_id
from mainspring.jobs j
left join mainspring.workflow_versions w
  on w.tenant_id = j.tenant_id and w.workflow_id = j.job_id and w.generation = j.generation
 and w.version = (j.spec ->> 'workflow')::int
where j.tenant_id = $1 and j.status in ({{JOB_SCHEDULED}}, {{JOB_PAUSED}}) and j.spec is not null
  and (j.spec::text ~ $2 or w.definition::text ~ $2)
order by j.job_id
limit $3
