-- stage: pre
-- Which application's code declares a recurring job, and the version that its pause for lack of a declaration wrote.
-- Both are null for jobs that people create.
alter table mainspring.jobs
    add column declared_by text,
    add column pruned_version int;

-- What each version of an application declares. A later number is a newer version. last_at: when a worker last said so,
-- to the minute. applied_at: when its workers last began to change jobs to what it declares, after another version had.
create table mainspring.declarations (
    tenant_id   int not null,
    application text not null,
    number      int not null,
    fingerprint text not null,
    named       boolean not null,
    source      text not null,
    job_ids     text[] not null,
    last_at     timestamptz not null,
    applied_at  timestamptz,
    primary key (tenant_id, application, number)
);
create unique index declarations_fingerprint on mainspring.declarations (tenant_id, application, fingerprint);

-- Which worker incarnations run which version.
create table mainspring.declaring_workers (
    tenant_id   int not null,
    application text not null,
    worker_id   uuid not null,
    number      int not null,
    since       timestamptz not null,
    primary key (tenant_id, application, worker_id)
);
