-- stage: pre
-- Generations: a job that is created with the id of an ended one. What older code writes belongs to the first one.
-- New generations begin only after 0016_generation_identity, when no older code is left.
alter table mainspring.jobs add column generation int not null default 1;
alter table mainspring.runs add column generation int not null default 1;
alter table mainspring.run_history add column generation int not null default 1;
alter table mainspring.dead_letters add column generation int not null default 1;
alter table mainspring.missed_fires add column generation int not null default 1;
alter table mainspring.idempotency_keys add column generation int not null default 1;

-- The newest generation of the id.
alter table mainspring.taken_ids add column generation int not null default 1;

-- The jobs row of an earlier generation, as JSON of mainspring.jobs. A one-time job that has fired has none: its run has
-- its definition.
create table mainspring.past_jobs (
    tenant_id   int not null,
    job_id      text not null,
    generation  int not null,
    job         json not null,
    replaced_at timestamptz not null default clock_timestamp(),
    primary key (tenant_id, job_id, generation)
);
create index past_jobs_by_age on mainspring.past_jobs using brin (replaced_at);
