-- stage: pre
-- Payloads that stay with their runs, and the idempotency keys of run-now.

-- payload_dropped: the payload was not kept when the run succeeded, see `keep_payload`. Older code keeps no payload of
-- such runs and does not know the column: its rows have the default, and so have all rows of before.
alter table mainspring.run_history add column payload_dropped boolean default true;

-- A key of run-now, and the run that it created. Its scope is the generation of a job. created_at: when it was used first, or a later
-- end of a run of the job whose history was dropped.
create table mainspring.run_now_keys (
    tenant_id   int not null,
    job_id      text not null,
    generation  int not null default 1,
    key         text not null,
    body_hash   bytea not null,
    run_id      uuid not null,
    created_at  timestamptz not null default clock_timestamp(),
    primary key (tenant_id, job_id, generation, key)
);
create index run_now_keys_by_age on mainspring.run_now_keys using brin (created_at);
