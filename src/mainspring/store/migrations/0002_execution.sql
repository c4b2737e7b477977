-- stage: pre
-- Execution: progress, deadlines, the node that fired, output, what tasks take, and replays.

-- deadline: when the whole run, retries and waits included, must be over; set by its first claim when the job has a
-- run_timeout. node_id: the scheduler that fired it; null for what was submitted to run at once.
alter table mainspring.runs
    add column deadline      timestamptz,
    add column progress      real,
    add column progress_text text,
    add column node_id       uuid;
alter table mainspring.run_history add column node_id uuid;

-- One row per attempt that printed something. The bytes lie in the log store; `bytes` says up to where they count.
-- worker_id and fence say who may append.
create table mainspring.run_logs (
    run_id      uuid not null,
    attempt     smallint not null,
    fence       int not null,
    tenant_id   int not null,
    worker_id   uuid not null,
    bytes       bigint not null default 0,
    truncated   boolean not null default false,
    ended       boolean not null default false,
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),
    primary key (run_id, fence)
) with (fillfactor = 80);
create index run_logs_by_age on mainspring.run_logs using brin (created_at);

-- What the newest registered worker says a task's payload must look like (JSON Schema).
create table mainspring.task_signatures (
    tenant_id     int not null,
    task          text not null,
    schema        json not null,
    registered_at timestamptz not null default clock_timestamp(),
    primary key (tenant_id, task)
);

alter table mainspring.dead_letters add column trigger text;
create index dead_letters_newest on mainspring.dead_letters (tenant_id, run_id);
