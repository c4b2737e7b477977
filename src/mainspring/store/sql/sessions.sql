-- Sessions of browsers, and the links that open them. Only hashes of their secrets are stored.

-- name: insert_link
-- unguarded: an insert under a new hash.
insert into mainspring.sign_in_links (code_hash, token_id, expires_at)
values ($1, $2, (select clock_timestamp()) + $3::float8 * interval '1 second')
returning expires_at

-- name: use_link
-- guard: the row is deleted, so the code works once.
delete from mainspring.sign_in_links l
using mainspring.tokens t
where l.code_hash = $1 and l.expires_at > (select clock_timestamp()) and t.token_id = l.token_id
  and {{is_valid_token}}
returning {{principal_columns}}

-- name: get_link
-- The token of a link that has not been used.
select {{principal_columns}}
from mainspring.sign_in_links l
join mainspring.tokens t using (token_id)
where l.code_hash = $1 and l.expires_at > (select clock_timestamp())
  and {{is_valid_token}}

-- name: delete_expired_links
-- guard: expired.
delete from mainspring.sign_in_links where expires_at <= (select clock_timestamp())

-- name: insert_session
-- It ends with its token at the latest.
-- unguarded: an insert under a new id.
insert into mainspring.sessions (session_id, secret_hash, token_id, expires_at)
select $1, $2, t.token_id, least(t.expires_at, (select clock_timestamp()) + $4::float8 * interval '1 second')
from mainspring.tokens t
where t.token_id = $3 and {{is_valid_token}}
returning session_id

-- name: find_session
select s.session_id, {{principal_columns}},
       extract(epoch from s.expires_at - (select clock_timestamp()))::float8 as seconds_left,
       s.seen_at < (select clock_timestamp()) - $3::float8 * interval '1 second' as unseen
from mainspring.sessions s
join mainspring.tokens t using (token_id)
where s.secret_hash = $1 and s.expires_at > (select clock_timestamp())
  and s.seen_at > (select clock_timestamp()) - $2::float8 * interval '1 second'
  and {{is_valid_token}}

-- name: touch_session
-- guard: not seen for a while, so that several servers write once.
update mainspring.sessions
set seen_at = (select clock_timestamp())
where session_id = $1 and seen_at < (select clock_timestamp()) - $2::float8 * interval '1 second'

-- name: get_session
select s.session_id, s.created_at, s.expires_at
from mainspring.sessions s
where s.session_id = $1

-- name: seconds_left
select extract(epoch from s.expires_at - (select clock_timestamp()))::float8
from mainspring.sessions s
where s.session_id = $1

-- name: list_sessions
-- Those that have not ended, of the tokens of a tenant. A session ends early if nobody uses it.
select s.session_id, s.token_id, t.name, t.role, s.created_at, s.seen_at,
       least(s.expires_at, s.seen_at + $2::float8 * interval '1 second', t.expires_at) as ends_at
from mainspring.sessions s
join mainspring.tokens t using (token_id)
where t.tenant_id = $1 and s.expires_at > (select clock_timestamp())
  and s.seen_at > (select clock_timestamp()) - $2::float8 * interval '1 second'
  and {{is_valid_token}}
order by s.session_id desc
limit $3

-- name: end_session_of_tenant
-- guard: the row is deleted, and only if its token is of the tenant.
delete from mainspring.sessions s
using mainspring.tokens t
where s.session_id = $2 and t.token_id = s.token_id and t.tenant_id = $1
returning s.session_id, s.token_id, t.name, t.role, s.created_at, s.seen_at, (select clock_timestamp()) as ends_at

-- name: end_session
-- guard: the row is deleted, and never comes back.
delete from mainspring.sessions where session_id = $1 returning session_id

-- name: delete_expired_sessions
-- guard: expired.
delete from mainspring.sessions where expires_at <= (select clock_timestamp())
