-- Tokens. Only their hashes are stored.

-- name: insert_token
-- unguarded: an insert under a new id.
insert into mainspring.tokens (token_id, tenant_id, token_hash, role, name, expires_at, narrowed, user_id, member_id)
values ($1, $2, $3, $4, $5, (select clock_timestamp()) + $6::float8 * interval '1 second', $7::json, $8, $9)
on conflict (token_hash) do nothing

-- name: find_token
select {{principal_columns}},
       extract(epoch from t.expires_at - (select clock_timestamp()))::float8 as seconds_left
from mainspring.tokens t
where t.token_hash = $1 and {{is_valid_token}}

-- name: get_token
-- Not of a member, which is no token that anybody has.
select {{token_columns}}
from mainspring.tokens t
left join mainspring.tenants n using (tenant_id)
where t.tenant_id = any ($1::int[]) and t.token_id = $2 and (t.user_id is null or t.member_id is not null)

-- name: list_tokens
select {{token_columns}}
from mainspring.tokens t
left join mainspring.tenants n using (tenant_id)
where t.tenant_id = any ($1::int[]) and (t.user_id is null or t.member_id is not null)
order by (t.revoked_at is null and (t.expires_at is null or t.expires_at > (select clock_timestamp()))) desc,
         t.token_id desc
limit 1000

-- name: revoke_token
-- guard: not revoked yet; it stays revoked.
update mainspring.tokens
set revoked_at = (select clock_timestamp())
where token_id = $1 and revoked_at is null
returning token_id

-- name: other_admins
select count(*)::int
from mainspring.tokens
where tenant_id = $1 and token_id <> $2 and role = 'admin' and narrowed is null and user_id is null and revoked_at is null
  and (expires_at is null or expires_at > (select clock_timestamp()))

-- name: take_turn
select pg_advisory_xact_lock({{lock_key('tokens')}})

-- name: has_admin
select exists (select from mainspring.tokens
               where tenant_id = {{DEFAULT_TENANT}} and role = 'admin' and narrowed is null and user_id is null and revoked_at is null
                 and (expires_at is null or expires_at > (select clock_timestamp())))
