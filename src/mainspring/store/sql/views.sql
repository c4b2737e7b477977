-- Saved views of lists.

-- name: lock_view
select v.tenant_id, v.name, v.list as of_list, v.version, v.filter::text as filter_text, v.columns, v.created_at, v.changed_at, v.changed_by
from mainspring.views v
where v.tenant_id = $1 and v.name = $2
for update

-- name: get_view
select v.tenant_id, v.name, v.list as of_list, v.version, v.filter::text as filter_text, v.columns, v.created_at, v.changed_at, v.changed_by
from mainspring.views v
where v.tenant_id = $1 and v.name = $2

-- name: list_views
-- By name, after $2; of the list $3, or of all.
select v.tenant_id, v.name, v.list as of_list, v.version, v.filter::text as filter_text, v.columns, v.created_at, v.changed_at, v.changed_by
from mainspring.views v
where v.tenant_id = $1 and ($2::text is null or v.name > $2) and ($3::text is null or v.list = $3)
order by v.name
limit $4

-- name: count_views
select count(*)::int from mainspring.views where tenant_id = $1

-- name: insert_view
-- unguarded: insert if absent.
insert into mainspring.views (tenant_id, name, list, filter, columns, changed_by)
values ($1, $2, $3, $4::text::json, $5, $6)
on conflict do nothing
returning version

-- name: change_view
-- guard: version; the caller has locked the row.
update mainspring.views
set version = version + 1, list = $4, filter = $5::text::json, columns = $6, changed_by = $7,
    changed_at = (select clock_timestamp())
where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: delete_view
-- guard: version; the caller has locked the row.
delete from mainspring.views
where tenant_id = $1 and name = $2 and version = $3
returning version
