-- stage: pre
-- Limits: how many runs at once, and how often. A run without a limit has none of this.

-- limit_keys: the slots that the run needs, sorted. It owns them while it is QUEUED or RUNNING. gates: the gates of its
-- queue and tenant through which it was claimed; it owns them while it is RUNNING. held_key: the line in which a HELD run
-- stands. held_rank: its place there. wake_at: until then it backs off without a slot.
alter table mainspring.runs
    add column limit_keys bigint[],
    add column gates      bigint[],
    add column held_key   bigint,
    add column held_rank  timestamptz,
    add column wake_at    timestamptz;
create index runs_line on mainspring.runs (held_key, held_rank, run_id) where held_key is not null and state = 4;
create index runs_asleep on mainspring.runs (wake_at) where wake_at is not null;

-- The slots and gates that an ended run gave back.
alter table mainspring.run_history add column held bigint[];

-- What was declared by jobs and tasks, or set by a person (pinned). slots: what counts; null for a limit of rate only.
-- declared: what jobs and tasks have declared last. strict: one
-- after another in the order of submission. every and burst: the seconds per token of its rate, and the size of its bucket.
create table mainspring.limits (
    limit_id   int generated always as identity primary key,
    tenant_id  int not null,
    name       text not null,
    slots      int,
    declared   int,
    strict     boolean not null default false,
    every      float8,
    burst      int,
    pinned     boolean not null default false,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    unique (tenant_id, name)
);

-- One line of a limit: what a run counts under. in_use: the runs that own a slot. tat: when the bucket of the rate is full
-- again. next_at: when a run of the line may start at the earliest.
create table mainspring.limit_keys (
    key_id   bigint primary key,
    limit_id int not null references mainspring.limits (limit_id),
    key      text not null,
    in_use   int not null default 0,
    tat      timestamptz,
    next_at  timestamptz,
    used_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
create index limit_keys_of_limit on mainspring.limit_keys (limit_id);
create index limit_keys_unused on mainspring.limit_keys (used_at) where in_use = 0;
create index limit_keys_due on mainspring.limit_keys (next_at) where next_at is not null;
