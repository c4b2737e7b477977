-- stage: pre
-- Unique jobs: who has a key. digest: a hash of the fields of the key and their values. The job has the key until `until`,
-- while it is in one of these states: scheduled, held, queued, running. Whoever submits a job with the key locks the row.
create table mainspring.unique_keys (
    tenant_id  int not null,
    digest     bytea not null,
    job_id     text not null,
    generation int not null,
    states     text[] not null,
    taken_at   timestamptz not null default clock_timestamp(),
    until      timestamptz not null,
    primary key (tenant_id, digest)
) with (fillfactor = 70);
create index unique_keys_by_end on mainspring.unique_keys (until);

-- What became of the submission with the idempotency key: null if it created its job, else kept, replaced or later.
alter table mainspring.idempotency_keys add column merged text;
