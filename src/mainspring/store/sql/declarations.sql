-- What applications declare. A declaration is live while a worker of that version is registered and not draining. A
-- worker that declares before its first exchange is not registered yet; it has half a minute.

-- name: take_turn
-- Versions of an application get their numbers one after the other.
select case when l.key is null
            then pg_advisory_xact_lock(hashtext('mainspring.declarations'), hashtext($1::int || '/' || $2::text))
            else pg_advisory_xact_lock(l.key) end
from (select {{numbered_lock_of('declarations/' || $1::int || '/' || $2::text)}} as key) as l

-- name: declarations_of
select d.number, d.fingerprint, d.named, d.source, d.job_ids, d.last_at,
       exists (select from mainspring.declaring_workers w
               left join mainspring.workers present on present.worker_id = w.worker_id
               where w.tenant_id = d.tenant_id and w.application = d.application and w.number = d.number
                 and (present.state = {{WORKER_LIVE}}
                      or present.worker_id is null
                         and w.since > (select clock_timestamp()) - interval '30 seconds')) as live,
       d.applied_at
from mainspring.declarations d
where d.tenant_id = $1 and d.application = $2
order by d.number

-- name: is_leaving
select state <> {{WORKER_LIVE}} from mainspring.workers where worker_id = $1

-- name: put_declaration
-- unguarded: the caller has the application's turn (`take_turn`).
insert into mainspring.declarations
    (tenant_id, application, number, fingerprint, named, source, job_ids, last_at)
values ($1, $2, $3, $4, $5, $6, $7, (select clock_timestamp()))
on conflict (tenant_id, application, fingerprint) do update
set number = excluded.number, source = excluded.source, last_at = excluded.last_at

-- name: renew_declaration
-- At most once in 50 seconds, however many workers say it.
-- unguarded: the time only rises.
update mainspring.declarations
set last_at = (select clock_timestamp())
where tenant_id = $1 and application = $2 and fingerprint = $3
  and last_at < (select clock_timestamp()) - interval '50 seconds'

-- name: apply_declaration
-- unguarded: the latest who begins is the one that counts.
update mainspring.declarations
set applied_at = (select clock_timestamp())
where tenant_id = $1 and application = $2 and fingerprint = $3

-- name: link_worker
-- unguarded: the worker itself says which version it runs.
insert into mainspring.declaring_workers as w (tenant_id, application, worker_id, number, since)
values ($1, $2, $3, $4, (select clock_timestamp()))
on conflict (tenant_id, application, worker_id) do update
set number = excluded.number
where w.number <> excluded.number

-- name: unlink_workers
-- unguarded: they are gone for good.
delete from mainspring.declaring_workers w
where w.tenant_id = $1 and w.application = $2
  and w.since < (select clock_timestamp()) - interval '30 seconds'
  and not exists (select from mainspring.workers present
                  where present.worker_id = w.worker_id and present.state in ({{WORKER_LIVE}}, {{WORKER_DRAINING}}))

-- name: forget_declarations
-- unguarded: the caller has the application's turn (`take_turn`), and nobody needs them.
delete from mainspring.declarations
where tenant_id = $1 and application = $2 and number = any ($3::int[])

-- name: declared_jobs
-- Jobs by their ids, a page.
select {{job_columns}}
from mainspring.jobs j
where j.tenant_id = $1 and j.job_id = any ($2::text[])
order by j.job_id
limit $3

-- name: owned_jobs
-- What of the jobs $3 the application owns.
select job_id, coalesce(name, job_id) as name, status, version, pruned_version
from mainspring.jobs
where tenant_id = $1 and declared_by = $2 and job_id = any ($3::text[])
order by job_id

-- name: declared_elsewhere
-- The jobs $3 that belong to another application, of which a worker that declares them runs.
select j.job_id, j.declared_by
from mainspring.jobs j
where j.tenant_id = $1 and j.job_id = any ($3::text[]) and j.declared_by <> $2
  and exists (select from mainspring.declarations d
              join mainspring.declaring_workers w
                on w.tenant_id = d.tenant_id and w.application = d.application and w.number = d.number
              join mainspring.workers present
                on present.worker_id = w.worker_id and present.state = {{WORKER_LIVE}}
              where d.tenant_id = j.tenant_id and d.application = j.declared_by and j.job_id = any (d.job_ids))
