-- stage: pre
-- What timelines, replays and late words of progress need, beyond 0002_execution.sql.

-- fired_at: when the scheduler fired it; null for what was submitted to run at once (then it was queued at
-- scheduled_for), there without a node_id for runs by hand and replays. progress_number: of the last word of progress,
-- so that a late copy of an earlier one changes nothing.
alter table mainspring.runs
    add column fired_at        timestamptz,
    add column progress_number integer;
create index runs_overdue on mainspring.runs (deadline) where deadline is not null;
alter table mainspring.run_history
    add column fired_at            timestamptz,
    add column cancel_requested_at timestamptz;

-- ready_at: when the run was to be tried again.
alter table mainspring.attempts add column ready_at timestamptz;

-- What a replay needs.
alter table mainspring.dead_letters
    add column max_attempts smallint,
    add column reason       text;
update mainspring.dead_letters set max_attempts = coalesce((spec -> 'retry' ->> 'max_attempts')::smallint, 4);
alter table mainspring.dead_letters alter column max_attempts set not null;

-- Which run repeats which: a run is repeated once at most, and what repeats it may be repeated in its turn.
create table mainspring.replays (
    run_id      uuid primary key,
    tenant_id   int not null,
    replay_id   uuid not null,
    replayed_at timestamptz not null default clock_timestamp()
);
create index replays_by_age on mainspring.replays using brin (replayed_at);

comment on column mainspring.task_signatures.schema is
    'JSON Schema of the payload; under x-mainspring-options the options that the task declares for its jobs';
