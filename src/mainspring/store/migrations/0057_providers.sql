-- stage: pre

-- People as providers of OpenID Connect know them. subject: the number of the person at this provider, which stays when
-- the mail address changes. granted: the tenants that the person is in because of groups at this provider.
create table mainspring.user_identities (
    issuer     text not null,
    subject    text not null,
    user_id    uuid not null,
    granted    int[] not null default '{}',
    created_at timestamptz not null default clock_timestamp(),
    seen_at    timestamptz not null default clock_timestamp(),
    primary key (issuer, subject)
);
create unique index user_identities_by_user on mainspring.user_identities (user_id, issuer);

-- Sign-ins at providers that were answered, by the hash of the secret in the cookie: each is answered once.
create table mainspring.answered_sign_ins (
    secret_hash bytea primary key,
    at          timestamptz not null default clock_timestamp()
);
create index answered_sign_ins_by_time on mainspring.answered_sign_ins (at);

-- fresh_until: the person has just proved at the provider who it is, which counts as a password that is typed again.
alter table mainspring.sessions add column fresh_until timestamptz;
