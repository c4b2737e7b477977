-- stage: pre

-- People. `mail` is in small letters. password_hash: of argon2id; null: no password was set yet.
create table mainspring.users (
    user_id       uuid primary key,
    mail          text not null unique,
    name          text not null,
    password_hash text,
    password_at   timestamptz,
    disabled_at   timestamptz,
    created_at    timestamptz not null default clock_timestamp()
);

-- Links that are sent to people: an invitation to a tenant, or, of tenant 0, one to choose a new password. Only the
-- hashes of their codes are stored.
create table mainspring.user_links (
    user_id    uuid not null,
    tenant_id  int not null,
    name       text not null,
    role       text,
    code_hash  bytea not null unique,
    expires_at timestamptz not null,
    made_at    timestamptz not null default clock_timestamp(),
    primary key (user_id, tenant_id)
);

-- How many sign-ins of late somebody has tried in vain: of a user, an address or a browser. `level` falls with time.
create table mainspring.sign_in_attempts (
    key   bytea primary key,
    level float8 not null,
    at    timestamptz not null default clock_timestamp()
);
create index sign_in_attempts_by_time on mainspring.sign_in_attempts (at);

-- Browsers in which a user has signed in before. Their attempts are counted apart from those of strangers.
create table mainspring.known_browsers (
    secret_hash bytea primary key,
    user_id     uuid not null,
    seen_at     timestamptz not null default clock_timestamp()
);
create index known_browsers_by_user on mainspring.known_browsers (user_id);
create index known_browsers_by_time on mainspring.known_browsers (seen_at);

-- user_id: of this person. member_id: a personal token, of the member with this token_id. Without it the row is the
-- member itself: what the person is in the tenant. Nobody has its secret; sessions of the person are sessions of it.
alter table mainspring.tokens add column user_id uuid;
alter table mainspring.tokens add column member_id uuid;
create unique index tokens_of_members on mainspring.tokens (user_id, tenant_id) where member_id is null and user_id is not null;
create index tokens_of_users on mainspring.tokens (user_id) where user_id is not null;
