-- Circuit breakers: what is shown of them. They are lines of limits (limits.sql); the breaker of a job or task is one line.

-- name: list_breakers
-- Open ones first, at most $2. That of a job is listed while the job can fire, or a run of it lives.
select {{breaker_columns}}
from mainspring.limits l
join mainspring.limit_keys k on k.limit_id = l.limit_id
where l.tenant_id = $1 and l.failures is not null
  and (l.name not like 'breaker:job:%'
       or exists (select from mainspring.jobs j
                  where j.tenant_id = l.tenant_id and j.job_id = substr(l.name, 13) and j.status not in ({{JOBS_ENDED}}))
       or exists (select from mainspring.runs r where r.tenant_id = l.tenant_id and r.job_id = substr(l.name, 13))
       or exists (select from mainspring.runs r
                  where r.run_id = case when substr(l.name, 13) ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                                        then substr(l.name, 13)::uuid end))
order by k.opened_at is null, l.limit_id
limit $2

-- name: get_breaker
select {{breaker_columns}}
from mainspring.limits l
join mainspring.limit_keys k on k.limit_id = l.limit_id
where l.tenant_id = $1 and l.limit_id = $2 and l.failures is not null
