-- Circuit breakers: what is shown of them. They are lines of limits (limits.sql); the breaker of a job or task is one line.

-- name: list_breakers
-- Open ones first, at most $2.
select {{breaker_columns}}
from mainspring.limits l
join mainspring.limit_keys k on k.limit_id = l.limit_id
where l.tenant_id = $1 and l.failures is not null
order by k.opened_at is null, l.limit_id
limit $2

-- name: get_breaker
select {{breaker_columns}}
from mainspring.limits l
join mainspring.limit_keys k on k.limit_id = l.limit_id
where l.tenant_id = $1 and l.limit_id = $2 and l.failures is not null
