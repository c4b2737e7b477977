-- Operations: one verb on many objects. The slice and the place of the next one are written in one transaction.

-- name: insert_operation
-- guard: not too many of the tenant are at work ($11).
insert into mainspring.operations
    (operation_id, tenant_id, target, verb, filter, ids, state, count, exact, expected, requested_by, token_id)
select $1, $2, $3, $4, $5::json, $6::text[], {{BULK_RUNNING}}, $7, $8, $9::int, $10, $12::uuid
where (select count(*) from mainspring.operations o where o.tenant_id = $2 and o.state = {{BULK_RUNNING}}) < $11
returning operation_id

-- name: get_operation
select {{operation_columns}}
from mainspring.operations o
where o.tenant_id = $1 and o.operation_id = $2

-- name: list_operations
-- Newest first.
select {{operation_columns}}
from mainspring.operations o
where o.tenant_id = $1 and ($2::uuid is null or o.operation_id < $2) and ($3::int[] is null or o.state = any ($3))
  and ($5::uuid is null or o.token_id = $5)
order by o.operation_id desc
limit $4

-- name: operations_at_work
-- Of all tenants, oldest first.
select {{operation_columns}}
from mainspring.operations o
where o.state = {{BULK_RUNNING}}
order by o.operation_id
limit $1

-- name: lock_operation
-- Nothing if another process carries out a slice of it now, or if it has ended or moved on.
select o.operation_id
from mainspring.operations o
where o.operation_id = $1 and o.state = {{BULK_RUNNING}} and o.place is not distinct from $2
for no key update skip locked

-- name: advance_operation
-- guard: state and place; the caller has locked the row.
update mainspring.operations o
set place = $3, done = o.done + $4, failed = o.failed + $5, failures = $6::json, state = $7::smallint, reason = $8,
    updated_at = (select clock_timestamp()),
    ended_at = case when $7::smallint <> {{BULK_RUNNING}} then (select clock_timestamp()) end
where o.operation_id = $1 and o.state = {{BULK_RUNNING}} and o.place is not distinct from $2
returning o.operation_id

-- name: cancel_operation
-- It waits for the slice that is under way.
-- guard: it has not ended.
update mainspring.operations o
set state = {{BULK_CANCELLED}}, reason = $3, updated_at = (select clock_timestamp()),
    ended_at = (select clock_timestamp())
where o.tenant_id = $1 and o.operation_id = $2 and o.state = {{BULK_RUNNING}}
returning o.operation_id

-- name: prune_operations
-- guard: the age is compared again with a row that was changed meanwhile.
delete from mainspring.operations
where ended_at < (select clock_timestamp()) - $1 * interval '1 day'
  and ctid = any (array(select o.ctid from mainspring.operations o
                        where o.ended_at < (select clock_timestamp()) - $1 * interval '1 day'
                        limit $2))
