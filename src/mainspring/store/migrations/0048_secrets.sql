-- stage: pre

-- The data key of each tenant, encrypted with the master key that `key_id` names. `version` rises when it is encrypted
-- with another master key; the data key stays the same.
create table mainspring.secret_keys (
    tenant_id  int primary key,
    key_id     text not null,
    wrapped    bytea not null,
    version    int not null default 1,
    created_at timestamptz not null default clock_timestamp(),
    wrapped_at timestamptz not null default clock_timestamp()
);

-- Secrets, encrypted with the data key of their tenant. queues, tasks: only jobs of these may name it; empty: all.
create table mainspring.secrets (
    tenant_id  int not null,
    name       text not null,
    version    int not null default 1,
    sealed     bytea not null,
    queues     text[] not null default '{}',
    tasks      text[] not null default '{}',
    created_at timestamptz not null default clock_timestamp(),
    changed_at timestamptz not null default clock_timestamp(),
    changed_by text not null,
    primary key (tenant_id, name)
);
alter table mainspring.secrets alter column sealed set storage external;
