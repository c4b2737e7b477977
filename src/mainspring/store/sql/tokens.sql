-- Tokens: stored hashed, shown once.

-- name: insert_token
-- unguarded: an insert under a fresh id.
insert into mainspring.tokens (token_id, tenant_id, token_hash, role, name)
values ($1, $2, $3, $4, $5)
on conflict (token_hash) do nothing

-- name: find_token
select tenant_id, role, name
from mainspring.tokens
where token_hash = $1 and revoked_at is null
  and (expires_at is null or expires_at > (select clock_timestamp()))

-- name: take_turn
select pg_advisory_xact_lock(hashtext('mainspring.tokens'))

-- name: has_admin
select exists (select from mainspring.tokens where role = 'admin' and revoked_at is null)
