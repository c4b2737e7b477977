-- People as providers of OpenID Connect know them.

-- name: find_identity
select i.user_id, i.granted
from mainspring.user_identities i
where i.issuer = $1 and i.subject = $2

-- name: has_identity
-- Whether the user signs in at a provider. $2: at this one; null: at any.
select true
from mainspring.user_identities i
where i.user_id = $1 and ($2::text is null or i.issuer = $2)
limit 1

-- name: insert_identity
-- unguarded: insert if absent.
insert into mainspring.user_identities (issuer, subject, user_id)
values ($1, $2, $3)
on conflict do nothing
returning user_id

-- name: set_granted
-- guard: the identity is still of this user.
update mainspring.user_identities
set granted = $4, seen_at = (select clock_timestamp())
where issuer = $1 and subject = $2 and user_id = $3
returning user_id

-- name: delete_identities
-- unguarded: whichever there are of a user that is removed.
delete from mainspring.user_identities where user_id = $1

-- name: answer_sign_in
-- guard: the row is new, so a sign-in is answered once.
insert into mainspring.answered_sign_ins (secret_hash)
values ($1)
on conflict (secret_hash) do nothing
returning secret_hash

-- name: delete_answered_sign_ins
-- At most $2.
-- guard: older than a sign-in can be.
delete from mainspring.answered_sign_ins
where secret_hash in (
    select a.secret_hash
    from mainspring.answered_sign_ins a
    where a.at < (select clock_timestamp()) - $1::float8 * interval '1 second'
    limit $2
    for update skip locked
)

-- name: make_fresh
-- guard: a session that was just begun.
update mainspring.sessions
set fresh_until = (select clock_timestamp()) + $2::float8 * interval '1 second'
where session_id = $1
returning session_id

-- name: is_fresh
select true
from mainspring.sessions s
where s.session_id = $1 and s.fresh_until > (select clock_timestamp())
