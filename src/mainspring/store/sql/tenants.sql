-- Tenants. No tenant has the number 0: tokens of shared workers and these workers have it, and it means every tenant.

-- name: insert_tenant
-- A number is never used again, because tenants are never deleted. Callers take a lock first.
-- unguarded: insert if absent.
insert into mainspring.tenants (tenant_id, name)
select (select max(tenant_id) from mainspring.tenants) + 1, $1
on conflict (name) do nothing
returning {{tenant_columns}}

-- name: get_tenant
select {{tenant_columns}} from mainspring.tenants where tenant_id = $1

-- name: find_tenant
select tenant_id from mainspring.tenants where name = $1

-- name: list_tenants
select {{tenant_columns}} from mainspring.tenants order by tenant_id
