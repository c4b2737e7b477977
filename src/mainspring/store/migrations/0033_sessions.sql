-- stage: pre
-- Sessions of browsers. A session and a link have the rights of their token, and end with it. Both are found by the hash
-- of a secret of 256 bits. expires_at: the end, however much the session is used. seen_at: the last use, to a few minutes.
create table mainspring.sessions (
    session_id  uuid primary key,
    secret_hash bytea not null unique,
    token_id    uuid not null,
    created_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null
);
create index sessions_by_end on mainspring.sessions (expires_at);

-- Links that sign in once. A used one is deleted.
create table mainspring.sign_in_links (
    code_hash   bytea primary key,
    token_id    uuid not null,
    expires_at  timestamptz not null
);
create index sign_in_links_by_end on mainspring.sign_in_links (expires_at);
