-- Rules: who is told of what.

-- name: get_rule
select {{rule_columns}}
from mainspring.rules r
where r.tenant_id = $1 and r.name = $2

-- name: list_rules
-- By name, after $2.
select {{rule_columns}}
from mainspring.rules r
where r.tenant_id = $1 and ($2::text is null or r.name > $2)
order by r.name
limit $3

-- name: all_rules
select {{rule_columns}} from mainspring.rules r

-- name: lock_rule
select {{rule_columns}}
from mainspring.rules r
where r.tenant_id = $1 and r.name = $2
for update

-- name: count_rules
select count(*)::int from mainspring.rules where tenant_id = $1

-- name: insert_rule
-- unguarded: insert if absent.
insert into mainspring.rules (tenant_id, name, events, channels, rule, updated_by)
values ($1, $2, $3, $4, $5::json, $6)
on conflict do nothing
returning version

-- name: change_rule
-- guard: version; the caller has locked the row.
update mainspring.rules
set version = version + 1, events = $4, channels = $5, rule = $6::json, updated_at = (select clock_timestamp()),
    updated_by = $7
where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: mute_rule
-- $4: seconds; null ends the mute.
-- guard: version; the caller has locked the row.
update mainspring.rules
set version = version + 1, muted_until = (select clock_timestamp()) + $4 * interval '1 second',
    updated_at = (select clock_timestamp()), updated_by = $5
where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: delete_rule
-- guard: version; the caller has locked the row.
delete from mainspring.rules where tenant_id = $1 and name = $2 and version = $3
returning version
