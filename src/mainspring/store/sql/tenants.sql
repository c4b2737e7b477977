-- Tenants. 0 is none of them: it stands for every tenant, on shared worker tokens and their workers.

-- name: insert_tenant
-- Numbers are never given twice, because no tenant is ever deleted; makers take turns.
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
