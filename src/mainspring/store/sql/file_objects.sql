-- What job files own.

-- name: take_turn
-- Files of a tenant are applied one after the other.
select pg_advisory_xact_lock({{lock_key('files/' || $1::int)}})

-- name: file_object
select tenant_id, kind, object_id, owner, source, version, generation, applied_at, applied_by
from mainspring.file_objects
where tenant_id = $1 and kind = $2 and object_id = $3

-- name: objects_of_owner
select tenant_id, kind, object_id, owner, source, version, generation, applied_at, applied_by
from mainspring.file_objects
where tenant_id = $1 and owner = $2
order by kind, object_id

-- name: objects_of_kind
select tenant_id, kind, object_id, owner, source, version, generation, applied_at, applied_by
from mainspring.file_objects
where tenant_id = $1 and kind = $2 and object_id = any ($3::text[])

-- name: put_file_object
-- unguarded: the caller has the turn of the tenant (`take_turn`).
insert into mainspring.file_objects as f
    (tenant_id, kind, object_id, owner, source, version, generation, applied_at, applied_by)
values ($1, $2, $3, $4, $5, $6, $7, (select clock_timestamp()), $8)
on conflict (tenant_id, kind, object_id) do update
set owner = excluded.owner, source = excluded.source, version = excluded.version,
    generation = excluded.generation, applied_at = excluded.applied_at, applied_by = excluded.applied_by
where (f.owner, f.source, f.version, f.generation)
      is distinct from (excluded.owner, excluded.source, excluded.version, excluded.generation)

-- name: forget_file_object
-- unguarded: the caller has the turn of the tenant (`take_turn`).
delete from mainspring.file_objects where tenant_id = $1 and kind = $2 and object_id = $3 and owner = $4

-- name: live_runs_of_job
select run_id::text from mainspring.runs where tenant_id = $1 and job_id = $2 order by run_id limit $3
