-- stage: pre
-- The foundation: the schema of the design, whole.
create schema if not exists mainspring;

create table mainspring.schema_migrations (
    version     int primary key,
    name        text not null,
    applied_at  timestamptz not null default clock_timestamp()
);

create table mainspring.tenants (
    tenant_id   int primary key,
    name        text not null unique,
    created_at  timestamptz not null default clock_timestamp()
);
insert into mainspring.tenants (tenant_id, name) values (1, 'default');

create table mainspring.tokens (
    token_id    uuid primary key,
    tenant_id   int not null,
    token_hash  bytea not null unique,
    role        text not null,
    name        text not null,
    created_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz,
    revoked_at  timestamptz
);

-- A lane is interned (tenant, queue, priority, task, required labels): what a worker may take is a set of lanes.
create table mainspring.lanes (
    lane_id     int generated always as identity primary key,
    tenant_id   int not null,
    queue       text not null,
    priority    smallint not null,
    task        text not null,
    labels      text not null default '',
    unique (tenant_id, queue, priority, task, labels)
);

create table mainspring.jobs (
    tenant_id       int not null,
    job_id          text not null,
    lane_id         int not null,
    shard           smallint not null,
    status          smallint not null,
    version         int not null default 1,
    overlap         smallint not null default 0,
    max_attempts    smallint not null,
    one_time        boolean not null,
    id_generated    boolean not null,
    next_fire_at    timestamptz,
    last_fired_for  timestamptz,
    paused_from     timestamptz,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    name            text,
    schedule        json not null,
    payload         json,
    spec            json,
    primary key (tenant_id, job_id)
);
create index jobs_due on mainspring.jobs (shard, next_fire_at) where next_fire_at is not null;
create index jobs_newest on mainspring.jobs (tenant_id, created_at, job_id);

-- Live runs only: small and hot. job_id is null when it equals run_id (a one-time job with an id of ours), so that
-- such a run has no entry in the identity index at all. trigger is null for 'schedule', 'at' for one-time jobs that
-- waited in jobs. exclusive: two attempts must never overlap (at most once, or an overlap rule), so a worker that is
-- cut off stops it at once.
create table mainspring.runs (
    run_id              uuid primary key,
    tenant_id           int not null,
    lane_id             int not null,
    state               smallint not null,
    attempt             smallint not null default 0,
    max_attempts        smallint not null,
    fence               int not null default 0,
    exclusive           boolean not null default false,
    scheduled_for       timestamptz not null,
    ready_at            timestamptz not null,
    claimed_at          timestamptz,
    cancel_requested_at timestamptz,
    claim_seq           bigint,
    worker_id           uuid,
    job_id              text,
    trigger             text,
    name                text,
    last_error          text,
    payload             json,
    spec                json
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
create index runs_ready on mainspring.runs (lane_id, ready_at) where state = 1;
create index runs_held_by on mainspring.runs (worker_id) where state = 2;
create index runs_to_stop on mainspring.runs (worker_id) where state = 2 and cancel_requested_at is not null;
create unique index runs_identity on mainspring.runs (tenant_id, job_id, trigger, scheduled_for)
    nulls not distinct where job_id is not null;

-- Ended runs: append-only, a partition a day of the end; payload kept only when not SUCCESS. No default partition.
create table mainspring.run_history (
    run_id        uuid not null,
    tenant_id     int not null,
    lane_id       int not null,
    state         smallint not null,
    attempt       smallint not null,
    max_attempts  smallint not null,
    fence         int not null,
    scheduled_for timestamptz not null,
    started_at    timestamptz,
    ended_at      timestamptz not null,
    ran_ms        real,
    worker_id     uuid,
    job_id        text,
    trigger       text,
    name          text,
    reason        text,
    error         text,
    result        json,
    payload       json,
    spec          json
) partition by range (ended_at);
create index run_history_by_run on mainspring.run_history (run_id);
create index run_history_by_job on mainspring.run_history (job_id, run_id) where job_id is not null;
create index run_history_by_end on mainspring.run_history using brin (ended_at) with (pages_per_range = 32, autosummarize = on);
create index run_history_unsuccessful on mainspring.run_history (run_id) where state <> 10;

-- Failed tries that were followed by another one.
create table mainspring.attempts (
    run_id      uuid not null,
    attempt     smallint not null,
    fence       int not null,
    worker_id   uuid,
    started_at  timestamptz,
    ended_at    timestamptz not null,
    outcome     text not null,
    error       text
) partition by range (ended_at);
create index attempts_by_run on mainspring.attempts (run_id, attempt);

create table mainspring.missed_fires (
    missed_id   bigint generated always as identity primary key,
    tenant_id   int not null,
    job_id      text not null,
    first_at    timestamptz not null,
    last_at     timestamptz not null,
    count       int not null,
    reason      text not null,
    recorded_at timestamptz not null default clock_timestamp()
);
create index missed_fires_by_job on mainspring.missed_fires (tenant_id, job_id, missed_id);

create table mainspring.dead_letters (
    run_id        uuid primary key,
    tenant_id     int not null,
    lane_id       int not null,
    job_id        text,
    name          text,
    attempts      smallint not null,
    error         text,
    scheduled_for timestamptz not null,
    died_at       timestamptz not null,
    payload       json,
    spec          json
);

create table mainspring.idempotency_keys (
    tenant_id   int not null,
    key         text not null,
    body_hash   bytea not null,
    job_id      text not null,
    created_at  timestamptz not null default clock_timestamp(),
    primary key (tenant_id, key)
);
create index idempotency_keys_by_age on mainspring.idempotency_keys using brin (created_at);

-- Ids that clients chose. A one-time job leaves jobs when it fires, so its uniqueness needs a place of its own.
create table mainspring.taken_ids (
    tenant_id   int not null,
    job_id      text not null,
    taken_at    timestamptz not null default clock_timestamp(),
    primary key (tenant_id, job_id)
);
create index taken_ids_by_age on mainspring.taken_ids using brin (taken_at);

create table mainspring.workers (
    worker_id     uuid primary key,
    tenant_id     int not null,
    name          text not null,
    queues        text[] not null,
    tasks         text[] not null,
    labels        jsonb not null default '{}',
    version       text not null default '',
    slots         int not null,
    state         smallint not null default 1,
    last_seq      bigint not null default 0,
    registered_at timestamptz not null default clock_timestamp(),
    ended_at      timestamptz
) with (fillfactor = 50);
create index workers_alive on mainspring.workers (worker_id) where state in (1, 2);

-- Heartbeats are appended, one row for all workers heard by a server since its last row; the two tables are
-- truncated in turn. Unlogged: a crash forgets them, and the rescuer then waits a full lease before it judges.
create unlogged table mainspring.worker_beats_0 (
    server_id   uuid not null,
    at          timestamptz not null default clock_timestamp(),
    worker_ids  uuid[] not null
);
create unlogged table mainspring.worker_beats_1 (like mainspring.worker_beats_0 including all);

-- Unlogged like the beats, so that a crash empties it too: a rescuer that does not find its own row knows that the
-- beats were forgotten.
create unlogged table mainspring.beat_witnesses (
    witness_id  uuid primary key,
    at          timestamptz not null default clock_timestamp()
);

create table mainspring.nodes (
    node_id     uuid primary key,
    host        text not null,
    started_at  timestamptz not null default clock_timestamp(),
    seen_at     timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

create table mainspring.shard_leases (
    shard       smallint primary key,
    owner       uuid,
    epoch       bigint not null default 0,
    expires_at  timestamptz not null default '-infinity',
    unique (shard, epoch)
) with (fillfactor = 50);
insert into mainspring.shard_leases (shard) select generate_series(0, 127);

create table mainspring.limit_slots (
    tenant_id   int not null,
    key         text not null,
    run_id      uuid not null,
    primary key (tenant_id, key, run_id)
);

create table mainspring.job_edges (
    tenant_id    int not null,
    parent       text not null,
    child        text not null,
    satisfied_at timestamptz,
    primary key (tenant_id, parent, child)
);
