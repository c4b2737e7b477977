-- How long the output of runs with certain labels is kept. The statements that store output read it (advanced_logs).

-- name: get
select {{log_retention_columns}} from mainspring.log_retention k where k.tenant_id = $1

-- name: lock
select {{log_retention_columns}} from mainspring.log_retention k where k.tenant_id = $1 for update

-- name: insert
-- unguarded: insert if absent.
insert into mainspring.log_retention (tenant_id, rules, updated_by) values ($1, $2::jsonb, $3)
on conflict do nothing
returning version

-- name: change
-- guard: version; the caller has locked the row.
update mainspring.log_retention
set version = version + 1, rules = $3::jsonb, updated_at = (select clock_timestamp()), updated_by = $4
where tenant_id = $1 and version = $2
returning version
