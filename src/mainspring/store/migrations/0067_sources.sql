-- stage: pre

-- Where events and jobs come from outside: one row for each source and partition. stored_offset: of the last message that
-- was taken, where the broker has offsets. problem: what the connector could not do when it last wrote.
create table mainspring.sources (
    tenant_id     int not null,
    name          text not null,
    part          text not null default '',
    kind          text not null,
    stored_offset bigint,
    taken         bigint not null default 0,
    repeated      bigint not null default 0,
    dead          bigint not null default 0,
    problems      bigint not null default 0,
    lag           bigint,
    connector     text not null default '',
    problem       text,
    problem_at    timestamptz,
    taken_at      timestamptz,
    seen_at       timestamptz not null default clock_timestamp(),
    primary key (tenant_id, name, part)
);

-- The ids of messages that were taken, where the broker has no offsets. settled: the broker has confirmed that it does
-- not deliver the message again.
create table mainspring.source_messages (
    tenant_id  int not null,
    source     text not null,
    message_id text not null,
    settled    boolean not null default false,
    taken_at   timestamptz not null default clock_timestamp(),
    primary key (tenant_id, source, message_id)
);
create index source_messages_settled on mainspring.source_messages (taken_at) where settled;

-- The newest messages of each source that could not become an event or a job.
create table mainspring.source_dead_messages (
    tenant_id  int not null,
    source     text not null,
    seq        bigint not null generated always as identity,
    part       text not null,
    message_id text not null,
    at         timestamptz not null default clock_timestamp(),
    reason     text not null,
    value      text not null,
    primary key (tenant_id, source, seq)
);
