-- People, the links that are sent to them, and what bounds guessing of their passwords.

-- name: insert_user
-- unguarded: insert if absent.
insert into mainspring.users (user_id, mail, name)
values ($1, $2, $3)
on conflict (mail) do nothing
returning user_id

-- name: user_of_mail
select {{user_columns}} from mainspring.users u where u.mail = $1

-- name: get_user
select {{user_columns}} from mainspring.users u where u.user_id = $1

-- name: lock_user
select {{user_columns}} from mainspring.users u where u.user_id = $1 for update

-- name: share_user
-- The user, if the password is still this one. Until the transaction ends nobody changes it or disables the user.
select u.user_id
from mainspring.users u
where u.user_id = $1 and u.password_hash = $2 and u.disabled_at is null
for share

-- name: set_password
-- guard: the password is the one that was read.
update mainspring.users
set password_hash = $2, password_at = (select clock_timestamp())
where user_id = $1 and password_hash is not distinct from $3
returning user_id

-- name: drop_password
-- guard: there is one.
update mainspring.users
set password_hash = null, password_at = null
where user_id = $1 and password_hash is not null
returning user_id

-- name: set_disabled
-- guard: not so yet.
update mainspring.users
set disabled_at = case when $2 then (select clock_timestamp()) end
where user_id = $1 and (disabled_at is null) = $2
returning user_id

-- name: delete_user
-- guard: in no tenant any more, and invited to none.
delete from mainspring.users u
where u.user_id = $1
  and not exists (select from mainspring.tokens t where t.user_id = $1 and t.revoked_at is null)
  and not exists (select from mainspring.user_links l where l.user_id = $1 and l.tenant_id > 0)
returning user_id

-- name: places
-- A row for each tenant that a user is in or invited to. Name and time are those of the tenant: it does not learn what
-- others call the person, and since when they have known them. A member is called `name (mail)`.
select u.user_id, u.mail, case when p.token_id is null then p.name else left(p.name, -length(u.mail) - 3) end as name,
       u.disabled_at, p.created_at, p.tenant_id, n.name as tenant, p.role, p.token_id, p.invited_until
from mainspring.users u
join lateral (
    select t.tenant_id, t.role, t.name, t.token_id, null::timestamptz as invited_until, t.created_at
    from mainspring.tokens t
    where t.user_id = u.user_id and t.member_id is null and t.revoked_at is null
    union all
    select l.tenant_id, l.role, l.name, null, l.expires_at, l.made_at
    from mainspring.user_links l
    where l.user_id = u.user_id and l.tenant_id > 0
) p on true
join mainspring.tenants n using (tenant_id)
where ($1::int[] is null or p.tenant_id = any ($1)) and ($2::uuid is null or u.user_id = $2)
  and ($3::text is null or u.mail = $3)
order by u.mail, p.tenant_id
limit $4

-- name: put_link
-- unguarded: it takes the place of an earlier one for the same.
insert into mainspring.user_links (user_id, tenant_id, name, role, code_hash, expires_at)
values ($1, $2, $3, $4, $5, (select clock_timestamp()) + $6::float8 * interval '1 second')
on conflict (user_id, tenant_id) do update
set name = excluded.name, role = excluded.role, code_hash = excluded.code_hash, expires_at = excluded.expires_at,
    made_at = (select clock_timestamp())
returning expires_at

-- name: find_link
select l.user_id, l.tenant_id, n.name as tenant, l.name, l.role, u.mail, u.password_hash, u.disabled_at
from mainspring.user_links l
join mainspring.users u using (user_id)
left join mainspring.tenants n using (tenant_id)
where l.code_hash = $1 and l.expires_at > (select clock_timestamp())

-- name: invitations_of
-- Those that have not expired.
select l.user_id, l.tenant_id, n.name as tenant, l.name, l.role, u.mail, u.password_hash, u.disabled_at
from mainspring.user_links l
join mainspring.users u using (user_id)
join mainspring.tenants n using (tenant_id)
where l.user_id = $1 and l.role is not null and l.expires_at > (select clock_timestamp())
order by l.tenant_id

-- name: take_link
-- guard: the row is deleted, so the code works once.
delete from mainspring.user_links
where code_hash = $1 and expires_at > (select clock_timestamp())
returning user_id

-- name: drop_links
-- unguarded: whatever there is of them.
delete from mainspring.user_links
where user_id = $1 and ($2::int[] is null or tenant_id = any ($2))
returning tenant_id

-- name: put_member
-- Somebody who was in the tenant before gets the same row again: what they have created is theirs.
-- unguarded: an invitation was taken in this transaction.
insert into mainspring.tokens (token_id, tenant_id, token_hash, role, name, user_id)
values ($1, $2, $3, $4, $5, $6)
on conflict (user_id, tenant_id) where member_id is null and user_id is not null do update
set role = excluded.role, name = excluded.name, revoked_at = null
returning token_id

-- name: members_of
select t.token_id, t.tenant_id, n.name as tenant, t.role, t.name
from mainspring.tokens t
join mainspring.tenants n using (tenant_id)
where t.user_id = $1 and t.member_id is null and t.revoked_at is null
order by t.tenant_id

-- name: lock_member
select t.token_id, t.tenant_id, n.name as tenant, t.role, t.name
from mainspring.tokens t
join mainspring.tenants n using (tenant_id)
where t.user_id = $1 and t.tenant_id = $2 and t.member_id is null and t.revoked_at is null
for update of t

-- name: set_member_role
-- guard: it is a member, and has another role.
update mainspring.tokens
set role = $2
where token_id = $1 and user_id is not null and member_id is null and revoked_at is null and role <> $2
returning token_id

-- name: revoke_of_user
-- guard: not revoked yet. $2: in these tenants; null: in all.
update mainspring.tokens
set revoked_at = (select clock_timestamp())
where user_id = $1 and revoked_at is null and ($2::int[] is null or tenant_id = any ($2))
returning token_id

-- name: revoke_personal
-- guard: not revoked yet. $2: in this tenant; null: in all. $3: except those with one of these roles.
update mainspring.tokens
set revoked_at = (select clock_timestamp())
where user_id = $1 and member_id is not null and revoked_at is null and ($2::int is null or tenant_id = $2)
  and not role = any ($3::text[])
returning token_id

-- name: revoke_own
-- guard: not revoked yet, and a personal token of this member.
update mainspring.tokens
set revoked_at = (select clock_timestamp())
where token_id = $1 and member_id = $2 and revoked_at is null
returning token_id

-- name: own_tokens
select {{token_columns}}
from mainspring.tokens t
left join mainspring.tenants n using (tenant_id)
where t.member_id = $1 and t.user_id = $2
order by t.revoked_at is null desc, t.token_id desc
limit 1000

-- name: end_sessions
-- unguarded: whichever there are. $2: in these tenants; null: in all. $3: except this one.
delete from mainspring.sessions s
using mainspring.tokens t
where t.token_id = s.token_id and t.user_id = $1 and ($2::int[] is null or t.tenant_id = any ($2))
  and s.session_id is distinct from $3
returning s.session_id

-- name: delete_own_links
-- unguarded: whichever there are. Links that sign in as a token of the user.
delete from mainspring.sign_in_links l
using mainspring.tokens t
where t.token_id = l.token_id and t.user_id = $1

-- name: charge
-- One more attempt of this key. No row: there were too many of late. The level falls by $3 in a second.
-- guard: the level stays within $2.
insert into mainspring.sign_in_attempts as a (key, level)
values ($1, 1)
on conflict (key) do update
set level = greatest(0, a.level - $3::float8 * extract(epoch from (select clock_timestamp()) - a.at)) + 1,
    at = (select clock_timestamp())
where greatest(0, a.level - $3::float8 * extract(epoch from (select clock_timestamp()) - a.at)) + 1 <= $2::float8
returning level

-- name: wait
-- Seconds until the key may try again.
select greatest(0, (a.level - $3::float8 * extract(epoch from (select clock_timestamp()) - a.at) + 1 - $2::float8) / $3)::float8
from mainspring.sign_in_attempts a
where a.key = $1

-- name: refund
-- unguarded: the attempt was none in vain.
update mainspring.sign_in_attempts set level = greatest(0, level - 1) where key = any ($1::bytea[])

-- name: delete_old_attempts
-- At most $1. It waits for nobody who tries at the moment.
-- guard: a day old, which is when every level has fallen to 0.
delete from mainspring.sign_in_attempts
where key in (
    select a.key
    from mainspring.sign_in_attempts a
    where a.at < (select clock_timestamp()) - interval '1 day'
    limit $1
    for update skip locked
)

-- name: see_browser
-- The user has signed in in this browser before.
-- unguarded: a time that only rises.
update mainspring.known_browsers
set seen_at = (select clock_timestamp())
where secret_hash = $1 and user_id = $2
returning user_id

-- name: insert_browser
-- unguarded: insert if absent.
insert into mainspring.known_browsers (secret_hash, user_id)
values ($1, $2)
on conflict (secret_hash) do nothing

-- name: delete_old_browsers
-- At most $2.
-- guard: not seen for long.
delete from mainspring.known_browsers
where secret_hash in (
    select b.secret_hash
    from mainspring.known_browsers b
    where b.seen_at < (select clock_timestamp()) - $1::float8 * interval '1 second'
    limit $2
    for update skip locked
)

-- name: delete_surplus_browsers
-- guard: not among the $2 of the user that were seen last.
delete from mainspring.known_browsers
where user_id = $1 and secret_hash in (
    select b.secret_hash
    from mainspring.known_browsers b
    where b.user_id = $1
    order by b.seen_at desc, b.secret_hash
    offset $2
)

-- name: forget_browsers
-- unguarded: whichever there are. $2: except this one.
delete from mainspring.known_browsers where user_id = $1 and secret_hash is distinct from $2
