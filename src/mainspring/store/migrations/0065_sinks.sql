-- stage: pre

-- Where changes of a tenant are sent. settings: what may be shown of the connection. changes, queue, task, job_id, labels:
-- which changes; null: all. keep_seconds, keep_bytes: how long and how much of it waits for the receiver at most.
create table mainspring.sinks (
    sink_id      bigint generated always as identity primary key,
    tenant_id    int not null,
    name         text not null,
    kind         text not null,
    version      int not null default 1,
    settings     json not null,
    changes      text[],
    queue        text,
    task         text,
    job_id       text,
    labels       jsonb,
    keep_seconds int not null,
    keep_bytes   bigint not null,
    paused       boolean not null default false,
    created_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default clock_timestamp(),
    updated_by   text not null,
    unique (tenant_id, name)
);

-- What may not be shown. Only what sends changes reads this table.
create table mainspring.sink_secrets (
    sink_id bigint primary key references mainspring.sinks on delete cascade,
    secrets json not null
);

-- How far a sink is, and which server sends. position: up to this change everything was taken by the receiver, or was
-- dropped. epoch: rises when another server takes over. failures: in a row.
create table mainspring.sink_positions (
    sink_id      bigint primary key references mainspring.sinks on delete cascade,
    position     bigint not null default 0,
    holder       uuid,
    epoch        int not null default 0,
    leased_until timestamptz not null default '-infinity',
    sent         bigint not null default 0,
    sent_at      timestamptz,
    dropped      bigint not null default 0,
    dropped_at   timestamptz,
    failures     int not null default 0,
    error        text,
    error_at     timestamptz,
    retry_at     timestamptz
) with (fillfactor = 50);

-- Changes that a sink wants, a row for each such sink, written in the transaction of the change by triggers that exist
-- while there are sinks (routines/sinks.sql). seq: the order of the changes of a job; the same for all sinks.
create sequence mainspring.sink_change_numbers;
create table mainspring.sink_changes (
    sink_id bigint not null,
    seq     bigint not null,
    at      timestamptz not null default clock_timestamp(),
    change  text not null,
    subject text not null,
    job_id  text not null,
    data    json not null,
    primary key (sink_id, seq)
) with (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
