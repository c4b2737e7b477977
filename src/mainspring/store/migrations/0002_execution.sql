-- Execution: progress, deadlines, the node that fired, output, what tasks take, and replays.

-- deadline: when the whole run, retries and waits included, must be over; set by its first claim when the job has a
-- run_timeout. node_id and fired_at: the scheduler that fired it, and when; null for what was submitted to run at once
-- (then it was queued at scheduled_for). fired_at alone is there for runs by hand and replays. progress_number: of the
-- last word of progress, so that a late copy of an earlier one changes nothing.
alter table mainspring.runs
    add column deadline        timestamptz,
    add column progress        real,
    add column progress_text   text,
    add column progress_number integer,
    add column node_id         uuid,
    add column fired_at        timestamptz;
create index runs_overdue on mainspring.runs (deadline) where deadline is not null;
alter table mainspring.run_history
    add column node_id             uuid,
    add column fired_at            timestamptz,
    add column cancel_requested_at timestamptz;

-- ready_at: when the run was to be tried again.
alter table mainspring.attempts add column ready_at timestamptz;

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

-- What the newest registered worker says a task's payload must look like (JSON Schema); under x-mainspring-options the
-- options that the task declares for its jobs.
create table mainspring.task_signatures (
    tenant_id     int not null,
    task          text not null,
    schema        json not null,
    registered_at timestamptz not null default clock_timestamp(),
    primary key (tenant_id, task)
);

-- What a replay needs.
alter table mainspring.dead_letters
    add column trigger      text,
    add column max_attempts smallint,
    add column reason       text;
update mainspring.dead_letters set max_attempts = coalesce((spec -> 'retry' ->> 'max_attempts')::smallint, 4);
alter table mainspring.dead_letters alter column max_attempts set not null;
create index dead_letters_newest on mainspring.dead_letters (tenant_id, run_id);

-- Which run repeats which: a run is repeated once at most, and what repeats it may be repeated in its turn.
create table mainspring.replays (
    run_id      uuid primary key,
    tenant_id   int not null,
    replay_id   uuid not null,
    replayed_at timestamptz not null default clock_timestamp()
);
create index replays_by_age on mainspring.replays using brin (replayed_at);
