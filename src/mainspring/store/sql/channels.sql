-- Channels: where a tenant is told what has happened.

-- name: get_channel
select {{channel_columns}}
from mainspring.channels c
where c.tenant_id = $1 and c.name = $2

-- name: list_channels
-- By name, after $2.
select {{channel_columns}}
from mainspring.channels c
where c.tenant_id = $1 and ($2::text is null or c.name > $2)
order by c.name
limit $3

-- name: lock_channel
select {{channel_columns}}
from mainspring.channels c
where c.tenant_id = $1 and c.name = $2
for update

-- name: channel_names
select c.name from mainspring.channels c where c.tenant_id = $1 order by c.name

-- name: share_channels
-- Whoever stores a rule that uses these channels: none of them is deleted until the end of the transaction.
select c.name
from mainspring.channels c
where c.tenant_id = $1 and c.name = any ($2::text[])
order by c.name
for key share

-- name: insert_channel
-- unguarded: insert if absent.
insert into mainspring.channels (tenant_id, name, kind, settings, updated_by)
values ($1, $2, $3, $4::json, $5)
on conflict do nothing
returning version

-- name: change_channel
-- guard: version; the caller has locked the row.
update mainspring.channels
set version = version + 1, kind = $4, settings = $5::json, updated_at = (select clock_timestamp()), updated_by = $6
where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: delete_channel
-- Its secrets go with it.
-- guard: version; the caller has locked the row.
delete from mainspring.channels where tenant_id = $1 and name = $2 and version = $3
returning version

-- name: put_secrets
-- guard: the caller has locked or inserted the channel.
insert into mainspring.channel_secrets (tenant_id, name, secrets) values ($1, $2, $3::json)
on conflict (tenant_id, name) do update set secrets = excluded.secrets

-- name: secrets_of
select s.secrets::text as secrets_text
from mainspring.channel_secrets s
where s.tenant_id = $1 and s.name = $2

-- name: rules_of_channel
select r.name from mainspring.rules r where r.tenant_id = $1 and $2 = any (r.channels) order by r.name limit $3

-- name: begin_watching
-- From now on ends of runs are compared with rules.
-- unguarded: insert if absent.
insert into mainspring.notification_watermark (seen_until) values ((select clock_timestamp()))
on conflict (only_row) do nothing
